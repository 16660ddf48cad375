"""Arguments of a wrong type are refused with a sentence; a single string is one name."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.admin import Admin, NewTopic
from txlog.client.consumer.consumer import Consumer
from txlog.errors import InvalidName, UnknownTopic, UsageError
from txlog.model import TopicPartition, TransactionOutcome, TxId

NAMES = ("a", "b", "ab")
P0 = TopicPartition("ab", 0)


@pytest.fixture
def log(transaction_records: str) -> MemoryLog:
    log = MemoryLog(transaction_records=transaction_records)
    for name in NAMES:
        log.admin.create_topic(name, 1)
    return log


def consumer(log: MemoryLog) -> Consumer:
    return Consumer(root=log.connection, group_id="g", auto_offset_reset="earliest")


def test_string_is_one_topic_name_and_not_a_list_of_letters(log: MemoryLog) -> None:
    with pytest.raises(UnknownTopic, match="'ba'"):
        log.admin.delete_topics("ba")
    assert log.admin.list_topics() == sorted(NAMES)
    assert [topic.name for topic in log.admin.describe_topics("ab")] == ["ab"]
    log.admin.delete_topics("ab")
    assert log.admin.list_topics() == ["a", "b"]


def test_single_partition_or_new_topic_counts_as_list_of_one(log: MemoryLog) -> None:
    reader = consumer(log)
    reader.assign(P0)  # type: ignore[arg-type]
    assert reader.assignment() == {P0}
    assert reader.end_offsets(P0) == {P0: 0}  # type: ignore[arg-type]
    log.admin.create_topics(NewTopic("new"))  # type: ignore[arg-type]
    assert "new" in log.admin.list_topics()


@pytest.mark.in_log
def test_admin_accepts_a_TxId_as_string(log: MemoryLog) -> None:
    producer = log.producer("p")
    tx_id = producer.begin_transaction()
    producer.send("a", b"x")
    producer.flush()
    assert log.admin.describe_transaction(str(tx_id)).tx_id == tx_id
    log.admin.abort_transaction(str(tx_id))
    assert log.values("a") == []


ADMIN_CALLS: dict[str, Callable[[Admin], object]] = {
    "delete_topics([5])": lambda a: a.delete_topics([5]),  # type: ignore[list-item]
    "delete_topics(5)": lambda a: a.delete_topics(5),  # type: ignore[arg-type]
    "delete_topics(bytes)": lambda a: a.delete_topics(b"ab"),  # type: ignore[arg-type]
    "describe_topics([None])": lambda a: a.describe_topics([None]),  # type: ignore[list-item]
    "create_topics([name])": lambda a: a.create_topics(["q"]),  # type: ignore[list-item]
    "create_topics(name)": lambda a: a.create_topics("q"),  # type: ignore[arg-type]
    "create_topics(5)": lambda a: a.create_topics(5),  # type: ignore[arg-type]
    "describe_transaction(text)": lambda a: a.describe_transaction("id"),
    "describe_transaction(5)": lambda a: a.describe_transaction(5),  # type: ignore[arg-type]
    "abort_transaction(text)": lambda a: a.abort_transaction("id"),
    "outcome(5)": lambda a: a.outcome(5),  # type: ignore[arg-type]
    "delete_records(list)": lambda a: a.delete_records([P0]),  # type: ignore[arg-type]
    "delete_records(name)": lambda a: a.delete_records({"ab": 1}),  # type: ignore[dict-item]
}
CONSUMER_CALLS: dict[str, Callable[[Consumer], object]] = {
    "subscribe([5])": lambda c: c.subscribe([5]),  # type: ignore[list-item]
    "subscribe(5)": lambda c: c.subscribe(5),  # type: ignore[arg-type]
    "assign([name])": lambda c: c.assign(["e"]),  # type: ignore[list-item]
    "assign(name)": lambda c: c.assign("ab"),  # type: ignore[arg-type]
    "assign([(name, text)])": lambda c: c.assign([("ab", "0")]),  # type: ignore[list-item]
    "committed([partition])": lambda c: c.committed([P0]),  # type: ignore[arg-type]
    "committed(name)": lambda c: c.committed("ab"),  # type: ignore[arg-type]
    "position(name)": lambda c: c.position("ab"),  # type: ignore[arg-type]
    "seek(name)": lambda c: c.seek("ab", 0),  # type: ignore[arg-type]
    "pause(name)": lambda c: c.pause("ab"),  # type: ignore[arg-type]
    "end_offsets(name)": lambda c: c.end_offsets("ab"),  # type: ignore[arg-type]
    "commit(list)": lambda c: c.commit([P0]),  # type: ignore[arg-type]
    "commit(name)": lambda c: c.commit({"ab": 1}),  # type: ignore[dict-item]
    "offsets_for_times(list)": lambda c: c.offsets_for_times([P0]),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("call", ADMIN_CALLS)
def test_admin_refuses_wrong_argument_types_and_changes_nothing(log: MemoryLog, call: str) -> None:
    before = log.objects()
    with pytest.raises(UsageError, match="give|looks like"):
        ADMIN_CALLS[call](log.admin)
    assert log.changed_since(before) == []


@pytest.mark.parametrize("call", CONSUMER_CALLS)
def test_consumer_refuses_wrong_argument_types(log: MemoryLog, call: str) -> None:
    with pytest.raises(UsageError, match="give|whole number"):
        CONSUMER_CALLS[call](consumer(log))


def test_list_of_topics_in_constructor_and_TxId_class_are_refused(log: MemoryLog) -> None:
    with pytest.raises(UsageError, match="give names as strings"):
        Consumer(["ab"], root=log.connection)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="give a TxId"):
        log.admin.outcome(TxId)  # type: ignore[arg-type]


def test_root_that_is_not_utf_8_is_refused_with_the_reason() -> None:
    """As Python passes on bytes of a command line that are not text of the locale."""
    with pytest.raises(UsageError, match=r"'/tmp/a\\udcff', which is not UTF-8"):
        Consumer(root=os.fsdecode(b"/tmp/a\xff"))


@pytest.mark.parametrize("name", ["a b", "\x1b[2J", "\ud800"])
def test_verify_refuses_impossible_topic_name(log: MemoryLog, name: str) -> None:
    """'txlog topic create' would not create it, as the error for an unknown topic suggests."""
    with pytest.raises(InvalidName, match="is not allowed: use letters"):
        log.admin.verify(name)


@pytest.mark.parametrize("part", [-1, 2**63, True, 1.0, "1", None])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_TxId_with_a_part_that_no_transaction_has_is_refused(
    log: MemoryLog, place: int, part: object
) -> None:
    parts: list[Any] = [0, 0, 0]
    parts[place] = part
    with pytest.raises(UsageError, match="is not a transaction; give a TxId"):
        log.admin.outcome(TxId(*parts))


def test_largest_parts_of_a_TxId_are_those_of_kafka(log: MemoryLog) -> None:
    tx_id = TxId(2**63 - 1, 2**63 - 1, 2**63 - 1)
    assert log.admin.outcome(tx_id) is TransactionOutcome.UNKNOWN_ID


@pytest.mark.parametrize("digits", [20, 5_000])
def test_transaction_with_more_digits_than_a_number_has_is_refused(
    log: MemoryLog, digits: int
) -> None:
    """Python raises an error of its own for a text of more than 4,300 digits."""
    with pytest.raises(InvalidName, match="is not a transaction id; it looks like"):
        log.admin.abort_transaction(f"{'1' * digits}-0-0")
