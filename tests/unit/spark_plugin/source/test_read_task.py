"""A task reads all planned records or raises an error, even if it runs late."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from spark_plugin.arrow_schema import read_layout, source_schema
from spark_plugin.connections import open_log
from spark_plugin.options import parse_reader_options
from spark_plugin.source.offsets import PartitionRange
from spark_plugin.source.read_plan import plan_reads, read_task
from spark_plugin.source.subscription import subscribed_topics
from tests.logs.empty_log import empty_log
from txlog.client.admin import Admin
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine import connection
from txlog.engine.connection import Connection, open_connection
from txlog.errors import UnknownTopic, UsageError
from txlog.maintenance.maintenance import Maintenance
from txlog.model import TopicPartition
from txlog.settings import ProcessSettings
from txlog.storage.open import open_store
from txlog.topic.records.schema import KAFKA_SCHEMA
from txlog.topic.upkeep.compaction import CompactionLimits, compact


def process(root: Path) -> Connection:
    """A connection of another process."""
    runtime = Runtime()
    return open_connection(open_store(empty_log(root), runtime, {}), runtime)


def put(root: Path, word: bytes) -> None:
    producer = Producer(process(root))
    for number in range(3):
        producer.send("t", word + b"-%d" % number)
    producer.close()


def test_R11_task_reads_no_records_of_recreated_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "log"
    admin = Admin(process(root))
    admin.create_topic("t", 1)
    put(root, b"old")
    options = parse_reader_options({"root": str(root), "subscribe": "t"}, streaming=False)
    topics = subscribed_topics(open_log(options), options)
    (task,) = plan_reads(topics, {TopicPartition("t", 0): PartitionRange(0, 3)}, options)
    admin.delete_topics(["t"])
    admin.create_topic("t", 1)
    put(root, b"new")
    upkeep = Maintenance(process(root), ProcessSettings(file_delete_delay_ms=1))
    assert upkeep.run_once().failures == []
    while upkeep.sweep_due_in_ms() is not None:  # A pass may take less than the delay.
        assert upkeep.run_once().failures == []
    monkeypatch.setattr(connection, "_connections", {})  # An executor is a separate process.
    layout = read_layout(KAFKA_SCHEMA, source_schema(KAFKA_SCHEMA, ("value", "offset")))
    storage = {"durable": False}
    options = replace(options, storage=storage)
    with pytest.raises(UnknownTopic, match="was deleted while it was in use"):
        list(read_task(task, {"t": layout}, options))
    lenient = replace(options, fail_on_data_loss=False)
    assert list(read_task(task, {"t": layout}, lenient)) == []
    connection.connect(str(root), storage_options=storage)
    assert len(connection._connections) == 1, "the topic was looked up with the reader's options"


@pytest.mark.parametrize("rows", [8, 9, 10, 17, 18, 19, 27, 28])
def test_large_batch_passed_to_spark_in_slices_keeps_all_rows(tmp_path: Path, rows: int) -> None:
    """Nine of these rows are about a megabyte."""
    root = empty_log(tmp_path / "log")
    writer = connection.connect(root, process=ProcessSettings(batch_bytes=10_000_000))
    Admin(writer).create_topic("t", 1)
    values = [b"%07d" % number + bytes(100_000) for number in range(rows)]
    Producer(writer).send_batch("t", pa.table({"value": values}), partition=0)
    options = parse_reader_options({"root": root, "subscribe": "t"}, streaming=False)
    topics = subscribed_topics(open_log(options), options)
    (task,) = plan_reads(topics, {TopicPartition("t", 0): PartitionRange(0, rows)}, options)
    layout = read_layout(KAFKA_SCHEMA, source_schema(KAFKA_SCHEMA, ("value", "offset")))
    batches = list(read_task(task, {"t": layout}, options))
    assert [n for batch in batches for n in batch["offset"].to_pylist()] == list(range(rows))
    assert [v for batch in batches for v in batch["value"].to_pylist()] == values
    assert len(batches) == (1 if rows <= 13 else -(-rows // 9))


ALL = ("key", "value", "topic", "partition", "offset", "timestampType")


def read_all(root: str, ranges: dict[TopicPartition, PartitionRange]) -> list[dict[str, object]]:
    """Every row of the tasks for these ranges."""
    options = parse_reader_options({"root": root, "subscribe": "t"}, streaming=False)
    topics = subscribed_topics(open_log(options), options)
    layout = read_layout(KAFKA_SCHEMA, source_schema(KAFKA_SCHEMA, ALL))
    return [
        row
        for task in plan_reads(topics, ranges, options)
        for batch in read_task(task, {"t": layout}, options)
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize(("config", "timestamp_type"), [("CreateTime", 0), ("LogAppendTime", 1)])
def test_row_contains_topic_partition_offset_and_timestamp_type(
    tmp_path: Path, config: str, timestamp_type: int
) -> None:
    root = empty_log(tmp_path / "log")
    writer = connection.connect(root)
    Admin(writer).create_topic("t", 2, config={"message.timestamp.type": config})
    with Producer(writer) as producer:
        for number in range(4):
            producer.send("t", b"v%d" % number, key=b"k", partition=number % 2)
    ranges = {TopicPartition("t", number): PartitionRange(0, 2) for number in range(2)}
    rows = sorted(read_all(root, ranges), key=lambda row: str(row["value"]))
    assert rows == [
        {
            "key": b"k",
            "value": b"v%d" % number,
            "topic": "t",
            "partition": number % 2,
            "offset": number // 2,
            "timestampType": timestamp_type,
        }
        for number in range(4)
    ]


def test_rows_of_compacted_topic_keep_their_stored_offsets(tmp_path: Path) -> None:
    root = empty_log(tmp_path / "log")
    writer = connection.connect(root)
    Admin(writer).create_topic("t", 1, config={"cleanup.policy": "compact"})
    with Producer(writer) as producer:
        for number, key in enumerate([b"a", b"b", b"b", b"c", b"c", b"d"]):
            producer.send("t", b"v%d" % number, key=key)
    compact(writer.cluster.topic("t"), 10**15, CompactionLimits(1000, 1000), force=True)
    rows = read_all(root, {TopicPartition("t", 0): PartitionRange(0, 6)})
    expected = [(0, b"v0"), (2, b"v2"), (4, b"v4"), (5, b"v5")]
    assert [(row["offset"], row["value"]) for row in rows] == expected


def test_task_opens_store_with_storage_options_of_the_reader(tmp_path: Path) -> None:
    root = empty_log(tmp_path / "log")
    writer = connection.connect(root)
    Admin(writer).create_topic("t", 1)
    with Producer(writer) as producer:
        producer.send("t", b"v")
    options = parse_reader_options({"root": root, "subscribe": "t"}, streaming=False)
    topics = subscribed_topics(open_log(options), options)
    (task,) = plan_reads(topics, {TopicPartition("t", 0): PartitionRange(0, 1)}, options)
    layout = read_layout(KAFKA_SCHEMA, source_schema(KAFKA_SCHEMA, ("value",)))
    wrong = replace(options, storage={"no.such.option": "1"})
    with pytest.raises(UsageError, match="no.such.option"):
        list(read_task(task, {"t": layout}, wrong))
