"""A position moves only past records that `poll` returned; a later poll returns the others."""

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import Call
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.errors import InvalidRecord
from txlog.model import TopicPartition

TYPED = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us"))])
BEYOND_9999_US = 10**18
X0, X1 = TopicPartition("x", 0), TopicPartition("x", 1)


def typed(log: MemoryLog, times: list[list[int]]) -> Consumer:
    """A consumer of topic `x`, with one partition for each list of record times."""
    log.admin.create_topic("x", len(times), TYPED)
    for partition, found in enumerate(times):
        numbers = [10 * partition + n for n in range(len(found))]
        table = pa.table({"n": numbers, "at": pa.array(found, pa.timestamp("us"))})
        log.producer().send_batch("x", table, partition=partition)
    options = {"auto_offset_reset": "earliest", "group_id": "g"}
    return Consumer("x", root=log.process(), **options)  # type: ignore[arg-type]


def numbers(consumer: Consumer, max_records: int = 100) -> list[int]:
    found = consumer.poll(max_records=max_records)
    return sorted(record.value["n"] for records in found.values() for record in records)


def test_poll_returns_records_before_unrepresentable_one_then_names_its_offset(
    log: MemoryLog,
) -> None:
    consumer = typed(log, [[0, 1, BEYOND_9999_US, 3]])
    assert numbers(consumer) == [0, 1]
    for _ in range(2):
        with pytest.raises(InvalidRecord, match=r"x-0 at offset 2.*poll_arrow.*seek\(\).* 3"):
            consumer.poll()
        assert consumer.position(X0) == 2
    consumer.seek(X0, 3)
    assert numbers(consumer) == [3]


def test_unrepresentable_record_raises_without_blocking_other_partitions(
    log: MemoryLog,
) -> None:
    consumer = typed(log, [[BEYOND_9999_US, 1], [0, 1, 2, 3]])
    found: list[int] = []
    errors = 0
    for _ in range(8):
        try:
            found += numbers(consumer, max_records=1)
        except InvalidRecord:
            errors += 1
    assert found == [10, 11, 12, 13]
    assert errors >= 4
    assert (consumer.position(X0), consumer.position(X1)) == (0, 4)


def test_group_does_not_commit_past_unrepresentable_record(log: MemoryLog) -> None:
    consumer = typed(log, [[0, 1, BEYOND_9999_US]])
    assert numbers(consumer, max_records=3) == [0, 1]
    with pytest.raises(InvalidRecord):
        consumer.poll()
    consumer.close()
    assert log.process().offsets.group("g").committed[X0].offset == 2


def test_poll_arrow_returns_timestamps_that_python_cannot_represent(log: MemoryLog) -> None:
    table = typed(log, [[0, BEYOND_9999_US]]).poll_arrow()
    assert table is not None
    assert table["at"].cast(pa.int64()).to_pylist() == [0, BEYOND_9999_US]
    assert table["n"].to_pylist() == [0, 1]


@pytest.mark.segments
def test_ctrl_c_during_poll_loses_no_records(log: MemoryLog) -> None:
    producer = log.producer()
    for number in range(6):
        producer.send("t", b"%d" % number, partition=number % 2)
        producer.flush()
    met: list[str] = []

    def interrupted(call: Call) -> object:
        met.append("now")
        raise KeyboardInterrupt

    options = {"auto_offset_reset": "earliest", "group_id": "g"}
    consumer = Consumer("t", root=log.connection, **options)  # type: ignore[arg-type]
    log.store.on("get_ranges|get", "arrow", interrupted)
    log.store.on("get_ranges|get", "arrow", lambda call: call(), times=3)
    with pytest.raises(KeyboardInterrupt):
        consumer.poll()
    consumer.close()
    assert met == ["now"]
    with Consumer("t", root=log.process(), **options) as again:  # type: ignore[arg-type]
        found = [r.value for records in again.poll().values() for r in records]
    assert sorted(found) == [b"%d" % number for number in range(6)]


def test_poll_misses_no_record_appended_on_the_same_connection(log: MemoryLog) -> None:
    """Threads share the process's state of a topic, which may advance during a poll."""
    producer = Producer(log.connection)
    producer.send("t", b"0", partition=0).get()
    consumer = Consumer("t", root=log.connection, auto_offset_reset="earliest")
    topic = log.connection.cluster.topic("t")
    checked, appended = topic.check_offset, []

    def check(*arguments: object) -> None:
        checked(*arguments)  # type: ignore[arg-type]
        if not appended:
            appended.append(producer.send("t", b"1", partition=0).get())

    topic.check_offset = check  # type: ignore[method-assign]
    found: list[bytes] = []
    while polled := consumer.poll():
        found += [record.value for records in polled.values() for record in records]
    assert appended
    assert found == [b"0", b"1"]
