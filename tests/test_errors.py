"""The error tree: seven groups by the caller's reaction, stable codes, and facts that survive
pickling."""

import builtins
import inspect
import pickle
import re

import pytest

from txlog import errors
from txlog.errors import TxlogError, UsageError

GROUPS = (
    errors.RetriableError,
    errors.AbortableError,
    errors.FencedError,
    errors.UsageError,
    errors.OutcomeUnknown,
    errors.CorruptData,
    errors.InternalError,
)

CODES = {
    "TxlogError": "txlog-error",
    "RetriableError": "retriable",
    "StoreUnavailable": "store-unavailable",
    "StoreFull": "store-full",
    "PublishContention": "publish-contention",
    "ConcurrentTransactions": "concurrent-transactions",
    "UnstableOffsetCommit": "unstable-offset-commit",
    "ReadBlocked": "read-blocked",
    "BoundaryMoved": "boundary-moved",
    "AbortableError": "abortable",
    "TransactionAborted": "transaction-aborted",
    "OutOfOrderSequence": "out-of-order-sequence",
    "CommitFailed": "commit-failed",
    "DuplicateTransaction": "duplicate-transaction",
    "SegmentExpired": "segment-expired",
    "FencedError": "fenced",
    "ProducerFenced": "producer-fenced",
    "InvalidProducerEpoch": "invalid-producer-epoch",
    "UnknownProducerId": "unknown-producer-id",
    "GroupOwned": "group-owned",
    "UsageError": "usage",
    "InvalidName": "invalid-name",
    "InvalidConfig": "invalid-config",
    "InvalidOption": "invalid-option",
    "InvalidRecord": "invalid-record",
    "RecordTooLarge": "record-too-large",
    "UnknownTopic": "unknown-topic",
    "UnknownPartition": "unknown-partition",
    "UnknownGroup": "unknown-group",
    "UnknownTransaction": "unknown-transaction",
    "TopicExists": "topic-exists",
    "IncompatibleSchema": "incompatible-schema",
    "IllegalTransition": "illegal-transition",
    "OffsetOutOfRange": "offset-out-of-range",
    "NoOffsetForPartition": "no-offset-for-partition",
    "StoreNotAtomic": "store-not-atomic",
    "StoreDenied": "store-denied",
    "NotATxlog": "not-a-txlog",
    "CheckpointConflict": "checkpoint-conflict",
    "OutcomeUnknown": "outcome-unknown",
    "CorruptData": "corrupt-data",
    "UnsupportedFormat": "unsupported-format",
    "MissingObject": "missing-object",
    "InternalError": "internal-error",
    "InvariantViolated": "invariant-violated",
}
"""Append-only: programs and dashboards of users compare these texts. Never change or remove one."""

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, BaseException)
]

TREE_LINE = re.compile(r"^ {4}((?:[│ ] {3})*)(?:[├└]── )(\w+) +\S")
ALSO = re.compile(r"\(also an? (\w+)\)$")


def drawn_tree() -> dict[str, tuple[str, str | None]]:
    """Name -> (name of the parent, builtin second base), as drawn in the module's docstring."""
    path = ["TxlogError"]
    found: dict[str, tuple[str, str | None]] = {}
    for line in (errors.__doc__ or "").splitlines():
        if match := TREE_LINE.match(line):
            depth = len(match[1]) // 4 + 1
            also = ALSO.search(line)
            path[depth:] = [match[2]]
            found[match[2]] = (path[depth - 1], also[1] if also else None)
    return found


def test_codes_are_pinned_and_unique() -> None:
    assert {kind.__name__: kind.code for kind in KINDS} == CODES
    assert len(set(CODES.values())) == len(CODES)


def test_codes_are_lower_case_words_joined_by_hyphens() -> None:
    assert [code for code in CODES.values() if not re.fullmatch(r"[a-z]+(-[a-z]+)*", code)] == []


def test_the_seven_groups_are_the_only_children_of_the_root() -> None:
    assert set(TxlogError.__subclasses__()) == set(GROUPS)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not TxlogError])
def test_every_error_is_in_exactly_one_group(kind: type[TxlogError]) -> None:
    assert len([group for group in GROUPS if issubclass(kind, group)]) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_flags_match_the_error_group(kind: type[TxlogError]) -> None:
    final = (errors.FencedError, errors.CorruptData, errors.InternalError)
    assert kind.retriable == issubclass(kind, errors.RetriableError)
    assert kind.abortable == issubclass(kind, errors.AbortableError)
    assert kind.fatal == issubclass(kind, final)


@pytest.mark.parametrize("kind", KINDS)
def test_pickled_error_keeps_its_type_message_and_facts(kind: type[TxlogError]) -> None:
    sent = kind("topic 'a' is at epoch 3, not 2; close this producer.", topic="a", epoch=3)
    received = pickle.loads(pickle.dumps(sent))
    assert type(received) is kind
    assert str(received) == str(sent)
    assert received.facts == {"topic": "a", "epoch": 3}


@pytest.mark.parametrize(
    ("error", "reason", "remedy"),
    [
        (
            UsageError("it is gone. It was here. Look again."),
            "it is gone. It was here.",
            "Look again.",
        ),
        (
            UsageError("it is gone; look again."),
            "it is gone; look again.",
            "it is gone; look again.",
        ),
        (
            UsageError("it is gone. Look. Again.", remedy="Look. Again."),
            "it is gone.",
            "Look. Again.",
        ),
        (UsageError("it is gone.", remedy="Look again."), "it is gone.", "Look again."),
    ],
)
def test_error_message_is_split_into_reason_and_remedy(
    error: TxlogError, reason: str, remedy: str
) -> None:
    assert error.remedy == remedy
    assert error.reason == reason
    assert pickle.loads(pickle.dumps(error)).remedy == remedy


def test_docstring_tree_matches_the_class_hierarchy() -> None:
    wanted = {
        kind.__name__: (kind.__bases__[0].__name__, builtin_base(kind))
        for kind in KINDS
        if kind is not TxlogError
    }
    assert drawn_tree() == wanted


def builtin_base(kind: type[TxlogError]) -> str | None:
    """The second base, which must be a builtin exception."""
    own = [base.__name__ for base in kind.__bases__[1:]]
    assert all(issubclass(getattr(builtins, name), Exception) for name in own)
    return own[0] if own else None
