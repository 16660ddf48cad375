"""Rows that a task cannot stage: it fails with the reason, and leaves no segment."""

from collections import Counter

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)

from spark_plugin.options import parse_writer_options
from spark_plugin.sink.sink_topics import Creation, SinkTopics
from spark_plugin.sink.staging import Staging
from tests.logs.memory_log import MemoryLog
from txlog.catalog.cluster import LogMetadata
from txlog.catalog.cluster_file import create_cluster
from txlog.coordinator.events import Participant
from txlog.engine.connection import open_connection
from txlog.errors import (
    IncompatibleSchema,
    InvalidName,
    InvalidRecord,
    NotATxlog,
    TxlogError,
    UnknownPartition,
    UnknownTopic,
)
from txlog.storage.memory import MemoryStore
from txlog.testing.clock import manual_runtime
from txlog.testing.round_trips import RoundTrips

FRAME = StructType().add("n", LongType()).add("p", IntegerType()).add("topic", StringType())
NUMBERS = pa.array(range(4), pa.int64())


@pytest.fixture
def log() -> MemoryLog:
    """A log with a topic `out` of two partitions and one column `n`."""
    log = MemoryLog()
    log.admin.create_topic("out", 2, pa.schema([("n", pa.int64())]))
    return log


def staged(log: MemoryLog, columns: dict[str, pa.Array], **options: str) -> tuple[Participant, ...]:
    """Stage these rows, in one task that may create no topic."""
    options = {"path": "memory://log", "createTopics": "false", **options}
    staging = Staging(log.connection, parse_writer_options(options), FRAME)
    return staging.add_all([pa.record_batch(columns)])


def rows(topic: Participant) -> int:
    """The number of rows in the topic's segments."""
    return sum(batch.row_count for segment in topic.segments for batch in segment.batches)


def stored(log: MemoryLog, topic: Participant) -> list[dict[str, object]]:
    """Every row of the topic's segments, as any reader of Arrow files sees it."""
    files = [log.objects()[segment.path] for segment in topic.segments]
    return [row for file in files for row in pa.ipc.open_file(file).read_all().to_pylist()]


def segments(log: MemoryLog) -> list[str]:
    """Paths of the stored segments."""
    return [found.path for found in log.memory.list_after("topics/") if "/segments/" in found.path]


def test_rows_are_staged_per_topic(log: MemoryLog) -> None:
    log.admin.create_topic("other", 1, pa.schema([("n", pa.int64())]))
    columns = {"n": NUMBERS, "topic": pa.array(["out", "other", "out", "out"])}
    assert [(t.topic, rows(t)) for t in staged(log, columns)] == [("other", 1), ("out", 3)]
    assert len(segments(log)) == 2


@pytest.mark.parametrize(
    ("partition", "error", "said"),
    [
        (None, InvalidRecord, "the partition column 'p' must be .* int32 with 1 nulls"),
        (2, UnknownPartition, "topic 'out' has partitions 0 to 1, not 2"),
        (-1, UnknownPartition, "topic 'out' has partitions 0 to 1, not -1"),
    ],
    ids=["null", "too high", "negative"],
)
def test_null_or_unknown_partition_is_refused(
    log: MemoryLog, partition: int | None, error: type[TxlogError], said: str
) -> None:
    columns = {"n": NUMBERS, "p": pa.array([0, 0, 0, partition], pa.int32())}
    with pytest.raises(error, match=said):
        staged(log, columns, topic="out", partition="p")
    assert segments(log) == []


def partitions(topic: Participant) -> dict[int, int]:
    """The rows in each partition of the topic's segments."""
    batches = [batch for segment in topic.segments for batch in segment.batches]
    return {batch.partition: batch.row_count for batch in batches}


def test_each_partition_of_a_topic_can_be_named_by_its_rows(log: MemoryLog) -> None:
    columns = {"n": NUMBERS, "p": pa.array([0, 1, 1, 1], pa.int32())}
    (found,) = staged(log, columns, topic="out", partition="p")
    assert partitions(found) == {0: 1, 1: 3}
    assert [row["n"] for row in stored(log, found)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("topic", "error", "said"),
    [
        (None, InvalidRecord, "a row has null in the column 'topic'"),
        ("../up", InvalidName, "../up"),
        ("nowhere", UnknownTopic, "there is no topic 'nowhere'"),
    ],
    ids=["null", "path", "unknown"],
)
def test_null_invalid_or_unknown_topic_is_refused(
    log: MemoryLog, topic: str | None, error: type[TxlogError], said: str
) -> None:
    columns = {"n": NUMBERS, "topic": pa.array(["out", "out", "out", topic])}
    with pytest.raises(error, match=said):
        staged(log, columns)
    assert segments(log) == []


def test_column_type_that_differs_from_topic_is_refused(log: MemoryLog) -> None:
    said = "column 'n' is string in the batch and int64 in the topic"
    with pytest.raises(InvalidRecord, match=said):
        staged(log, {"n": NUMBERS.cast(pa.string())}, topic="out")
    assert segments(log) == []


def test_key_of_a_narrower_type_is_in_the_partition_of_the_topics_type(log: MemoryLog) -> None:
    log.admin.create_topic("keyed", 50, pa.schema([("n", pa.int64())]), {"key.column": "n"})
    used = [
        [batch.partition for segment in topic.segments for batch in segment.batches]
        for kind in (pa.int32(), pa.int64())
        for topic in staged(log, {"n": pa.array([5], kind)}, topic="keyed")
    ]
    assert used[0] == used[1]


RECORD = (
    StructType()
    .add("value", BinaryType())
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestampType", IntegerType())
)


@pytest.mark.parametrize("topic", ["copy", None], ids=["option", "column"])
def test_kafka_shaped_topic_ignores_source_metadata_columns(
    log: MemoryLog, topic: str | None
) -> None:
    """As in Kafka's sink, the option `topic` overrides the column `topic`, and the column
    `partition` says where the row goes.
    """
    log.admin.create_topic("copy", 2)
    log.admin.create_topic("old", 2)
    row = pa.record_batch(
        {
            "value": pa.array([b"v"]),
            "topic": ["old"],
            "partition": pa.array([1], pa.int32()),
            "offset": pa.array([7], pa.int64()),
            "timestampType": pa.array([0], pa.int32()),
        }
    )
    given = {"path": "memory://log"} | ({"topic": topic} if topic else {})
    (found,) = Staging(log.connection, parse_writer_options(given), RECORD).add_all([row])
    assert (found.topic, rows(found)) == (topic or "old", 1)
    assert [batch.partition for segment in found.segments for batch in segment.batches] == [1]
    (record,) = stored(log, found)
    assert record.keys() == {"key", "value", "headers", "_timestamp"}
    assert (record["key"], record["value"], record["headers"]) == (None, b"v", None)


@pytest.mark.parametrize(
    ("kind", "value"),
    [(StringType(), "2026-01-01T00:00:00Z"), (DoubleType(), 1.5), (IntegerType(), 1)],
)
def test_timestamp_column_of_wrong_type_is_refused_for_kafka_shaped_topic(
    log: MemoryLog, kind: DataType, value: object
) -> None:
    """By the driver; by the task if each row names its topic."""
    log.admin.create_topic("copy", 1)
    frame = StructType().add("value", BinaryType()).add("timestamp", kind)
    options = parse_writer_options({"path": "memory://log", "topic": "copy"})
    with pytest.raises(IncompatibleSchema, match="it is the record's time; cast it to timestamp"):
        SinkTopics(log.connection, options, frame, Creation.NONE).prepared()
    frame = frame.add("topic", StringType())
    columns = to_arrow_schema(frame, timezone="UTC")
    row = pa.RecordBatch.from_pylist(
        [{"value": b"v", "timestamp": value, "topic": "copy"}], columns
    )
    options = parse_writer_options({"path": "memory://log"})
    with pytest.raises(InvalidRecord, match="'timestamp' .* cannot be the records' time"):
        Staging(log.connection, options, frame).add_all([row])
    assert segments(log) == []


@pytest.mark.parametrize(
    ("column", "time_ms"),
    [
        (pa.array([123_456_789], pa.timestamp("us", "UTC")), 123_456),
        (pa.array([123_456_789_000], pa.timestamp("ns")), 123_456),
        (pa.array([123_456], pa.int64()), 123_456),
        (pa.array([0], pa.date32()), 0),
    ],
    ids=["Spark's timestamp", "nanoseconds", "milliseconds", "date"],
)
def test_timestamp_column_is_the_time_of_a_kafka_shaped_record(
    log: MemoryLog, column: pa.Array, time_ms: int
) -> None:
    log.admin.create_topic("copy", 1)
    row = pa.record_batch({"value": pa.array([b"v"]), "timestamp": column})
    options = parse_writer_options({"path": "memory://log", "topic": "copy"})
    frame = StructType().add("value", BinaryType()).add("timestamp", LongType())
    (found,) = Staging(log.connection, options, frame).add_all([row])
    (record,) = stored(log, found)
    assert record["_timestamp"].timestamp() * 1000 == time_ms


def test_key_chooses_the_partition_as_for_a_producer_where_the_partition_column_is_null(
    log: MemoryLog,
) -> None:
    log.admin.create_topic("keyed", 50)
    keys = [b"%d" % number for number in range(8)]
    producer = log.producer()
    sent = [producer.send("keyed", b"v", key=key) for key in keys]
    producer.flush()
    chosen = {key: one.get().partition for key, one in zip(keys, sent, strict=True)}
    named = {key: 7 if number % 2 else None for number, key in enumerate(keys)}
    row = pa.record_batch(
        {
            "key": pa.array(keys),
            "value": pa.array(keys),
            "partition": pa.array(named.values(), pa.int32()),
        }
    )
    options = parse_writer_options({"path": "memory://log", "topic": "keyed"})
    (found,) = Staging(log.connection, options, RECORD).add_all([row])
    wanted = [chosen[key] if given is None else given for key, given in named.items()]
    assert partitions(found) == dict(Counter(wanted))


def test_offset_column_of_wrong_type_is_refused_for_kafka_shaped_topic(log: MemoryLog) -> None:
    log.admin.create_topic("copy", 1)
    row = pa.record_batch({"value": pa.array([b"v"]), "offset": ["north"]})
    frame = StructType().add("value", BinaryType()).add("offset", StringType())
    options = parse_writer_options({"path": "memory://log", "topic": "copy"})
    with pytest.raises(InvalidRecord, match="'offset'"):
        Staging(log.connection, options, frame).add_all([row])
    assert segments(log) == []


@pytest.mark.parametrize("there", ["another log", "no log", "the log"])
def test_task_with_another_endpoint_than_the_driver_is_refused(log: MemoryLog, there: str) -> None:
    """The endpoint may come from each host's environment, and buckets of one name are anywhere.
    The task has the driver's metadata, and makes no other request than its uploads."""
    driver = log.connection.cluster
    known = LogMetadata.of(driver, [driver.present_topic("out")])
    store = MemoryStore(manual_runtime(7))
    if there == "another log":
        create_cluster(store, manual_runtime(7))
    rounds = RoundTrips(log.memory if there == "the log" else store)
    task = open_connection(rounds.store, rounds.runtime, cluster_file=known.file)
    options = parse_writer_options({"path": "s3://bucket/log", "topic": "out"})
    staging = Staging(task, options, FRAME, metadata=known.topics)
    batch = pa.record_batch({"n": NUMBERS})
    if there == "the log":
        assert sum(map(rows, staging.add_all([batch]))) == 4
        return
    with pytest.raises(NotATxlog, match="is there now" if there == "another log" else "no log now"):
        staging.add_all([batch])
