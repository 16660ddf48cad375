"""Reading: poll, iteration, Arrow tables, limits, new partitions, and errors while reading."""

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import failing, unavailable
from txlog.client.consumer.consumer import Consumer
from txlog.errors import (
    CorruptData,
    IllegalTransition,
    InvalidConfig,
    InvalidName,
    StoreUnavailable,
    UnknownPartition,
    UnknownTopic,
)
from txlog.model import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def fill(log: MemoryLog, topic: str, count: int, *, flushes: int = 1) -> None:
    """Write values 0, 1, ...; record n goes to partition n modulo the number of partitions."""
    producer = log.producer()
    partitions = len(producer.partitions_for(topic))
    for number in range(count):
        producer.send(topic, b"%d" % number, partition=number % partitions)
        if (number + 1) % (count // flushes) == 0:
            producer.flush()
    producer.close()


def reader(log: MemoryLog, *topics: str, **options: object) -> Consumer:
    """A consumer of the process whose store follows a script."""
    return Consumer(
        *topics,
        root=log.connection,
        **{"auto_offset_reset": "earliest", "enable_auto_commit": False, **options},
    )


# Poll.


def test_poll_returns_each_record_once_and_in_order(log: MemoryLog) -> None:
    fill(log, "t", 100, flushes=10)
    consumer = reader(log, "t")
    found: dict[TopicPartition, list[bytes]] = {T0: [], T1: []}
    while polled := consumer.poll(max_records=7):
        for where, records in polled.items():
            found[where] += [record.value for record in records]
    assert found[T0] == [b"%d" % n for n in range(0, 100, 2)]
    assert found[T1] == [b"%d" % n for n in range(1, 100, 2)]
    assert (consumer.position(T0), consumer.position(T1)) == (50, 50)


@pytest.mark.parametrize("limit", [1, 3, 500])
def test_poll_returns_at_most_max_records(log: MemoryLog, limit: int) -> None:
    fill(log, "t", 20)
    by_argument = reader(log, "t").poll(max_records=limit)
    by_configuration = reader(log, "t", max_poll_records=limit).poll()
    for polled in (by_argument, by_configuration):
        assert sum(map(len, polled.values())) == min(limit, 20)


def test_polls_rotate_over_partitions(log: MemoryLog) -> None:
    fill(log, "t", 100)
    consumer = reader(log, "t")
    first = {next(iter(consumer.poll(max_records=10))) for _ in range(2)}
    assert first == {T0, T1}


def test_fetch_max_bytes_limits_what_one_poll_reads(log: MemoryLog) -> None:
    producer = log.producer()
    for _ in range(6):
        producer.send("u", bytes(10_000)).get()
    consumer = reader(log, "u", fetch_max_bytes=25_000)
    sizes = [len(consumer.poll()[U0]) for _ in range(2)]
    assert sum(sizes) <= 6
    assert sizes[0] == 3, "a batch that begins below the limit is read whole"
    tiny = reader(log, "u", fetch_max_bytes=1)
    assert [len(tiny.poll()[U0]) for _ in range(3)] == [1, 1, 1], "one batch at least"


def test_fetch_max_bytes_counts_small_batches_as_stored(log: MemoryLog) -> None:
    """In the store, a batch of one small record is several times as large as in memory."""
    producer = log.producer()
    for _ in range(12):
        producer.send("u", b"x").get()
    (length,) = {row.length for row in log.connection.cluster.topic("u").state.tail}
    consumer = reader(log, "u", fetch_max_bytes=4 * length)
    assert [len(consumer.poll()[U0]) for _ in range(3)] == [4, 4, 4]


def test_poll_returns_at_first_record_or_at_timeout(log: MemoryLog) -> None:
    consumer = reader(log, "u")
    before_ms = log.clock.now_ms
    assert consumer.poll(timeout_ms=500) == {}
    assert log.clock.now_ms - before_ms == 500
    fill(log, "u", 1)
    assert list(consumer.poll(timeout_ms=10_000)) == [U0]
    assert log.clock.now_ms - before_ms < 600


@pytest.mark.parametrize("limit", [0, -1])
def test_max_records_below_one_is_refused(log: MemoryLog, limit: int) -> None:
    consumer = reader(log, "u")
    for poll in (consumer.poll, consumer.poll_arrow):
        with pytest.raises(InvalidConfig, match="must be at least 1"):
            poll(max_records=limit)


def test_poll_requires_assignment_and_open_consumer(log: MemoryLog) -> None:
    consumer = reader(log)
    with pytest.raises(IllegalTransition, match=r"poll\(\) needs subscribe\(\) or assign\(\)"):
        consumer.poll()
    consumer.close()
    consumer.close()
    for call in (consumer.poll, consumer.poll_arrow, lambda: consumer.subscribe("u")):
        with pytest.raises(IllegalTransition, match="this consumer is closed"):
            call()


# Subscribing and assigning.


def test_subscribe_assigns_every_partition_of_its_topics(log: MemoryLog) -> None:
    consumer = reader(log, "t", "u")
    assert consumer.assignment() == {T0, T1, U0}
    assert consumer.subscription() == {"t", "u"}
    consumer.subscribe("u")
    assert (consumer.assignment(), consumer.subscription()) == ({U0}, {"u"})
    consumer.unsubscribe()
    assert (consumer.assignment(), consumer.subscription()) == (set(), set())


def test_assign_reads_only_the_given_partitions(log: MemoryLog) -> None:
    fill(log, "t", 4)
    consumer = reader(log)
    consumer.assign([T1])
    assert list(consumer.poll()) == [T1]
    assert (consumer.assignment(), consumer.subscription()) == ({T1}, set())
    log.admin.create_partitions("t", 3)
    consumer.poll()
    assert consumer.assignment() == {T1}


def test_invalid_topic_or_partition_is_refused_and_assignment_is_kept(log: MemoryLog) -> None:
    consumer = reader(log, "u")
    with pytest.raises(InvalidName):
        consumer.subscribe(["t", "../t"])
    with pytest.raises(InvalidName):
        consumer.assign([T0, TopicPartition("", 0)])
    with pytest.raises(UnknownPartition, match="numbered from 0"):
        consumer.assign([TopicPartition("t", -1)])
    assert consumer.assignment() == {U0}, "the consumer reads on as before"


def test_added_partitions_of_subscribed_topic_are_read_from_start(
    log: MemoryLog,
) -> None:
    consumer = log.consumer("t", auto_offset_reset="latest")
    log.admin.create_partitions("t", 4)
    producer = log.producer()
    for partition in range(4):
        producer.send("t", b"%d" % partition, partition=partition)
    producer.flush()
    found = consumer.poll()
    assert sorted(where.partition for where in found) == [0, 1, 2, 3]
    assert consumer.assignment() == {TopicPartition("t", p) for p in range(4)}


def test_new_subscription_keeps_positions_of_retained_partitions(log: MemoryLog) -> None:
    fill(log, "t", 10)
    consumer = reader(log, "t")
    consumer.seek(T0, 3)
    consumer.subscribe(["t", "u"])
    assert consumer.position(T0) == 3


def test_R11_recreated_topic_is_read_from_its_start(log: MemoryLog) -> None:
    fill(log, "t", 10)
    consumer = reader(log, "t", group_id="g")
    assert sum(map(len, consumer.poll().values())) == 10
    consumer.commit()
    log.admin.delete_topics(["t"])
    with pytest.raises(UnknownTopic):
        consumer.poll()
    log.admin.create_topic("t", 3)
    log.producer().send("t", b"new", partition=0).get()
    (found,) = consumer.poll().values()
    assert [(record.offset, record.value) for record in found] == [(0, b"new")]
    assert len(consumer.assignment()) == 3
    consumer.commit()
    assert log.consumer("t", group_id="g").committed(T0) == 1
    log.check()


def test_R11_assigned_partition_missing_from_recreated_topic_raises(log: MemoryLog) -> None:
    consumer = reader(log)
    consumer.assign([T1])
    log.admin.delete_topics(["t"])
    log.admin.create_topic("t", 1)
    with pytest.raises(UnknownPartition, match="partitions 0 to 0, not 1"):
        consumer.poll()


# Iteration.


def test_iteration_yields_records_across_polls(log: MemoryLog) -> None:
    fill(log, "u", 10, flushes=5)
    values = []
    for record in reader(log, "u", max_poll_records=3):
        values.append(record.value)
        if len(values) == 10:
            break
    assert values == [b"%d" % n for n in range(10)]


def test_records_not_yielded_before_break_are_returned_later(log: MemoryLog) -> None:
    fill(log, "t", 20)
    consumer = reader(log, "t")
    seen = []
    for stop_after in (3, 8):
        for number, record in enumerate(consumer, 1):
            seen.append(record.value)
            if number == stop_after:
                break
    while polled := consumer.poll():
        seen += [record.value for records in polled.values() for record in records]
    assert sorted(seen, key=int) == [b"%d" % n for n in range(20)]


def test_commit_in_loop_covers_records_up_to_current_one(log: MemoryLog) -> None:
    fill(log, "u", 10)
    consumer = reader(log, "u", group_id="g")
    for record in consumer:
        consumer.commit()
        assert consumer.position(U0) == record.offset + 1
        assert consumer.committed(U0) == record.offset + 1
        if record.offset == 4:
            break
    consumer.close()
    (found,) = log.consumer("u", group_id="g").poll().values()
    assert [record.offset for record in found] == [5, 6, 7, 8, 9]


def test_close_in_loop_commits_yielded_records(log: MemoryLog) -> None:
    fill(log, "u", 10)
    consumer = reader(log, "u", group_id="g", enable_auto_commit=True)
    seen = [record.offset for record in consumer if record.offset < 3 or consumer.close()]
    assert seen == [0, 1, 2]
    assert log.consumer("u", group_id="g").committed(U0) == 4


def test_seek_in_loop_takes_effect(log: MemoryLog) -> None:
    fill(log, "u", 10)
    consumer = reader(log, "u")
    seen = []
    for record in consumer:
        seen.append(record.offset)
        if len(seen) == 3:
            consumer.seek(U0, 8)
        if record.offset == 9:
            break
    assert seen == [0, 1, 2, 8, 9]


# Arrow.


def test_poll_arrow_returns_topic_columns_and_record_metadata(log: MemoryLog) -> None:
    producer = log.producer()
    producer.send("t", b"v", b"k", [("h", b"1")], partition=1, timestamp_ms=5)
    producer.send("t", None, None, partition=1, timestamp_ms=6)
    producer.flush()
    table = reader(log, "t").poll_arrow()
    assert table is not None
    assert table.column_names == [
        "key", "value", "headers", "_topic", "_partition", "_offset", "_timestamp",
    ]  # fmt: skip
    assert table.schema.field("_timestamp").type == pa.timestamp("ms", "UTC")
    assert table.schema.field("_offset").type == pa.int64()
    rows = table.set_column(6, "_timestamp", table["_timestamp"].cast(pa.int64())).to_pylist()
    assert rows == [
        {
            "key": b"k", "value": b"v", "headers": [{"key": "h", "value": b"1"}],
            "_topic": "t", "_partition": 1, "_offset": 0, "_timestamp": 5,
        },
        {
            "key": None, "value": None, "headers": None,
            "_topic": "t", "_partition": 1, "_offset": 1, "_timestamp": 6,
        },
    ]  # fmt: skip


def test_poll_arrow_returns_one_topic_per_table_and_covers_all(log: MemoryLog) -> None:
    log.admin.create_topic("typed", 2, pa.schema([("id", pa.int64())]))
    fill(log, "t", 10)
    log.producer().send_batch("typed", pa.table({"id": list(range(6))}), key="id")
    consumer = reader(log, "t", "typed")
    counts: dict[str, int] = {"t": 0, "typed": 0}
    while (table := consumer.poll_arrow(max_records=4)) is not None:
        (topic,) = set(table["_topic"].to_pylist())
        assert 1 <= table.num_rows <= 4
        counts[topic] += table.num_rows
    assert counts == {"t": 10, "typed": 6}
    assert consumer.poll_arrow() is None


@pytest.mark.in_log
def test_poll_arrow_at_read_committed_omits_aborted_records(log: MemoryLog) -> None:
    producer = log.producer("a")
    for ending in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.send("u", ending.__name__.encode()).get()
        ending()
    table = reader(log, "u", isolation_level="read_committed").poll_arrow()
    assert table is not None
    assert table.select(["value", "_offset"]).to_pylist() == [
        {"value": b"commit_transaction", "_offset": 1}
    ]


def test_poll_arrow_returns_records_across_schema_change(log: MemoryLog) -> None:
    log.admin.create_topic("typed", 1, pa.schema([("id", pa.int32())]))
    producer = log.producer()
    producer.send_batch("typed", pa.table({"id": pa.array([1, 2, 3], pa.int32())}))
    consumer = reader(log, "typed")
    assert consumer.poll_arrow(max_records=1) is not None
    log.admin.evolve_schema("typed", pa.schema([("id", pa.int64()), ("name", pa.string())]))
    producer.send("typed", {"id": 4, "name": "x"}).get()
    consumer.poll_arrow(max_records=1)
    table = consumer.poll_arrow()
    assert table is not None
    rest = consumer.poll_arrow()
    tables = [table] if rest is None else [table, rest]
    rows = pa.concat_tables(tables, promote_options="default").select(["id", "name"]).to_pylist()
    assert rows == [{"id": 3, "name": None}, {"id": 4, "name": "x"}]


def test_polled_table_can_be_sent_to_another_topic(log: MemoryLog) -> None:
    fill(log, "t", 10)
    producer = log.producer()
    consumer = reader(log, "t")
    while (table := consumer.poll_arrow()) is not None:
        producer.send_batch("u", table.drop_columns(["_topic", "_partition", "_offset"]))
    assert sorted(log.values("u"), key=int) == [b"%d" % n for n in range(10)]


# Pause.


def test_paused_partition_is_not_read_until_resumed(log: MemoryLog) -> None:
    fill(log, "t", 10)
    consumer = reader(log, "t")
    consumer.pause(T0)
    assert consumer.paused() == {T0}
    assert list(consumer.poll()) == [T1]
    assert consumer.poll() == {}
    assert consumer.position(T0) == 0
    consumer.resume(T0)
    assert [record.offset for record in consumer.poll()[T0]] == [0, 1, 2, 3, 4]
    consumer.pause(T1)
    consumer.assign([T0])
    assert consumer.paused() == set(), "what is not assigned is not paused either"
    for call in (consumer.pause, consumer.resume):
        with pytest.raises(IllegalTransition, match="t-1 is not assigned to this consumer"):
            call(T1)


# Errors while reading: no record is skipped or returned twice.


@pytest.mark.parametrize("poll", ["poll", "poll_arrow"])
@pytest.mark.parametrize("fails_at", range(4))
def test_store_failure_during_poll_neither_loses_nor_repeats_records(
    log: MemoryLog, fails_at: int, poll: str
) -> None:
    fill(log, "t", 16, flushes=4)
    consumer = reader(log, "t")
    log.store.on("get_ranges", "segments", unavailable)
    log.store.on("get_ranges", "segments", lambda call: call(), times=fails_at)
    seen: list[bytes] = []
    failures = 0
    while len(seen) < 16 and failures < 3:
        try:
            seen += _values(consumer, poll)
        except StoreUnavailable:
            failures += 1
    assert sorted(seen, key=int) == [b"%d" % n for n in range(16)]
    assert (consumer.position(T0), consumer.position(T1)) == (8, 8)


def _values(consumer: Consumer, poll: str) -> list[bytes]:
    if poll == "poll_arrow":
        table = consumer.poll_arrow(max_records=3)
        return [] if table is None else table["value"].to_pylist()
    return [r.value for records in consumer.poll(max_records=3).values() for r in records]


@pytest.mark.segments
def test_damaged_segment_blocks_only_its_partition(log: MemoryLog) -> None:
    producer = log.producer()
    producer.send("t", b"0", partition=0).get()
    (damaged,) = [path for path in log.objects() if path.endswith(".arrow")]
    for number in range(3):
        producer.send("t", b"%d" % number, partition=1).get()
    error = CorruptData(f"{damaged} is damaged.", path=damaged)
    log.store.on("get_ranges", damaged, failing(error), times=100)
    consumer = reader(log, "t")
    seen, errors = [], 0
    for _ in range(6):
        try:
            seen += [r.value for records in consumer.poll(max_records=1).values() for r in records]
        except CorruptData:
            errors += 1
    assert seen == [b"0", b"1", b"2"]
    assert errors >= 2, "the error is not swallowed"
    assert consumer.position(T0) == 0, "nothing is skipped (I15)"
