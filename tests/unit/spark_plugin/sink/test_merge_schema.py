"""`mergeSchema=true`: columns that a topic lacks are added before rows with them become visible."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_plugin.options import parse_reader_options, parse_writer_options
from spark_plugin.sink.sink_topics import Creation, SinkTopics, add_columns
from spark_plugin.sink.staging import Staging, participants
from tests.logs.memory_log import MemoryLog
from tests.unit.spark_plugin.spark_query import GROUP, Query, new_log
from txlog.engine.connection import Connection
from txlog.errors import IncompatibleSchema, InvalidOption, InvalidRecord

MERGES = {"path": "memory://log", "mergeSchema": "true", "createTopics": "false"}
TO_OUT = {**MERGES, "topic": "out"}
FRAME = StructType().add("n", LongType()).add("m", StringType(), nullable=False)
N = pa.schema([("n", pa.int64())])


@pytest.fixture
def log() -> MemoryLog:
    """A log with a topic `out` of one column `n`, and another one."""
    log = MemoryLog()
    log.admin.create_topic("out", 1, N)
    log.admin.create_topic("other", 1, N)
    return log


def prepare(process: Connection, frame: StructType, **options: str) -> None:
    """As the driver does before any task runs."""
    parsed = parse_writer_options({**TO_OUT, **options})
    SinkTopics(process, parsed, frame, Creation.NONE).prepared()


def columns(log: MemoryLog, topic: str = "out") -> list[str]:
    return log.admin.describe_topic(topic).schema.names


def test_missing_columns_are_refused_with_merge_schema_as_remedy(log: MemoryLog) -> None:
    with pytest.raises(IncompatibleSchema, match="no column 'm'.*add .* mergeSchema=true"):
        prepare(log.connection, FRAME, mergeSchema="false")
    assert columns(log) == ["n"]


def test_missing_columns_are_added_last_and_nullable_before_any_task_runs(log: MemoryLog) -> None:
    prepare(log.connection, StructType([FRAME["m"], FRAME["n"]]))
    added = log.admin.describe_topic("out").schema
    assert added.names == ["n", "m"]
    assert added.field("m").nullable
    prepare(log.connection, FRAME)
    assert log.admin.describe_topic("out").schema_id == 1, "asking again changes nothing"
    log.check()


def test_columns_for_topic_and_partition_of_a_row_are_not_added(log: MemoryLog) -> None:
    frame = StructType([*FRAME, StructField("p", IntegerType())])
    prepare(log.connection, frame, partition="p")
    assert columns(log) == ["n", "m"]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (StructField("_offset", LongType()), "_offset"),
        (StructField("N", LongType()), "two columns named .n. and .N."),
        (StructField("v", NullType()), "cast it"),
    ],
)
def test_column_that_no_topic_can_have_is_refused_and_nothing_is_added(
    log: MemoryLog, field: StructField, message: str
) -> None:
    with pytest.raises(IncompatibleSchema, match=message):
        prepare(log.connection, StructType([*FRAME, field]))
    assert columns(log) == ["n"]


def test_kafka_shaped_topic_gets_no_columns(log: MemoryLog) -> None:
    log.admin.create_topic("plain", 1)
    frame = StructType().add("value", BinaryType()).add("m", StringType())
    with pytest.raises(IncompatibleSchema, match=r"Select the columns it has\."):
        prepare(log.connection, frame, topic="plain")
    assert columns(log, "plain") == ["key", "value", "headers"]


def test_type_of_a_present_column_is_not_changed(log: MemoryLog) -> None:
    with pytest.raises(IncompatibleSchema, match="column 'n' is string.* types do not fit"):
        prepare(log.connection, StructType().add("n", StringType()).add("m", StringType()))
    # The new column is there, as after any job that fails.
    assert columns(log) == ["n", "m"]


def test_two_writers_that_add_different_columns_both_succeed(log: MemoryLog) -> None:
    one, two = log.process(), log.process()
    topics = [process.cluster.present_topic("out") for process in (one, two)]
    for topic, name in zip(topics, ("a", "b"), strict=True):
        add_columns(topic, StructType().add(name, LongType()), [name])
    assert columns(log) == ["n", "a", "b"]
    prepare(log.process(), StructType().add("n", LongType()).add("b", LongType()))
    log.check()


def test_one_of_two_writers_that_add_a_column_with_two_types_is_refused(log: MemoryLog) -> None:
    prepare(log.process(), StructType().add("a", LongType()))
    with pytest.raises(IncompatibleSchema, match="column 'a' is timestamp, and in topic 'out' it "):
        prepare(log.process(), StructType().add("a", TimestampType()))
    assert columns(log) == ["n", "a"]


# Topics that the rows name.

NAMED = StructType([*FRAME, StructField("topic", StringType())])


def stage(
    process: Connection, batches: Iterable[pa.RecordBatch], options: dict[str, str]
) -> dict[str, int]:
    """Stage the rows in one task. Returns the number of segments of each topic."""
    staged = Staging(process, parse_writer_options(options), NAMED).add_all(batches)
    return {one.topic: len(one.segments) for one in staged}


def batch(topic: str, n: int, m: str | None) -> pa.RecordBatch:
    return pa.record_batch(
        {"n": [n], "m": pa.array([m], pa.string()), "topic": [topic]},
    )


def test_only_topics_whose_rows_have_values_in_a_column_get_it(log: MemoryLog) -> None:
    given = [batch("out", 1, None), batch("other", 2, None), batch("out", 3, "x")]
    assert stage(log.process(), given, MERGES) == {"other": 1, "out": 2}, "a segment has one schema"
    assert (columns(log), columns(log, "other")) == (["n", "m"], ["n"])
    with pytest.raises(InvalidRecord, match="no column 'm'"):
        stage(log.process(), [batch("other", 2, "x")], {**MERGES, "mergeSchema": "false"})


def test_task_that_learns_of_a_new_column_between_two_batches_stages_both(log: MemoryLog) -> None:
    """Also without `mergeSchema`: another process may evolve the topic while a task runs."""
    process = log.process()

    def batches() -> Iterable[pa.RecordBatch]:
        yield batch("out", 1, None)
        log.admin.evolve_schema("out", N.append(pa.field("m", pa.string())))
        process.cluster.topic("out").catch_up(linearizable=True)
        yield batch("out", 2, "x")

    assert stage(process, batches(), {**MERGES, "mergeSchema": "false"}) == {"out": 2}


# A micro-batch.


def test_I10_replayed_batch_with_a_new_column_changes_nothing(tmp_path: Path) -> None:
    log = new_log()
    wide = StructType().add("n", LongType()).add("m", StringType())
    options = parse_writer_options({**MERGES, "topic": "even"})
    query = Query(log, tmp_path / "cp", options=options, group=GROUP)
    process = log.process()
    query.plan(0, 0, 4)

    def run(run_id: str) -> None:
        SinkTopics(process, options, wide, Creation.NONE).prepared()
        messages = query.tasks(process, run_id, 0, 0, 0)
        rows = pa.record_batch({"n": pa.array([7]), "m": pa.array(["x"])})
        staged = Staging(process, options, wide).add_all([rows])
        messages[0] = type(messages[0])("query", 0, run_id, messages[0].plan, staged)
        assert participants(messages)
        assert log.values("even") == before
        query.commit(process, run_id, 0, messages)

    before: list[object] = []
    run("run")
    before = log.values("even")
    assert before == [{"n": 7, "m": "x"}]
    run("second run")
    assert log.values("even") == before
    assert log.admin.describe_topic("even").schema_id == 1
    log.check()


# Options.


def test_merge_schema_is_true_or_false_and_an_option_of_the_writer_only() -> None:
    with pytest.raises(InvalidOption, match="'mergeSchema' is 'maybe'; it must be true or false"):
        parse_writer_options({**MERGES, "mergeSchema": "maybe"})
    with pytest.raises(InvalidOption, match="is an option of the writer, not of the reader"):
        parse_reader_options({"path": "/log", "subscribe": "t", "mergeSchema": "true"})
