"""A transaction that lost a refused record or offset may not commit the rest (as in Kafka)."""

from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pytest

from tests.logs.memory_log import SEGMENTS, MemoryLog
from tests.stores.scripted_store import unavailable
from txlog.client.consumer.consumer_group import ConsumerGroupMetadata
from txlog.client.producer.producer import Producer
from txlog.errors import (
    AbortableError,
    CommitFailed,
    InvalidName,
    InvalidRecord,
    OffsetOutOfRange,
    RecordTooLarge,
    StoreUnavailable,
    TxlogError,
    UnknownPartition,
    UnknownTopic,
    UsageError,
)
from txlog.model import OffsetAndMetadata, TopicPartition

P0 = TopicPartition("t", 0)
Refused = Callable[[Producer], object]


@pytest.fixture
def log(transaction_records: str) -> MemoryLog:
    """`t` takes small records with Kafka's columns; `n` takes numbers."""
    log = MemoryLog(SEGMENTS, transaction_records=transaction_records)
    log.admin.create_topic("t", 1, config={"max.message.bytes": "2000"})
    log.admin.create_topic("n", 1, pa.schema([("n", pa.int64())]))
    log.admin.create_topic("wide", 250)
    log.producer().send("wide", b"x", partition=0).get()
    with log.consumer(group_id="moved") as consumer:
        consumer.assign([P0])
        consumer.commit({P0: 0})
    return log


def too_many_positions() -> dict[TopicPartition, OffsetAndMetadata]:
    """Positions whose metadata is larger than an entry may be."""
    return {TopicPartition("wide", n): OffsetAndMetadata(0, "x" * 4096) for n in range(250)}


SENDS: dict[str, tuple[Refused, type[TxlogError]]] = {
    "no topic": (lambda p: p.send("other", b"x"), UnknownTopic),
    "no name of a topic": (lambda p: p.send("../t", b"x"), InvalidName),
    "a topic that is no text": (lambda p: p.send(["t"], b"x"), InvalidName),
    "no partition": (lambda p: p.send("t", b"x", partition=7), UnknownPartition),
    "a partition below 0": (lambda p: p.send("t", b"x", partition=-1), UnknownPartition),
    "a partition as a text": (lambda p: p.send("t", b"x", partition="0"), InvalidRecord),
    "a key of text": (lambda p: p.send("t", b"x", key="k"), InvalidRecord),
    "no headers": (lambda p: p.send("t", b"x", headers=[("k", "v")]), InvalidRecord),
    "headers that are a number": (lambda p: p.send("t", b"x", headers=5), InvalidRecord),
    "bytes for columns": (lambda p: p.send("n", b"x"), InvalidRecord),
    "headers beside columns": (
        lambda p: p.send("n", {"n": 1}, headers=[("k", b"")]),
        InvalidRecord,
    ),
    "a value of another type": (lambda p: p.send("n", {"n": "one"}), InvalidRecord),
    "a time before 1970": (lambda p: p.send("t", b"x", timestamp_ms=-1), InvalidRecord),
    "a time far ahead": (lambda p: p.send("t", b"x", timestamp_ms=1 << 60), InvalidRecord),
    "not bytes": (lambda p: p.send("t", 5), InvalidRecord),
    "no such column": (lambda p: p.send("n", {"m": 1}), InvalidRecord),
    "too large": (lambda p: p.send("t", bytes(5000)), RecordTooLarge),
    "no time": (lambda p: p.send("t", b"x", timestamp_ms=1 << 70), InvalidRecord),
    "a table for no topic": (lambda p: p.send_batch("other", pa.table({"n": [1]})), UnknownTopic),
    "a table for no name": (lambda p: p.send_batch(5, pa.table({"n": [1]})), InvalidName),
    "no table": (lambda p: p.send_batch("n", [1]), InvalidRecord),
    "a table with a record that is too large": (
        lambda p: p.send_batch("t", pa.table({"value": [b"x", bytes(5000)]})),
        RecordTooLarge,
    ),
    "a time that is no column": (
        lambda p: p.send_batch("n", pa.table({"n": [1]}), timestamp="at"),
        InvalidRecord,
    ),
    "partitions that are no numbers": (
        lambda p: p.send_batch("n", pa.table({"n": [1], "p": ["a"]}), partition="p"),
        InvalidRecord,
    ),
    "a table of other columns": (
        lambda p: p.send_batch("n", pa.table({"m": [1]})),
        InvalidRecord,
    ),
    "a key that is no column": (
        lambda p: p.send_batch("n", pa.table({"n": [1]}), key="k"),
        InvalidRecord,
    ),
    "a table for no partition": (
        lambda p: p.send_batch("n", pa.table({"n": [1]}), partition=9),
        UnknownPartition,
    ),
}
OFFSETS: dict[str, tuple[object, object, type[TxlogError]]] = {
    "no topic": ({TopicPartition("other", 0): 1}, "g", UnknownTopic),
    "no partition": ({TopicPartition("t", 9): 1}, "g", UnknownPartition),
    "below 0": ({P0: -1}, "g", OffsetOutOfRange),
    "a note that is no text": ({P0: OffsetAndMetadata(1, None)}, "g", InvalidRecord),
    "more than fits": (too_many_positions(), "g", UsageError),
    "an iterator": (iter([P0]), "g", InvalidRecord),
    "nothing": (None, "g", InvalidRecord),
    "another place of the group": ({P0: 0}, ConsumerGroupMetadata("moved", {P0: 5}), CommitFailed),
    "a topic that is another one now": (
        {P0: 1},
        ConsumerGroupMetadata("g", topic_ids={P0: "of-before"}),
        CommitFailed,
    ),
    "beyond the end": ({P0: 99}, "g", OffsetOutOfRange),
    "no whole number": ({P0: 0.5}, "g", InvalidRecord),
    "a note that is too long": ({P0: OffsetAndMetadata(1, "x" * 5000)}, "g", InvalidRecord),
    "a partition by its name": ({"t": 1}, "g", InvalidRecord),
    "a list": ([P0], "g", InvalidRecord),
    "no name of a group": ({P0: 1}, "a\ng", InvalidName),
    "no group": ({P0: 1}, 5, InvalidName),
}


@pytest.mark.both_ways
def test_complete_transaction_commits_records_and_offsets(log: MemoryLog) -> None:
    log.producer().send("t", b"source").get()
    producer = log.producer("p")
    producer.begin_transaction()
    producer.send("t", b"x")
    producer.send_offsets_to_transaction({P0: 1}, "g")
    producer.commit_transaction()
    assert log.values("t") == [b"source", b"x"]
    assert log.process().offsets.group("g").committed[P0].offset == 1


@pytest.mark.both_ways
@pytest.mark.parametrize("case", SENDS)
def test_after_refused_record_only_abort_is_allowed(log: MemoryLog, case: str) -> None:
    refused, kind = SENDS[case]
    producer = log.producer("p")
    producer.begin_transaction()
    producer.send("t", b"before")
    with pytest.raises(kind):
        refused(producer)
    check_abortable(log, producer, kind)


@pytest.mark.both_ways
@pytest.mark.parametrize("case", OFFSETS)
def test_after_refused_offsets_only_abort_is_allowed(log: MemoryLog, case: str) -> None:
    offsets, group, kind = OFFSETS[case]
    producer = log.producer("p")
    producer.begin_transaction()
    producer.send("t", b"before")
    with pytest.raises(kind):
        producer.send_offsets_to_transaction(offsets, group)  # type: ignore[arg-type]
    check_abortable(log, producer, kind)
    assert not log.process().offsets.group("g").committed


def check_abortable(log: MemoryLog, producer: Producer, kind: type[TxlogError]) -> None:
    """Check that every call but abort repeats the error, and that the producer then works."""
    for step in (
        lambda: producer.send("t", b"after"),
        lambda: producer.send_batch("n", pa.table({"n": [1]})),
        lambda: producer.send_offsets_to_transaction({P0: 0}, "g"),
        producer.flush,
        producer.commit_transaction,
    ):
        with pytest.raises(kind, match="in an error state"):
            step()
    producer.abort_transaction()
    assert log.values("t", "n") == []
    producer.begin_transaction()
    producer.send("t", b"again")
    producer.commit_transaction()
    assert log.values("t") == [b"again"]
    log.check()


@pytest.mark.both_ways
def test_commit_is_refused_after_serializer_error(log: MemoryLog) -> None:
    producer = log.producer("p", value_serializer=lambda value: value.encode())
    producer.begin_transaction()
    producer.send("t", "before")
    with pytest.raises(AttributeError):
        producer.send("t", 5)
    with pytest.raises(AbortableError, match="a record was not taken .*AttributeError"):
        producer.commit_transaction()
    producer.abort_transaction()
    assert log.values("t") == []


def send_many(producer: Producer) -> object:
    """Send until the buffer is full; the producer writes it before it takes the next record."""
    return [producer.send("t", bytes(1_000)) for _ in range(3)]


UNANSWERED: dict[str, tuple[Refused, str, str]] = {
    "the topic of a record": (lambda p: p.send("n", {"n": 1}), "get", "^topics/n/"),
    "the topic of a table": (lambda p: p.send_batch("n", pa.table({"n": [1]})), "get", "^topics/n"),
    "a full buffer": (send_many, "put_new", "^topics/t/"),
}


@pytest.mark.both_ways
@pytest.mark.parametrize("case", UNANSWERED)
def test_commit_is_refused_if_unavailable_store_prevented_a_send(log: MemoryLog, case: str) -> None:
    """After a timeout in a transaction, a Kafka producer can only abort it, too."""
    call, verb, path = UNANSWERED[case]
    producer = Producer(log.process(log.store), transactional_id="p", buffer_memory=1_024)
    producer.init_transactions()
    producer.begin_transaction()
    log.store.on(verb, path, unavailable, times=100)
    with pytest.raises(StoreUnavailable):
        call(producer)
    log.store.heal()
    with pytest.raises(AbortableError, match="was not taken into the transaction"):
        producer.commit_transaction()
    producer.abort_transaction()
    assert log.values("t", "n") == []
    log.check()


@pytest.mark.both_ways
def test_commit_retries_offsets_and_records_whose_write_failed(log: MemoryLog) -> None:
    """The commit retries offsets and tables whose first write got no answer from the store."""
    producer = log.producer("p")
    producer.begin_transaction()
    log.store.on("create", "^transactions/", unavailable, holding="offsets_pended")
    with pytest.raises(StoreUnavailable):
        producer.send_offsets_to_transaction({P0: 0}, "g")
    log.store.on("put_new", "^topics/n/", unavailable)
    with suppress(StoreUnavailable):  # Staged records are uploaded in the background.
        producer.send_batch("n", pa.table({"n": [1]}))
        with pytest.raises(StoreUnavailable):
            producer.flush()
    producer.commit_transaction()
    assert log.values("n") == [{"n": 1}]
    assert log.process().offsets.group("g").committed[P0].offset == 0


@pytest.mark.parametrize("case", SENDS)
def test_refused_record_outside_transaction_does_not_affect_producer(
    log: MemoryLog, case: str
) -> None:
    refused, kind = SENDS[case]
    producer = log.producer()
    with pytest.raises(kind):
        refused(producer)
    producer.send("t", b"after")
    producer.flush()
    assert log.values("t") == [b"after"]


@pytest.mark.both_ways
def test_sent_offsets_are_unaffected_by_later_changes_to_the_mapping(log: MemoryLog) -> None:
    log.producer().send("t", b"source").get()
    producer = log.producer("p")
    producer.begin_transaction()
    offsets = {P0: 1}
    producer.send_offsets_to_transaction(offsets, "g")
    offsets[P0] = 99
    producer.commit_transaction()
    assert log.process().offsets.group("g").committed[P0].offset == 1
