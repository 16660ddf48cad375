"""Kafka's code for each error: every error of txlog has one, and the clients know what to do."""

import logging
from collections.abc import Iterator

import pytest
from kafka.errors import for_code

from txlog import errors
from txlog.kafka.error_codes import (
    CODES,
    COORDINATOR_CODES,
    NotAgain,
    code_of,
    coordinator_code,
    tried,
)

CODE_OF = {
    "RetriableError": 19,
    "StoreUnavailable": 19,
    "StoreFull": 19,
    "PublishContention": 19,
    "ConcurrentTransactions": 51,
    "UnstableOffsetCommit": 88,
    "ReadBlocked": 19,
    "BoundaryMoved": 19,
    "AbortableError": 49,
    "TransactionAborted": 49,
    "OutOfOrderSequence": 45,
    "DuplicateTransaction": 49,
    "CommitFailed": 22,
    "SegmentExpired": 19,
    "FencedError": 90,
    "ProducerFenced": 90,
    "InvalidProducerEpoch": 47,
    "UnknownProducerId": 59,
    "GroupOwned": 25,
    "UsageError": 42,
    "InvalidName": 17,
    "InvalidConfig": 40,
    "InvalidOption": 42,
    "InvalidRecord": 87,
    "RecordTooLarge": 10,
    "UnknownTopic": 3,
    "UnknownPartition": 3,
    "UnknownGroup": 69,
    "UnknownTransaction": 105,
    "TopicExists": 36,
    "IncompatibleSchema": 42,
    "IllegalTransition": 48,
    "OffsetOutOfRange": 1,
    "NoOffsetForPartition": 42,
    "StoreNotAtomic": 42,
    "StoreDenied": 31,
    "NotATxlog": 56,
    "CheckpointConflict": 42,
    "OutcomeUnknown": 20,
    "CorruptData": 56,
    "UnsupportedFormat": 56,
    "MissingObject": 56,
    "InternalError": -1,
    "InvariantViolated": -1,
}
"""Numbers of Kafka's `Errors`."""

OF_AN_OPERATOR = {-1, 56}
"""What no client can mend: it is logged as an error."""


def kinds(root: type[errors.TxlogError] = errors.TxlogError) -> Iterator[type[errors.TxlogError]]:
    for kind in root.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield kind
            yield from kinds(kind)


@pytest.mark.parametrize("kind", [*kinds()], ids=lambda kind: kind.__name__)
def test_error_has_the_code_of_its_reaction(
    kind: type[errors.TxlogError], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "txlog.kafka"):
        code = code_of(kind(f"{kind.__name__} occurred. Mend it."))
    assert code == CODE_OF[kind.__name__]
    [record] = caplog.records
    assert (record.levelno == logging.ERROR) == (code in OF_AN_OPERATOR)
    # A client must repeat what may be repeated, and nothing else of what txlog itself refuses.
    repeats = kind.retriable or kind in (errors.OutcomeUnknown, errors.SegmentExpired)
    assert for_code(code).retriable == (repeats or code in (3, 56))


def test_every_row_of_the_tables_is_an_error_that_occurs() -> None:
    known = set(kinds())
    assert known.issuperset(CODES)
    assert {kind.errno for kind in CODES.values()} | {-1} == set(CODE_OF.values())
    assert {old.errno for old in COORDINATOR_CODES} <= set(CODE_OF.values())


def test_coordinator_answers_with_codes_at_which_its_clients_repeat() -> None:
    assert [coordinator_code(code) for code in (0, 19, 20, 56, 88, 3, 51)] == [
        0, 15, 15, 15, 14, 3, 51
    ]  # fmt: skip
    assert all(new.retriable for new in COORDINATOR_CODES.values())


def test_bug_is_not_taken_for_an_error_of_the_client() -> None:
    def broken() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        tried(broken)


def test_error_that_clients_meet_again_and_again_is_logged_once_a_minute() -> None:
    once = NotAgain()
    passed = [
        once.filter(logging.makeLogRecord({"msg": text, "created": 1e9 + second}))
        for text, second in (("x", 0), ("x", 1), ("y", 1), ("x", 59), ("x", 60), ("x", 61))
    ]
    assert passed == [True, False, True, False, True, False]
    assert any(isinstance(one, NotAgain) for one in logging.getLogger(code_of.__module__).filters)
