"""A planned batch reads its ranges or raises an error, whatever this process has read before.

A process that lags behind a pruned journal does not see at once that there is more (rule R15), and
Spark keeps its Python processes.
"""

import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from spark_plugin.arrow_schema import ReadLayout, read_layout, source_schema
from spark_plugin.connections import KeptStore
from spark_plugin.options import ReaderOptions
from spark_plugin.source.offsets import PartitionRange
from spark_plugin.source.read_plan import (
    PLANNED_BYTES_MAX,
    ReadTask,
    plan_reads,
    read_from,
    read_task,
)
from tests.logs.memory_log import SEGMENTS, MemoryLog
from tests.stores.scripted_store import unavailable
from txlog.client.admin import Admin
from txlog.client.producer.producer import Producer
from txlog.engine.connection import Connection, connect
from txlog.errors import OffsetOutOfRange
from txlog.fan_out import SerialFanOut
from txlog.model import IsolationLevel, TopicPartition
from txlog.topic.events import AdvanceLogStart, EvolveSchema, SealIndex
from txlog.topic.records.schema import KAFKA_SCHEMA, encode_schema
from txlog.topic.upkeep.merging import merge_segments
from txlog.topic.upkeep.moving import move_records

WHERE = TopicPartition("t", 0)
OPTIONS = ReaderOptions("memory://log", subscribe=("t",))


@pytest.fixture
def log() -> MemoryLog:
    """A log with an empty topic, for records in the log while their transaction is open."""
    log = MemoryLog(SEGMENTS, transaction_records="in.log")
    log.admin.create_topic("t", 1)
    return log


def planned(process: Connection, wanted: PartitionRange, options: ReaderOptions = OPTIONS) -> int:
    """The number of records that the tasks of that range read."""
    topic = process.cluster.topic("t")
    tasks = plan_reads({"t": topic}, {WHERE: wanted}, options)
    return sum(row.record_count for task in tasks for span in task.spans for row in span.batches)


def put(log: MemoryLog, count: int) -> None:
    """Send records, each in an entry of its own."""
    producer = log.producer()
    for number in range(count):
        producer.send("t", b"%d" % number)
        producer.flush()


@pytest.mark.parametrize("fails", [True, False])
def test_R15_process_behind_pruned_journal_plans_the_whole_batch(
    log: MemoryLog, fails: bool
) -> None:
    stale = log.process()
    assert stale.cluster.present_topic("t").state.end_offset(0) == 0
    put(log, 6)
    log.connection.cluster.topic("t").journal.prune(0)
    assert stale.cluster.present_topic("t").state.end_offset(0) == 0, "it lags"
    options = replace(OPTIONS, fail_on_data_loss=fails)
    assert planned(stale, PartitionRange(0, 6), options) == 6


def test_R15_stale_process_plans_records_of_a_since_committed_transaction(log: MemoryLog) -> None:
    producer = log.producer("p")
    producer.begin_transaction()
    producer.send("t", b"in a transaction")
    producer.flush()
    stale = log.process()
    assert stale.cluster.present_topic("t").state.last_stable_offset(0) == 0
    producer.commit_transaction()
    log.connection.cluster.topic("t").journal.prune(0)
    assert stale.cluster.present_topic("t").state.last_stable_offset(0) == 0, "it lags"
    assert planned(stale, PartitionRange(0, 1)) == 1


def test_R15_stale_process_plans_records_of_a_since_added_partition(log: MemoryLog) -> None:
    stale = log.process()
    topic = stale.cluster.present_topic("t")
    log.admin.create_partitions("t", 2)
    log.producer().send("t", b"there", partition=1).get()
    log.connection.cluster.topic("t").journal.prune(0)
    assert len(stale.cluster.present_topic("t").state.partitions) == 1, "it lags"
    tasks = plan_reads({"t": topic}, {TopicPartition("t", 1): PartitionRange(0, 1)}, OPTIONS)
    assert [span.batches[0].record_count for task in tasks for span in task.spans] == [1]


def test_task_carries_the_newest_schema_and_those_of_its_batches(log: MemoryLog) -> None:
    put(log, 1)
    topic = log.connection.cluster.topic("t")
    for number in range(4):
        schema = topic.schema().append(pa.field(f"added{number}", pa.int64()))
        topic.execute(EvolveSchema(encode_schema(schema), number))
        if number == 1:
            log.producer().send("t", {"value": b"in the third schema"}).get()
    for wanted, ids in ((PartitionRange(0, 1), [0, 4]), (PartitionRange(0, 2), [0, 2, 4])):
        (task,) = plan_reads({"t": topic}, {WHERE: wanted}, OPTIONS)
        assert list(task.schemas["t"]) == ids
        assert task.schemas["t"].items() <= topic.state.schemas.items()


def test_I16_task_carries_the_memory_that_a_batch_of_its_topic_can_take(log: MemoryLog) -> None:
    put(log, 1)
    limits = []
    for size in (100 << 20, 1_000):
        log.admin.alter_topic_config("t", {"max.message.bytes": size})
        topic = log.process().cluster.topic("t")
        topic.catch_up()
        (task,) = plan_reads({"t": topic}, {WHERE: PartitionRange(0, 1)}, OPTIONS)
        limits += [span.batch_bytes_max for span in task.spans]
    assert limits == [200 << 20] * 2


def test_range_above_end_of_restored_log_is_refused_or_skipped(log: MemoryLog) -> None:
    put(log, 3)
    for where in (PartitionRange(2, 5), PartitionRange(5, 7)):
        with pytest.raises(OffsetOutOfRange, match="or the log was restored"):
            planned(log.process(), where)
    lenient = replace(OPTIONS, fail_on_data_loss=False)
    assert planned(log.process(), PartitionRange(2, 5), lenient) == 1
    assert planned(log.process(), PartitionRange(5, 7), lenient) == 0


@pytest.mark.parametrize("fails", [True, False])
def test_I3_open_transaction_in_range_is_refused_at_read_committed(
    log: MemoryLog, fails: bool
) -> None:
    """This happens after a batch that was planned at read_uncommitted."""
    put(log, 1)
    producer = log.producer("p")
    producer.begin_transaction()
    producer.send("t", b"open")
    producer.flush()
    options = replace(OPTIONS, fail_on_data_loss=fails)
    with pytest.raises(OffsetOutOfRange, match="a transaction that begins at 1 is still open"):
        planned(log.process(), PartitionRange(0, 2), options)
    dirty = replace(options, isolation_level=IsolationLevel.READ_UNCOMMITTED)
    assert planned(log.process(), PartitionRange(0, 2), dirty) == 2


def test_empty_range_is_valid_from_log_start_to_log_end(log: MemoryLog) -> None:
    put(log, 3)
    log.connection.cluster.topic("t").execute(AdvanceLogStart({0: 1}))
    for offset in (1, 2, 3):
        assert planned(log.process(), PartitionRange(offset, offset)) == 0


def test_I3_aborted_records_are_not_planned_at_read_committed(log: MemoryLog) -> None:
    producer = log.producer("p")
    producer.begin_transaction()
    producer.send("t", b"aborted")
    producer.flush()
    producer.abort_transaction()
    put(log, 1)
    assert planned(log.process(), PartitionRange(0, 2)) == 1
    dirty = replace(OPTIONS, isolation_level=IsolationLevel.READ_UNCOMMITTED)
    assert planned(log.process(), PartitionRange(0, 2), dirty) == 2


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({}, 1),
        ({"min_partitions": 1}, 1),
        ({"min_partitions": 3}, 3),
        ({"bytes_per_task": 1}, 4),
    ],
)
def test_range_is_one_task_unless_options_require_more(
    log: MemoryLog, options: dict[str, int], tasks: int
) -> None:
    put(log, 4)
    topic = log.connection.cluster.topic("t")
    asked = ReaderOptions("memory://log", subscribe=("t",), **options)  # type: ignore[arg-type]
    assert len(plan_reads({"t": topic}, {WHERE: PartitionRange(0, 4)}, asked)) == tasks


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize(("log_start", "left"), [(6, 4), (7, 4), (10, 0)])
def test_R19_task_reads_its_range_from_merged_batch_or_applies_fail_on_data_loss(
    tmp_path: Path, log_start: int, left: int, fails: bool
) -> None:
    """A deletion has cut the batch in which the range begins; later it was merged with others.

    Without `failOnDataLoss` the task skips missing records. Merging keeps a stored batch whole, so
    its planned records are returned although their offsets are now below the log start.
    """
    connection = connect(str(tmp_path), create=True, log_config={"entry.records.max.bytes": 0})
    Admin(connection).create_topic("t", 1)
    producer = Producer(connection)
    producer.send_batch("t", pa.table({"value": [b"%d" % n for n in range(10)]}), partition=0)
    options = replace(OPTIONS, root=str(tmp_path), fail_on_data_loss=fails)
    topic = connection.cluster.topic("t")
    topic.catch_up()
    (task,) = plan_reads({"t": topic}, {WHERE: PartitionRange(6, 10)}, options)
    ((row,),) = [span.batches for span in task.spans]
    topic.execute(AdvanceLogStart({0: log_start}))
    for _ in range(10):
        producer.send("t", b"more", partition=0).get()
    topic.execute(SealIndex())
    assert merge_segments(topic, 1_000_000).segments_before == 11 - (log_start == 10)
    topic.store.delete(row.segment)
    layout = ReadLayout(pa.schema([("offset", pa.int64())]), (), is_kafka=True)
    if log_start == 6 or not fails:
        found = [batch.to_pydict() for batch in read_task(task, {"t": layout}, options)]
        assert [offset for batch in found for offset in batch["offset"]] == [6, 7, 8, 9][:left]
        return
    with pytest.raises(OffsetOutOfRange, match="offset 6 of t-0.*failOnDataLoss=false"):
        list(read_task(task, {"t": layout}, options))


# Records that a task gets with its plan.


def far_log(*sizes: int) -> MemoryLog:
    """A log in a bucket, and a record of each size in an entry of its own."""
    log = MemoryLog()
    log.admin.create_topic("t", 1)
    producer = log.producer()
    for number, size in enumerate(sizes):
        producer.send("t", bytes([number]) * size).get()
    return log


def read_back(log: MemoryLog, task: ReadTask) -> list[int]:
    """The first byte of each record, as a task in another process reads them."""
    kept = KeptStore(log.store, SerialFanOut())
    layouts = {"t": read_layout(KAFKA_SCHEMA, source_schema(KAFKA_SCHEMA, ("value",)))}
    carried = pickle.loads(pickle.dumps(task))
    found = [batch["value"].to_pylist() for batch in read_from(kept, carried, layouts, OPTIONS)]
    return [value[0] for values in found for value in values]


def test_task_of_records_in_entries_that_were_read_makes_no_request() -> None:
    log = far_log(100, 100, 100)
    topic = log.process(log.store).cluster.present_topic("t")
    (task,) = plan_reads({"t": topic}, {WHERE: PartitionRange(1, 3)}, OPTIONS)
    asked = log.store.on("get|get_ranges", "", unavailable, times=100)
    assert read_back(log, task) == [1, 2]
    assert asked.met == 0


def test_I16_task_requests_what_is_too_much_for_its_plan() -> None:
    log = far_log(40_000, 40_000, 100)
    topic = log.process(log.store).cluster.present_topic("t")
    (task,) = plan_reads({"t": topic}, {WHERE: PartitionRange(0, 3)}, OPTIONS)
    assert 40_000 < len(pickle.dumps(task)) < 40_000 + PLANNED_BYTES_MAX // 2
    asked = log.store.on("get_ranges", "/entries/", lambda call: call(), times=100)
    assert read_back(log, task) == [0, 1, 2]
    assert asked.met == 1


def test_task_requests_records_that_were_moved_out_of_entries() -> None:
    log = far_log(100, 100)
    connection = log.process(log.store)
    move_records(connection.cluster.present_topic("t"))
    topic = connection.cluster.present_topic("t")
    (task,) = plan_reads({"t": topic}, {WHERE: PartitionRange(0, 2)}, OPTIONS)
    assert read_back(log, task) == [0, 1]
    assert not task.records
