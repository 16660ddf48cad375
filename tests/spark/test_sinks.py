"""The sink in Spark: the topics of rows, the topics that it creates, and the owner of the group.

Tasks and the driver treat rows in the same way with and without a stream. These tests mostly write
without one, because a query starts an interpreter for its source. A refusal can end a query in
three places: before its tasks run, in a task, and in its commit. Each is tested with a stream.
tests/unit/spark_plugin/sink/test_staging.py tests which rows a task refuses.
"""

import shutil
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, functions

from spark_plugin import register
from tests.spark.bench import GROUP, Bench
from tests.spark.drill import until
from tests.spark.tasks import gated
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import UnknownTopic
from txlog.groups.state import PendingOffset
from txlog.topic.write.partitioner import partition_for_keys

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

KEYED = pa.schema([("k", pa.string()), ("n", pa.int64())])


WITH_KEY = ("IF(n % 3 > 0, 'k' || n, NULL) AS k", "n")
"""Numbers with a text key, of which every third is null."""


# Partitions.


def test_a_key_column_chooses_the_partition_as_kafka_does_and_may_be_null(bench: Bench) -> None:
    bench.log.admin.create_topic("keyed", 5, KEYED)
    bench.write(bench.counted(30, *WITH_KEY), "keyed", {"key": "k"})
    rows = bench.log.rows("keyed")
    assert sorted(row["n"] for row in rows) == list(range(30))
    assert sum(row["k"] is None for row in rows) == 10
    for row in rows:
        if row["k"] is not None:
            expected = partition_for_keys(pa.array([row["k"]]), 5, 0)
            assert row["_partition"] == expected[0]


def test_keyless_rows_are_spread_over_partitions(bench: Bench) -> None:
    bench.log.admin.create_topic("spread", 4, pa.schema([("n", pa.int64())]))
    bench.write(bench.counted(20).repartition(20), "spread")
    assert len({row["_partition"] for row in bench.log.rows("spread")}) > 1


def test_a_partition_column_chooses_the_partition(bench: Bench) -> None:
    where = bench.counted(6, "n", "CAST(n % 2 AS INT) AS p")
    bench.write(where, options={"partition": "p"})
    assert sorted((row["n"], row["_partition"]) for row in bench.log.rows("out")) == [
        (n, n % 2) for n in range(6)
    ]


def check_untouched(bench: Bench, topic: str = "out") -> None:
    """Check that nothing was written, and that no offset is committed or pending."""
    assert bench.log.rows(topic) == []
    group = bench.log.connection.offsets.group(GROUP)
    assert not group.committed
    assert not group.pending


def watched(bench: Bench, frame: DataFrame) -> DataFrame:
    """The DataFrame, whose tasks leave a trace."""
    gate = bench.folder / "open gate"
    gate.touch()
    return gated(frame, gate)


def has_run_a_task(bench: Bench) -> bool:
    """Whether a task has read the watched DataFrame."""
    return (bench.folder / "open gate.reached").exists()


# Topics.


def test_a_missing_topic_is_created_with_the_columns_of_the_data_frame(bench: Bench) -> None:
    options = {"key": "k", "partitions": 3, "topic.max.message.bytes": 5_000_000}
    bench.write(bench.counted(6, *WITH_KEY), "made", options)
    made = bench.log.admin.describe_topic("made")
    assert made.schema.equals(KEYED)
    assert (made.config.key_column, made.config.max_message_bytes) == ("k", 5_000_000)
    assert len(made.partitions) == 3
    assert bench.log.column("made", "n") == list(range(6))


def test_missing_topic_is_created_kafka_shaped_for_key_and_value_columns(bench: Bench) -> None:
    bench.write(bench.counted(2, "CAST(n AS STRING) AS value", "'k' AS key"), "made")
    rows = bench.log.rows("made")
    assert sorted((row["key"], row["value"]) for row in rows) == [(b"k", b"0"), (b"k", b"1")]
    assert len({row["_partition"] for row in rows}) == 1


def put_records(bench: Bench) -> None:
    """Six records with key, headers, a partition and a time of their own."""
    with bench.log.producer.transaction():
        for n in range(6):
            bench.log.producer.send(
                "numbers",
                b"%d" % n,
                key=b"k%d" % n,
                headers=[("n", b"%d" % n)],
                partition=n % 2,
                timestamp_ms=1_700_000_000_000 + n,
            )


@pytest.mark.parametrize("way", ["batch", "stream"])
def test_kafka_shaped_topic_is_copied_record_for_record(bench: Bench, way: str) -> None:
    """The sink once created a typed topic with offset, topic and partition as data."""
    put_records(bench)
    options = {"includeHeaders": True}
    if way == "stream":
        bench.run(bench.source(options=options), "copy", {"partitions": 2})
    else:
        read = bench.spark.read.format("txlog").option("includeHeaders", True)
        frame = read.option("subscribe", "numbers").load(bench.log.url)
        bench.write(frame, "copy", {"partitions": 2})
    made = bench.log.admin.describe_topic("copy")
    assert made.schema.equals(bench.log.admin.describe_topic("numbers").schema)

    def by_value(topic: str) -> list[dict[str, object]]:
        rows = [{**row, "_topic": "the same"} for row in bench.log.rows(topic)]
        return sorted(rows, key=lambda row: row["value"])

    assert by_value("copy") == by_value("numbers")


def test_missing_topic_is_refused_before_any_task_when_create_topics_is_false(bench: Bench) -> None:
    bench.log.put("numbers", 2)
    with pytest.raises(PySparkException, match="UnknownTopic: there is no topic 'made'"):
        bench.run(watched(bench, bench.numbers()), "made", {"createTopics": False})
    assert not has_run_a_task(bench)
    with pytest.raises(UnknownTopic):
        bench.log.admin.describe_topic("made")


WAYS = ("option", "column", "foreachBatch")


def run_to_made(bench: Bench, way: str, options: dict[str, object] | None = None) -> None:
    """Write the new numbers to the topic `made`, which is named in one of the ways."""
    if way == "option":
        bench.run(bench.numbers(), "made", options)
    elif way == "column":
        bench.run(bench.numbers().withColumn("topic", functions.lit("made")), None, options)
    else:
        bench.run_each(bench.numbers(), lambda rows, _: bench.write(rows, "made", options))


@pytest.mark.parametrize("way", WAYS)
def test_deleted_topic_is_recreated_only_with_create_topics_option(bench: Bench, way: str) -> None:
    """The sink once created the topic again without its records and configuration."""
    bench.log.put("numbers", 2)
    run_to_made(bench, way)
    bench.log.admin.delete_topics(["made"])
    bench.log.put("numbers", 3)
    with pytest.raises(PySparkException, match="set createTopics=true"):
        run_to_made(bench, way)
    assert "made" not in bench.log.admin.list_topics()
    run_to_made(bench, way, {"createTopics": True})
    assert bench.log.column("made", "n") == [2, 3, 4]


def test_rows_may_name_a_new_topic_in_any_batch(bench: Bench) -> None:
    named = bench.numbers().withColumn("topic", functions.expr("IF(n < 2, 'early', 'late')"))
    for _ in range(2):
        bench.log.put("numbers", 2)
        bench.run(named, None)
    assert (bench.log.column("early", "n"), bench.log.column("late", "n")) == ([0, 1], [2, 3])


def test_topic_column_routes_each_row_to_its_topic_in_one_transaction(bench: Bench) -> None:
    bench.log.admin.create_topic("keyed", 2, KEYED)
    bench.log.put("numbers", 6)
    is_even = functions.col("n") % 2 == 0
    frame = bench.numbers().select(
        "n",
        functions.when(is_even, "even").alias("k"),
        functions.when(is_even, "keyed").otherwise("out").alias("topic"),
    )
    bench.run(frame, None)
    assert bench.log.column("keyed", "n") == [0, 2, 4]
    assert bench.log.column("out", "n") == [1, 3, 5]
    (sink,) = [t for t in bench.log.admin.list_transactions() if t.transactional_id != "input"]
    # It is decided but possibly not completed yet (R8).
    tx_id = sink.last_tx_id if sink.open is None else sink.open.tx_id
    assert str(tx_id).endswith("-0-0")


def test_missing_topics_in_the_topic_column_are_created_without_that_column(
    bench: Bench,
) -> None:
    which = "IF(n % 3 = 0, 'out', IF(n % 3 = 1, 'one', 'two')) AS topic"
    options = {"key": "n", "partition": "p", "partitions": 2}
    frame = bench.counted(6, "n", "CAST(n % 2 AS INT) AS p", which)
    bench.write(frame.filter("n % 3 > 0"), None, options)
    for topic, numbers in (("one", [1, 4]), ("two", [2, 5])):
        made = bench.log.admin.describe_topic(topic)
        assert made.schema.names == ["n", "p"], topic
        assert (made.config.key_column, len(made.partitions)) == ("n", 2)
        assert bench.log.column(topic, "n") == numbers
    assert bench.log.column("out", "n") == []


def test_unsupported_column_type_is_refused_before_any_task_runs(bench: Bench) -> None:
    bench.log.put("numbers", 2)
    numbers = watched(bench, bench.numbers())
    frame = numbers.selectExpr("n", "INTERVAL '1' MONTH AS age", "'out' AS topic")
    with pytest.raises(PySparkException, match="IncompatibleSchema: column 'age' is interval"):
        bench.run(frame, None)
    assert not has_run_a_task(bench)
    check_untouched(bench)


def test_R11_rows_for_a_recreated_topic_go_to_the_new_one(bench: Bench) -> None:
    """The task processes have read the old topic."""
    frame = bench.counted(8, "n", "'out' AS topic")
    bench.write(frame.filter("n < 4"), None)
    bench.log.admin.delete_topics(["out"])
    bench.log.admin.create_topic("out", 1, pa.schema([("n", pa.int64())]))
    bench.write(frame.filter("n >= 4"), None)
    assert bench.log.column("out", "n") == [4, 5, 6, 7]


# Rows that do not fit.


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["n", "n AS m"], "IncompatibleSchema: topic 'out' has no column 'm'"),
        (["n", "INTERVAL '1' YEAR AS y"], "IncompatibleSchema: .*'y'"),
    ],
    ids=["unknown column", "no type of a topic"],
)
def test_frame_that_does_not_match_the_topic_schema_is_refused_before_any_task_runs(
    bench: Bench, columns: list[str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        bench.write(watched(bench, bench.counted(2)).selectExpr(*columns))
    assert not has_run_a_task(bench)
    check_untouched(bench)


def test_a_row_over_max_message_bytes_is_refused_by_its_task(bench: Bench) -> None:
    wide = pa.schema([("text", pa.string())])
    bench.log.admin.create_topic("wide", 1, wide, {"max.message.bytes": 1000})
    bench.log.put("numbers", 4)
    numbers = watched(bench, bench.numbers())
    frame = numbers.selectExpr("repeat('x', IF(n = 3, 2000, 5)) AS text")
    with pytest.raises(PySparkException, match="RecordTooLarge: .*max.message.bytes"):
        bench.run(frame, "wide")
    assert has_run_a_task(bench)
    check_untouched(bench, "wide")


# Options.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topics": "out"}, "unknown writer option 'topics'; did you mean 'topic'?"),
        ({"group.takeover": "perhaps"}, "'group.takeover' is 'perhaps'; it must be true or false"),
        ({"key": "m"}, "option 'key' names the column 'm', which the DataFrame does not have"),
        ({"topic": None}, "the rows have no topic"),
        ({"topic": "../up"}, "InvalidName: .*../up"),
    ],
    ids=["unknown", "value", "column", "no topic", "path"],
)
def test_a_wrong_option_of_the_sink_is_refused_before_any_task_runs(
    bench: Bench, options: dict[str, object], message: str
) -> None:
    with pytest.raises(PySparkException, match=message.replace("?", r"\?")):
        bench.write(watched(bench, bench.counted(2)), options=options)
    assert not has_run_a_task(bench)
    check_untouched(bench)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxOffsetPerTrigger": "5"}, "did you mean 'maxOffsetsPerTrigger'?"),
        ({"subscribe": "numbres"}, "there is no topic 'numbres' in .*; did you mean 'numbers'"),
        ({"group.id": "g" * 600}, "InvalidName: group.id .*length 600"),
        ({"group.id": None}, "no group is given: set 'group.id', too"),
        ({"columns": "valeu"}, "the topic has no column 'valeu'; did you mean 'value'?"),
        ({"root": "/nowhere/at all"}, "NotATxlog: there is no log at /nowhere/at all"),
    ],
    ids=["unknown", "topic", "length", "no group", "column", "root"],
)
def test_a_wrong_option_of_the_source_is_refused(
    bench: Bench, options: dict[str, object], message: str
) -> None:
    with pytest.raises(PySparkException, match=message.replace("?", r"\?")):
        bench.source(options=options).printSchema()


def test_R22_checkpoint_location_set_only_in_the_session_is_refused(bench: Bench) -> None:
    bench.log.put("numbers", 2)
    name = "spark.sql.streaming.checkpointLocation"
    frame = watched(bench, bench.numbers())
    bench.spark.conf.set(name, str(bench.folder / "sessions"))
    try:
        with pytest.raises(PySparkException, match="needs the query's own option checkpointLoc"):
            bench.run(frame, options={"checkpointLocation": None})
    finally:
        bench.spark.conf.unset(name)
    assert not has_run_a_task(bench)
    check_untouched(bench)


def test_R22_checkpoint_below_the_sessions_location_is_used_only_as_long_as_spark_uses_it(
    bench: Bench,
) -> None:
    session = bench.spark.newSession()
    first, second = bench.folder / "first 1", bench.folder / "second"
    session.conf.set("spark.sql.streaming.checkpointLocation", f"{first}/")
    register(session)
    own = replace(bench, spark=session)
    options = {"checkpointLocation": None, "queryName": "copier"}
    own.log.put("numbers", 7)
    own.run(own.numbers(), options=options)
    assert sorted(row["n"] for row in own.log.rows("out")) == list(range(7))
    assert (first / "copier" / "offsets" / "0").exists()
    # The same query goes on elsewhere, and the sink would read plans that Spark does not run.
    shutil.copytree(first, second)
    session.conf.set("spark.sql.streaming.checkpointLocation", str(second))
    own.log.put("numbers", 1)
    with pytest.raises(
        PySparkException, match=r"CheckpointConflict: .*Call register\(spark\) again"
    ):
        own.run(own.numbers(), options=options)
    assert len(own.log.rows("out")) == 7
    register(session)
    own.run(own.numbers(), options=options)
    assert sorted(row["n"] for row in own.log.rows("out")) == list(range(8))


def test_R29_a_source_of_the_same_log_without_a_group_is_refused(bench: Bench) -> None:
    bench.log.put("numbers", 2)
    ungrouped = bench.numbers(options={"group.id": None, "startingOffsets": "earliest"})
    with pytest.raises(PySparkException, match="without group.id, so its offsets cannot be in"):
        bench.run(ungrouped)
    check_untouched(bench)


def test_complete_output_is_refused(bench: Bench) -> None:
    bench.log.put("numbers", 2)
    counted = bench.numbers().groupBy().agg(functions.count("*").alias("n"))
    writer = counted.writeStream.format("txlog").outputMode("complete")
    writer = writer.options(root=bench.log.url, topic="out", checkpointLocation=bench.checkpoint)
    query = writer.trigger(availableNow=True).start()
    with pytest.raises(PySparkException, match="output mode 'complete' cannot be written"):
        query.awaitTermination()
    check_untouched(bench)


# Who owns the group.


def test_R12_query_that_lost_its_group_does_not_block_the_new_owner(
    bench: Bench,
) -> None:
    bench.log.put("numbers", 4)
    gate = bench.folder / "gate"
    gate.touch()
    first = (
        gated(bench.numbers(), gate)
        .writeStream.format("txlog")
        .options(root=bench.log.url, topic="out", checkpointLocation=bench.checkpoint)
        .start()
    )
    first.processAllAvailable()
    # The first query is in its tasks while the second one registers, without input.
    gate.unlink()
    (bench.folder / "gate.reached").unlink()
    bench.log.put("numbers", 4)
    until((bench.folder / "gate.reached").exists, "a task of the first query")
    second = {"checkpointLocation": bench.folder / "second", "group.takeover": True}
    bench.log.admin.create_topic("quiet", num_partitions=1)
    bench.run(bench.numbers("quiet"), options=second)
    gate.touch()
    with pytest.raises(PySparkException, match="GroupOwned: consumer group 'g' is owned by"):
        first.awaitTermination()
    assert not bench.log.connection.offsets.group(GROUP).pending
    assert bench.log.column("out", "n") == list(range(4))
    bench.run(bench.numbers(), options={**second, "checkpointLocation": bench.folder / "third"})
    assert bench.log.column("out", "n") == list(range(8))


def test_query_waits_until_the_pend_of_a_dead_run_times_out(bench: Bench) -> None:
    """The run died before its decision; after its timeout any process may bar it (rule R3)."""
    bench.log.put("numbers", 4)
    gate = bench.folder / "gate"
    query = (
        gated(bench.numbers(), gate)
        .writeStream.format("txlog")
        .options(root=bench.log.url, topic="out", checkpointLocation=bench.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    until((bench.folder / "gate.reached").exists, "a task")
    gone = TransactionSession(bench.log.connection, "gone", GROUP, timeout_ms=3_000)
    gone.register("a run")
    gone.begin()
    topic_id = bench.log.admin.describe_topic("numbers").topic_id
    gone.pend_staged(GROUP, (PendingOffset("numbers", topic_id, 0, 0, 2),))
    gate.touch()
    query.awaitTermination()
    assert bench.log.column("out", "n") == list(range(4))
    assert bench.log.lag(GROUP) == 0
    assert not bench.log.connection.offsets.group(GROUP).pending
