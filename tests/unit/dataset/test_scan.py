"""`txlog.scan` returns the records of one cut, whatever is written, moved or deleted later."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import txlog
from tests.logs.memory_log import MemoryLog
from tests.logs.partly_marked import partly_marked
from txlog.client.admin import Admin
from txlog.dataset.reading import GROUP_BYTES_MIN
from txlog.dataset.scan import Scan
from txlog.engine.producer_config import IN_LOG
from txlog.errors import (
    OffsetOutOfRange,
    UnknownPartition,
    UnknownTopic,
    UnknownTransaction,
    UsageError,
)
from txlog.maintenance.maintenance import Maintenance
from txlog.model import TopicPartition, TxId

U0 = TopicPartition("u", 0)
DAY_MS = 86_400_000


def scan(log: MemoryLog, *topics: str, **options: Any) -> Scan:
    """A scan by another process than the writers'."""
    return txlog.scan(*topics, root=log.process(), **options)


def values(found: Scan) -> list[bytes]:
    column: list[bytes] = found.to_table(["value"])["value"].to_pylist()
    return column


def write(log: MemoryLog, *topics: str, value: bytes = b"x") -> TxId:
    producer = log.producer("writer")
    tx_id = producer.begin_transaction()
    for topic in topics:
        producer.send(topic, value, partition=0)
    producer.commit_transaction()
    producer.close()
    return tx_id


def test_records_and_columns_are_those_of_poll_arrow(log: MemoryLog) -> None:
    producer = log.producer()
    for number in range(6):
        producer.send("t", b"%d" % number, key=b"k", headers=[("h", b"1")], partition=number % 2)
    producer.flush()
    polled = []
    consumer = log.consumer("t")
    while (table := consumer.poll_arrow()) is not None:
        polled.append(table)
    order = [("_partition", "ascending"), ("_offset", "ascending")]
    found = scan(log, "t")
    assert found.to_table().schema.equals(found.schema)
    assert found.schema.names == polled[0].schema.names
    wanted = pa.concat_tables(polled).cast(found.schema).combine_chunks().sort_by(order)
    assert found.to_table().sort_by(order).to_pylist() == wanted.to_pylist()


def test_I11_transaction_with_a_marker_in_one_of_two_topics_is_in_neither(log: MemoryLog) -> None:
    write(log, "t", "u", value=b"first")
    _, (mark_t, mark_u) = partly_marked(log, "t", "u")
    mark_t()
    assert values(scan(log, "t", "u")) == [b"first", b"first"]
    mark_u()
    assert values(scan(log, "t", "u")) == [b"first", b"half", b"first", b"half"]


def test_cut_holds_for_every_use_of_a_scan(log: MemoryLog) -> None:
    write(log, "t", "u")
    held = scan(log, "t", "u")
    before = held.to_table()
    write(log, "t", "u", value=b"later")
    assert len(scan(log, "t", "u").to_table()) == 4
    assert held.to_table().equals(before)
    assert held.count_rows() == 2
    assert held.offsets[U0] == (0, 1)


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_I3_open_and_aborted_records_are_only_in_uncommitted_scans(
    log: MemoryLog, level: str
) -> None:
    write(log, "u", value=b"committed")
    producer = log.producer("p", transaction_records=IN_LOG)
    producer.begin_transaction()
    producer.send("u", b"aborted")
    producer.flush()
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send("u", b"open")
    producer.flush()
    others = [b"aborted", b"open"] if level == "read_uncommitted" else []
    found = scan(log, "u", isolation_level=level)
    assert values(found) == [b"committed", *others]
    assert found.count_rows() == 1 + len(others)


def numbered(log: MemoryLog, count: int = 100) -> None:
    """Records of one batch, a second apart and 1,000 seconds after 1970, then one batch each."""
    stamps = pa.array([(1_000 + n) * 1_000 for n in range(count)]).cast(pa.timestamp("ms", "UTC"))
    table = pa.table({"value": [b"%d" % n for n in range(count)], "_timestamp": stamps})
    log.producer().send_batch("u", table, partition=0)


def offsets(found: Scan) -> list[int]:
    column: list[int] = found.to_table(["_offset"])["_offset"].to_pylist()
    return column


AT_1020 = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=1_020)


@pytest.mark.parametrize(
    ("bounds", "wanted"),
    [
        ({"start_offset": 97}, range(97, 100)),
        ({"start_offset": 3, "end_offset": 5}, range(3, 5)),
        ({"end_offset": 1_000}, range(100)),
        ({"start_offset": 1_000}, range(0)),
        ({"start_time": AT_1020, "end_time": 1_022_000}, range(20, 22)),
        ({"start_time": AT_1020 + timedelta(microseconds=1)}, range(21, 100)),
        ({"end_time": "1970-01-01T00:17:00.001Z"}, range(21)),
        ({"end_time": AT_1020.replace(tzinfo=None)}, range(20)),
        ({"start_time": AT_1020, "start_offset": 25, "end_offset": 27}, range(25, 27)),
        ({"partitions": [0]}, range(100)),
    ],
)
def test_bounds_select_exactly_their_records(
    log: MemoryLog, bounds: dict[str, Any], wanted: range
) -> None:
    numbered(log)
    found = scan(log, "u", **bounds)
    assert offsets(found) == list(wanted)
    assert found.count_rows() == len(wanted)
    assert len(found.to_table(["value"])) == len(wanted)


def test_partitions_limit_the_scan(log: MemoryLog) -> None:
    producer = log.producer()
    for partition in (0, 1):
        producer.send("t", b"%d" % partition, partition=partition)
    producer.flush()
    assert values(scan(log, "t", partitions=[1])) == [b"1"]
    with pytest.raises(UnknownPartition, match="no partition 2; it has 2"):
        scan(log, "t", partitions=[2])


def test_as_of_a_transaction_ends_after_it_in_all_topics(log: MemoryLog) -> None:
    write(log, "t", "u", value=b"1")
    second = write(log, "t", "u", value=b"2")
    log.clock.advance(1_000)
    at_ms = log.clock.wall_ms()
    log.clock.advance(1_000)
    write(log, "t", "u", value=b"3")
    for moment in (second, str(second), at_ms, datetime.fromtimestamp(at_ms / 1_000, UTC)):
        assert values(scan(log, "t", "u", as_of=moment)) == [b"1", b"2", b"1", b"2"]
    with pytest.raises(UnknownTransaction):
        scan(log, "t", as_of="77-0-1")
    with pytest.raises(UsageError, match="leave isolation_level out"):
        scan(log, "t", as_of=second, isolation_level="read_uncommitted")


def maintained(log: MemoryLog) -> set[str]:
    maintenance = Maintenance(log.process())
    done = set()
    for _ in range(4):
        done |= {action.task for action in maintenance.run_once().actions}
        log.clock.advance(2 * DAY_MS)
    return done


@pytest.mark.segments
def test_R19_scan_made_before_batches_are_merged_reads_the_same_records(log: MemoryLog) -> None:
    numbered(log)
    producer = log.producer()
    for number in range(100, 250):
        producer.send("u", b"%d" % number, partition=0).get()
    held = scan(log, "u", start_offset=60)
    Admin(log.process()).delete_records({U0: 60})
    assert {"merging", "vacuum"} <= maintained(log)
    assert values(held) == [b"%d" % number for number in range(60, 250)]
    assert held.count_rows() == 190
    assert offsets(held.filter(ds.field("_offset") == 99)) == [99]


def test_scan_of_deleted_records_says_so_at_every_use(log: MemoryLog) -> None:
    numbered(log)
    held = scan(log, "u")
    other = held._connection
    Admin(other).delete_records({U0: 10})
    for use in (held.to_table, held.count_rows, held.scanner, lambda: list(held.get_fragments())):
        with pytest.raises(OffsetOutOfRange, match="u-0 from offset 0 on were deleted"):
            use()
    assert offsets(scan(log, "u"))[0] == 10
    Admin(other).delete_topics("u")
    with pytest.raises(UnknownTopic, match="deleted"):
        held.to_table()


def test_compacted_records_are_counted_as_they_are_read(log: MemoryLog) -> None:
    log.admin.create_topic("c", 1, config={"cleanup.policy": "compact"})
    producer = log.producer()
    for number in range(40):
        producer.send("c", b"%d" % number, key=b"%d" % (number % 7), partition=0).get()
    log.clock.advance(DAY_MS)
    maintained(log)
    found = scan(log, "c")
    assert len(found.to_table()) < 40
    assert found.count_rows() == len(found.to_table())
    for start in range(0, 40, 3):
        part = scan(log, "c", start_offset=start, end_offset=start + 10)
        assert part.count_rows() == len(part.to_table(["_offset"])) == len(part.to_table())


def test_columns_of_several_topics_are_united_by_name(log: MemoryLog) -> None:
    admin = log.admin
    admin.create_topic(
        "small", 1, pa.schema([pa.field("n", pa.int32(), False), ("a", pa.string())])
    )
    admin.create_topic("large", 1, pa.schema([("n", pa.int64()), ("b", pa.float64())]))
    admin.create_topic("text", 1, pa.schema([("n", pa.string())]))
    producer = log.producer()
    producer.send_batch("small", pa.table({"n": pa.array([1], pa.int32()), "a": ["x"]}))
    producer.send_batch("large", pa.table({"n": [1 << 40], "b": [0.5]}))
    found = scan(log, "small", "large", columns=["n", "b", "a", "_topic"])
    assert found.schema.field("n").type == pa.int64()
    assert found.to_table().to_pylist() == [
        {"n": 1, "b": None, "a": "x", "_topic": "small"},
        {"n": 1 << 40, "b": 0.5, "a": None, "_topic": "large"},
    ]
    with pytest.raises(
        UsageError, match=r"column 'n' is int32 in topic 'small' and string in .*'te"
    ):
        scan(log, "small", "text")


def test_columns_added_later_are_null_in_earlier_records(log: MemoryLog) -> None:
    log.admin.create_topic("typed", 1, pa.schema([("a", pa.int32())]))
    log.producer().send_batch("typed", pa.table({"a": pa.array([1], pa.int32())}))
    log.admin.evolve_schema("typed", pa.schema([("a", pa.int32()), ("b", pa.string())]))
    log.producer().send_batch("typed", pa.table({"a": pa.array([2], pa.int32()), "b": ["x"]}))
    assert scan(log, "typed").to_table(["b", "a"]).to_pydict() == {"b": [None, "x"], "a": [1, 2]}


def test_batches_larger_than_a_group_are_read_whole(log: MemoryLog) -> None:
    producer = log.producer()
    sizes = (1, 2 * GROUP_BYTES_MIN, 10, GROUP_BYTES_MIN, 5)
    for size in sizes:
        producer.send("u", bytes([size % 251]) * size, partition=0).get()
    assert [len(value) for value in values(scan(log, "u"))] == list(sizes)


@pytest.mark.parametrize(
    ("topics", "options", "message"),
    [
        ((), {}, "name the topics"),
        (("t", "t"), {}, "named twice"),
        ((["t"],), {}, "each as a text"),
        (("t",), {"columns": "value"}, "are lists"),
        (("t",), {"columns": []}, "names no column"),
        (("t",), {"columns": ["value", "value"]}, "or one twice"),
        (("t",), {"columns": ["nope"]}, "has no column 'nope'; it has key, value"),
        (("t",), {"isolation_level": "committed"}, "read_committed or read_uncommitted"),
        (("t",), {"start_offset": -1}, "offsets begin at 0"),
        (("t",), {"start_offset": 1.5}, "must be a whole number"),
        (("t",), {"start_offset": 5, "end_offset": 2}, "would end at"),
        (("t",), {"start_time": 1.5}, "start_time is 1.5; give a datetime"),
        (("t",), {"end_time": "soon"}, "is not a time"),
        (("t",), {"as_of": "2013-01-31"}, "may be a day or a transaction"),
        (("t",), {"as_of": 1 << 60}, "in the future"),
        (("nope",), {}, "nope"),
    ],
)
def test_wrong_arguments_are_refused_by_name(
    log: MemoryLog, topics: tuple[Any, ...], options: dict[str, Any], message: str
) -> None:
    producer = log.producer()
    for _ in range(9):
        producer.send("t", b"x", partition=0)
    producer.flush()
    with pytest.raises((UsageError, OffsetOutOfRange), match=message):
        scan(log, *topics, **options)


def test_scan_cannot_be_pickled(log: MemoryLog) -> None:
    with pytest.raises(UsageError, match="another process"):
        pickle.dumps(scan(log, "t"))
