"""What was refused within a transaction is missing from it, so the rest may not commit (Kafka)."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from tests.memory_log import MemoryLog
from txlog.clients.producer import Producer
from txlog.errors import (
    InvalidName,
    InvalidRecord,
    OffsetOutOfRange,
    RecordTooLarge,
    TxlogError,
    UnknownPartition,
    UnknownTopic,
)
from txlog.model import OffsetAndMetadata, TopicPartition

P0 = TopicPartition("t", 0)
Refused = Callable[[Producer], object]


@pytest.fixture
def log() -> MemoryLog:
    """`t` takes small records as Kafka's; `n` takes numbers."""
    log = MemoryLog()
    log.admin.create_topic("t", 1, config={"max.message.bytes": "2000"})
    log.admin.create_topic("n", 1, pa.schema([("n", pa.int64())]))
    return log


SENDS: dict[str, tuple[Refused, type[TxlogError]]] = {
    "no topic": (lambda p: p.send("other", b"x"), UnknownTopic),
    "no name of a topic": (lambda p: p.send("../t", b"x"), InvalidName),
    "no partition": (lambda p: p.send("t", b"x", partition=7), UnknownPartition),
    "not bytes": (lambda p: p.send("t", 5), InvalidRecord),
    "no such column": (lambda p: p.send("n", {"m": 1}), InvalidRecord),
    "too large": (lambda p: p.send("t", bytes(5000)), RecordTooLarge),
    "no time": (lambda p: p.send("t", b"x", timestamp_ms=1 << 70), InvalidRecord),
    "a table for no topic": (lambda p: p.send_batch("other", pa.table({"n": [1]})), UnknownTopic),
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
    "beyond the end": ({P0: 99}, "g", OffsetOutOfRange),
    "no whole number": ({P0: 0.5}, "g", InvalidRecord),
    "a note that is too long": ({P0: OffsetAndMetadata(1, "x" * 5000)}, "g", InvalidRecord),
    "a partition by its name": ({"t": 1}, "g", InvalidRecord),
    "a list": ([P0], "g", InvalidRecord),
    "no name of a group": ({P0: 1}, "../g", InvalidName),
    "no group": ({P0: 1}, 5, InvalidName),
}


def test_the_log_commits_what_nothing_is_missing_from(log: MemoryLog) -> None:
    log.producer().send("t", b"source").get()
    producer = log.producer("p")
    producer.begin_transaction()
    producer.send("t", b"x")
    producer.send_offsets_to_transaction({P0: 1}, "g")
    producer.commit_transaction()
    assert log.values("t") == [b"source", b"x"]
    assert log.process().offsets.group("g").committed[P0].offset == 1


@pytest.mark.parametrize("case", SENDS)
def test_a_record_that_was_refused_can_only_be_followed_by_an_abort(
    log: MemoryLog, case: str
) -> None:
    refused, kind = SENDS[case]
    producer = log.producer("p")
    producer.begin_transaction()
    producer.send("t", b"before")
    with pytest.raises(kind):
        refused(producer)
    check_abortable(log, producer, kind)


@pytest.mark.parametrize("case", OFFSETS)
def test_offsets_that_were_refused_can_only_be_followed_by_an_abort(
    log: MemoryLog, case: str
) -> None:
    offsets, group, kind = OFFSETS[case]
    producer = log.producer("p")
    producer.begin_transaction()
    producer.send("t", b"before")
    with pytest.raises(kind):
        producer.send_offsets_to_transaction(offsets, group)  # type: ignore[arg-type]
    check_abortable(log, producer, kind)
    assert not log.process().offsets.group("g").committed


def check_abortable(log: MemoryLog, producer: Producer, kind: type[TxlogError]) -> None:
    """Every step but the abort says what was refused; then the producer goes on."""
    for step in (lambda: producer.send("t", b"after"), producer.commit_transaction):
        with pytest.raises(kind, match="in an error state"):
            step()
    producer.abort_transaction()
    assert log.values("t", "n") == []
    producer.begin_transaction()
    producer.send("t", b"again")
    producer.commit_transaction()
    assert log.values("t") == [b"again"]
    log.check()


@pytest.mark.parametrize("case", SENDS)
def test_a_record_that_is_refused_outside_of_transactions_leaves_the_producer_as_it_was(
    log: MemoryLog, case: str
) -> None:
    refused, kind = SENDS[case]
    producer = log.producer()
    with pytest.raises(kind):
        refused(producer)
    producer.send("t", b"after")
    producer.flush()
    assert log.values("t") == [b"after"]


def test_offsets_are_those_of_the_call_whatever_becomes_of_the_mapping(log: MemoryLog) -> None:
    log.producer().send("t", b"source").get()
    producer = log.producer("p")
    producer.begin_transaction()
    offsets = {P0: 1}
    producer.send_offsets_to_transaction(offsets, "g")
    offsets[P0] = 99
    producer.commit_transaction()
    assert log.process().offsets.group("g").committed[P0].offset == 1
