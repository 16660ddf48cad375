"""The source in Spark: the contents of micro-batches, the columns, and the group's offsets."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, functions

from tests.spark.bench import GROUP, Bench
from txlog.client.producer.producer import Producer
from txlog.groups.state import UNCHECKED, PendingOffset

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def put_transactions(bench: Bench, sizes: Iterable[int], topics: tuple[str, ...]) -> list[str]:
    """Commit one transaction for each size, with records in all topics. Returns their values."""
    values = []
    for number, size in enumerate(sizes):
        with bench.log.producer.transaction():
            for record in range(size):
                value = f"{number}:{record}"
                values.append(value)
                bench.log.producer.send(topics[record % len(topics)], value.encode())
    return sorted(values)


def texts(frame: DataFrame) -> DataFrame:
    """The values of Kafka-shaped records."""
    return frame.select(functions.col("value").cast("string").alias("n"))


def transactions_of(batches: list[list[str]]) -> list[set[str]]:
    """For each micro-batch, the transactions of its records."""
    return [{value.split(":")[0] for value in batch} for batch in batches]


# Which records a micro-batch holds.


def test_R13_limit_is_exceeded_only_by_a_single_whole_transaction(bench: Bench) -> None:
    sizes = [4, 4, 9, 2, 2, 2, 30, 1]
    values = put_transactions(bench, sizes, ("numbers",))
    batches = bench.batches(texts(bench.source(options={"maxOffsetsPerTrigger": 8})))
    assert sorted(value for batch in batches for value in batch) == values
    for batch, held in zip(batches, transactions_of(batches), strict=True):
        assert len(batch) == sum(sizes[int(number)] for number in held)
        assert len(batch) <= 8 or len(held) == 1


def test_I11_a_transaction_over_two_topics_is_in_one_micro_batch(bench: Bench) -> None:
    bench.log.admin.create_topic("others", 3)
    sizes = [2, 6, 4, 8, 2, 6]
    values = put_transactions(bench, sizes, ("numbers", "others"))
    both = bench.source("numbers,others", {"maxOffsetsPerTrigger": 7})
    batches = bench.batches(texts(both))
    assert sorted(value for batch in batches for value in batch) == values
    assert len(batches) > 2
    for batch, held in zip(batches, transactions_of(batches), strict=True):
        assert len(batch) == sum(sizes[int(number)] for number in held)


def test_I3_open_and_aborted_records_are_not_read(bench: Bench) -> None:
    put_transactions(bench, [3], ("numbers",))
    slow = Producer(bench.log.connection, transactional_id="slow", transaction_records="in.log")
    slow.init_transactions()
    slow.begin_transaction()
    slow.send("numbers", b"open", partition=0)
    slow.flush()
    put_transactions(bench, [4], ("numbers",))
    (first,) = bench.batches(texts(bench.source()))
    assert "open" not in first
    slow.abort_transaction()
    rest = [value for batch in bench.batches(texts(bench.source())) for value in batch]
    assert sorted(first + rest) == sorted(
        [f"0:{n}" for n in range(3)] + [f"0:{n}" for n in range(4)]
    )


def test_available_now_run_stops_at_the_end_seen_at_its_start(bench: Bench) -> None:
    """Records that are sent during the run are for the next run."""
    bench.log.put("numbers", 10)
    seen: list[int] = []

    def write(rows: DataFrame, batch_id: int) -> None:
        bench.log.put("numbers", 2)
        seen.extend(row["n"] for row in rows.collect())

    limited = {"maxOffsetsPerTrigger": 3}
    bench.run_each(bench.numbers(options=limited), write)
    assert sorted(seen) == list(range(10))
    bench.run_each(bench.numbers(options=limited), write)
    assert sorted(seen) == list(range(12))


def test_progress_shows_the_end_of_the_log_beside_the_end_of_the_batch(bench: Bench) -> None:
    put_transactions(bench, [4, 4, 2], ("numbers",))
    bench.run_each(bench.source(options={"maxOffsetsPerTrigger": 4}), lambda *_: None)

    def ends(offset: str) -> list[int]:
        found = []
        for progress in bench.progress:
            (source,) = progress["sources"]
            topics = json.loads(source[offset])["topics"]
            parts = topics["numbers"]["partitions"].values()
            found.append(sum(part["to"] for part in parts))
        return found

    assert ends("endOffset") == [4, 8, 10]
    assert ends("latestOffset") == [10, 10, 10]


def test_new_partitions_and_topics_of_a_pattern_are_read_from_the_beginning(
    bench: Bench,
) -> None:
    pattern = {"subscribe": None, "subscribePattern": "num.*"}
    bench.log.put("numbers", 4)
    bench.run(bench.numbers(options=pattern))
    bench.log.admin.create_partitions("numbers", 4)
    bench.log.put("numbers", 4)
    bench.log.admin.create_topic("numerals", 1)
    bench.log.put("numerals", 3)
    bench.run(bench.numbers(options=pattern))
    assert bench.log.column("out", "n") == list(range(11))
    ends = {f"numbers-{p}": end for p, end in enumerate((3, 3, 1, 1))} | {"numerals-0": 3}
    assert bench.log.positions(GROUP) == {name: (end, end) for name, end in ends.items()}


def test_starting_offsets_set_where_a_new_query_begins(bench: Bench) -> None:
    bench.log.put("numbers", 10)
    given = {"startingOffsets": json.dumps({"numbers": {"0": 3, "1": -2}})}
    (read,) = bench.batches(bench.numbers(options=given))
    assert sorted(read) == [1, 3, 5, 6, 7, 8, 9]
    fresh = {"checkpointLocation": bench.folder / "another"}
    latest = {"startingOffsets": "latest", "group.id": "another"}
    # Spark runs the first batch even if it is empty.
    assert bench.batches(bench.numbers(options=latest), fresh) == [[]]


def test_starting_offsets_beyond_the_end_are_refused(bench: Bench) -> None:
    bench.log.put("numbers", 2)
    given = {"startingOffsets": json.dumps({"numbers": {"0": 7, "1": -2}})}
    with pytest.raises(PySparkException, match="OffsetOutOfRange: .*7"):
        bench.run(bench.numbers(options=given))
    assert bench.log.rows("out") == []


def test_recreated_topic_is_refused_unless_fail_on_data_loss_is_false(bench: Bench) -> None:
    bench.log.put("numbers", 4)
    bench.run(bench.numbers())
    bench.log.admin.delete_topics(["numbers"])
    bench.log.admin.create_topic("numbers", 2)
    bench.log.producer = Producer(bench.log.connection, transactional_id="again")
    bench.log.producer.init_transactions()
    bench.log.put("numbers", 4)
    with pytest.raises(PySparkException, match="topic numbers was deleted and created again"):
        bench.run(bench.numbers())
    assert bench.log.column("out", "n") == list(range(4))
    bench.run(bench.numbers(options={"failOnDataLoss": False}))
    assert bench.log.column("out", "n") == list(range(8))
    assert bench.log.positions(GROUP) == {"numbers-0": (2, 2), "numbers-1": (2, 2)}


def test_new_topic_with_another_schema_does_not_cost_a_pattern_query_its_state(
    bench: Bench,
) -> None:
    """The query's state holds the numbers that were read, so each number is emitted only once."""
    pattern: dict[str, object] = {"subscribe": None, "subscribePattern": "num.*"}
    tolerant = {**pattern, "failOnDataLoss": False}

    def distinct(options: Mapping[str, object]) -> DataFrame:
        return bench.numbers(options=options).dropDuplicates(["n"])

    def put_again(count: int) -> None:
        bench.log.next_number = 0
        bench.log.put("numbers", count)

    put_again(4)
    bench.run(distinct(pattern))
    loaded = distinct(pattern)
    bench.log.admin.create_topic("numerals", 1, TYPED)
    put_again(5)
    planned = sorted((bench.checkpoint / "offsets").iterdir())
    with pytest.raises(PySparkException, match="topic 'numerals' does not fit .* narrow the"):
        bench.run(loaded)
    assert sorted((bench.checkpoint / "offsets").iterdir()) == planned
    bench.run(distinct(tolerant))
    assert bench.log.column("out", "n") == list(range(5))
    bench.log.admin.delete_topics(["numerals"])
    put_again(6)
    bench.run(distinct(pattern))
    assert bench.log.column("out", "n") == list(range(6))


# Columns.


def test_a_kafka_shaped_topic_has_kafkas_columns(bench: Bench) -> None:
    with bench.log.producer.transaction():
        bench.log.producer.send("numbers", b"v", key=b"k", partition=1, timestamp_ms=5)
        bench.log.producer.send("numbers", None, headers=[("h", b"1")], partition=1, timestamp_ms=6)
    frame = bench.spark.read.format("txlog").options(subscribe="numbers", includeHeaders="true")
    rows = [
        row.asDict(recursive=True) for row in frame.load(bench.log.url).orderBy("offset").collect()
    ]
    assert list(rows[0]) == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
    ]
    assert (rows[0]["key"], rows[0]["value"], rows[1]["value"]) == (b"k", b"v", None)
    assert [(row["partition"], row["offset"]) for row in rows] == [(1, 0), (1, 1)]
    assert [row["timestamp"].timestamp() for row in rows] == [0.005, 0.006]
    assert rows[1]["headers"] == [{"key": "h", "value": b"1"}]


TYPED = pa.schema([("n", pa.int64()), ("name", pa.string()), ("rest", pa.list_(pa.float64()))])


def typed(bench: Bench, rows: int) -> None:
    """Create a typed topic `typed` with that many rows."""
    bench.log.admin.create_topic("typed", 2, TYPED)
    with bench.log.producer.transaction():
        for n in range(rows):
            row = {"n": n, "name": f"name {n}", "rest": [n / 2]}
            bench.log.producer.send("typed", row, partition=n % 2)


def test_typed_topic_has_its_columns_and_four_metadata_columns(bench: Bench) -> None:
    typed(bench, 3)
    frame = bench.spark.read.format("txlog").option("subscribe", "typed").load(bench.log.url)
    assert frame.columns == ["n", "name", "rest", "_topic", "_partition", "_offset", "_timestamp"]
    found = [(r.n, r.name, r.rest, r._topic, r._partition, r._offset) for r in frame.collect()]
    assert sorted(found) == [
        (0, "name 0", [0.0], "typed", 0, 0),
        (1, "name 1", [0.5], "typed", 1, 0),
        (2, "name 2", [1.0], "typed", 0, 1),
    ]


def test_columns_option_selects_and_orders_the_columns(bench: Bench) -> None:
    typed(bench, 3)
    reader = bench.spark.read.format("txlog").options(subscribe="typed", columns="_offset,n")
    frame = reader.load(bench.log.url)
    assert frame.columns == ["_offset", "n"]
    assert sorted((row[0], row[1]) for row in frame.collect()) == [(0, 0), (0, 1), (1, 2)]


def test_topics_of_different_schemas_are_read_by_their_shared_columns(bench: Bench) -> None:
    typed(bench, 2)
    bench.log.admin.create_topic("named", 1, pa.schema([("name", pa.string())]))
    with bench.log.producer.transaction():
        bench.log.producer.send("named", {"name": "another"})
    reader = bench.spark.read.format("txlog").option("subscribe", "typed,named")
    found = reader.schema("name string, _topic string").load(bench.log.url).collect()
    assert sorted((row._topic, row.name) for row in found) == [
        ("named", "another"),
        ("typed", "name 0"),
        ("typed", "name 1"),
    ]


def test_user_schema_narrows_the_columns(bench: Bench) -> None:
    typed(bench, 3)
    reader = bench.spark.read.format("txlog").option("subscribe", "typed").schema("name string")
    assert sorted(row.name for row in reader.load(bench.log.url).collect()) == [
        "name 0",
        "name 1",
        "name 2",
    ]


def test_column_added_later_is_visible_to_the_next_query(bench: Bench) -> None:
    typed(bench, 2)
    wider = TYPED.append(pa.field("more", pa.int32()))
    bench.log.admin.evolve_schema("typed", wider)
    with bench.log.producer.transaction():
        bench.log.producer.send("typed", {"n": 2, "more": 7}, partition=0)
    frame = bench.spark.read.format("txlog").option("subscribe", "typed").load(bench.log.url)
    assert sorted((r.n, r.more) for r in frame.select("n", "more").collect() if r.more) == [(2, 7)]
    assert frame.count() == 3


def test_column_added_to_a_running_query_stops_it_with_fail_on_new_columns(bench: Bench) -> None:
    typed(bench, 2)
    options = {"failOnNewColumns": "true", "group.id": None, "startingOffsets": "earliest"}
    frame = bench.source("typed", options)
    wider = TYPED.append(pa.field("more", pa.int32()))
    bench.log.admin.evolve_schema("typed", wider)
    with pytest.raises(PySparkException, match="lacks: more.* restart the query"):
        bench.batches(frame)
    assert len(bench.batches(bench.source("typed", options))) == 1
    for reader in (bench.spark.read.schema("n int"), bench.spark.read.option("columns", "n")):
        reader = reader.format("txlog").options(subscribe="typed", failOnNewColumns="true")
        with pytest.raises(PySparkException, match="leave out option 'columns' and the reader's"):
            reader.load(bench.log.url).collect()


def test_topics_of_different_schemas_are_refused_without_a_user_schema(bench: Bench) -> None:
    typed(bench, 1)
    with pytest.raises(PySparkException, match="'numbers' and 'typed' have different schemas"):
        bench.source("numbers,typed").printSchema()


@pytest.mark.parametrize("plans_again", [False, True], ids=["by default", "filter pushdown"])
def test_static_side_of_a_join_grows_only_with_filter_pushdown(
    bench: Bench, plans_again: bool
) -> None:
    """A Parquet folder behaves alike; Kafka's batch source and Delta are read in each batch."""
    admin, url = bench.log.admin, bench.log.url
    admin.create_topic("dim", 1, pa.schema([("n", pa.int64()), ("name", pa.string())]))
    found: list[list[str]] = []
    counts: list[int] = []

    def grow(number: int) -> None:
        with bench.log.producer.transaction():
            bench.log.producer.send("dim", {"n": 0, "name": f"after {number}"})

    def collect(rows: DataFrame, batch: int) -> None:
        found.append(sorted(row.name for row in rows.collect()))
        grow(batch)

    for _ in range(3):
        bench.log.put("numbers", 1)
    bench.spark.conf.set("spark.sql.python.filterPushdown.enabled", plans_again)
    try:
        static = bench.spark.read.format("txlog").option("subscribe", "dim").load(url)
        stream = bench.numbers(options={"maxOffsetsPerTrigger": 1, "group.id": None,
                                        "startingOffsets": "earliest"})  # fmt: skip
        joined = stream.select((stream.n * 0).alias("n")).join(static, "n")
        bench.run_each(joined, collect)
        for number in (3, 4):
            counts.append(static.where("n = 0").count())
            grow(number)
    finally:
        bench.spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    grown = [[], ["after 0"], ["after 0", "after 1"]]
    assert found == (grown if plans_again else [[], [], []])
    assert counts == ([3, 4] if plans_again else [0, 0])


# A batch query.


def test_batch_query_reads_between_the_given_offsets(bench: Bench) -> None:
    bench.log.put("numbers", 10)
    reader = bench.spark.read.format("txlog").option("subscribe", "numbers")
    reader = reader.option("startingOffsets", json.dumps({"numbers": {"0": 1, "1": -2}}))
    reader = reader.option("endingOffsets", json.dumps({"numbers": {"0": 3, "1": -1}}))
    values = [int(row.value) for row in reader.load(bench.log.url).select("value").collect()]
    assert sorted(values) == [1, 2, 3, 4, 5, 7, 9]


@pytest.mark.parametrize("prunes", [True, False])
def test_filters_leave_out_batches_where_the_session_allows_it(bench: Bench, prunes: bool) -> None:
    """With a byte a task, each batch has a task of its own."""
    times = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    bench.log.admin.create_topic("typed", 2, pa.schema([("n", pa.int64())]))
    with Producer(bench.log.connection) as producer:
        for number, time in enumerate(times):
            for topic, value in (("numbers", b"1"), ("typed", {"n": number})):
                for partition in range(2):
                    at_ms = round(time.timestamp() * 1_000)
                    producer.send(topic, value, partition=partition, timestamp_ms=at_ms)
                    producer.flush()
    bench.spark.conf.set("spark.sql.python.filterPushdown.enabled", prunes)
    try:
        for topic, prefix in (("numbers", ""), ("typed", "_")):
            reader = bench.spark.read.format("txlog").options(subscribe=topic, bytesPerTask=1)
            for condition, rows, tasks in [
                ("{0}offset >= 1 AND {0}offset < 2", 2, 2),
                ("{0}partition IN (1, 7)", 3, 3),
                ("{0}timestamp > TIMESTAMP '2026-01-02 12:00:00'", 2, 2),
                ("{0}topic = 'numbers'", 6 * (topic == "numbers"), 6 if topic == "numbers" else 1),
                ("{0}offset < 1 OR {0}offset > 1", 4, 6),
                ("NOT {0}partition = 0", 3, 6),
            ]:
                frame = reader.load(bench.log.url).where(condition.format(prefix))
                assert frame.count() == rows, condition
                planned = frame.rdd.getNumPartitions()
                assert planned == (tasks if prunes else 6), condition
    finally:
        bench.spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_batch_query_reads_only_committed_records_by_default(bench: Bench) -> None:
    bench.log.put("numbers", 2)
    bench.log.producer.begin_transaction()
    bench.log.producer.send("numbers", b"2", partition=0)
    bench.log.producer.flush()
    reader = bench.spark.read.format("txlog").option("subscribe", "numbers")
    assert reader.load(bench.log.url).count() == 2
    reader = reader.option("isolation.level", "read_uncommitted")
    assert reader.load(bench.log.url).count() == 3
    bench.log.producer.abort_transaction()


def test_frame_and_view_keep_the_end_offsets_of_their_first_use_until_reloaded(
    bench: Bench,
) -> None:
    """Spark plans the reading of a DataFrame once."""

    def load() -> DataFrame:
        return bench.spark.read.format("txlog").option("subscribe", "numbers").load(bench.log.url)

    def viewed() -> int:
        return bench.spark.sql("SELECT * FROM numbers_seen").count()

    bench.log.put("numbers", 2)
    frame = load()
    frame.createOrReplaceTempView("numbers_seen")
    assert (frame.count(), viewed()) == (2, 2)
    bench.log.put("numbers", 3)
    assert (frame.count(), viewed(), load().count()) == (2, 2, 5)
    load().createOrReplaceTempView("numbers_seen")
    assert viewed() == 5


# The group of a query whose sink is not txlog.


def test_group_offsets_follow_a_query_with_another_sink(bench: Bench) -> None:
    bench.log.put("numbers", 4)
    files = str(bench.folder / "parquet")

    def run() -> None:
        query = (
            bench.numbers(options={"maxOffsetsPerTrigger": 4})
            .writeStream.format("parquet")
            .option("checkpointLocation", str(bench.checkpoint))
            .trigger(availableNow=True)
            .start(files)
        )
        query.awaitTermination()

    run()
    assert bench.log.positions(GROUP) == {"numbers-0": (2, 2), "numbers-1": (2, 2)}
    bench.log.put("numbers", 4)
    bench.log.put("numbers", 4)
    run()
    assert bench.log.lag(GROUP) == 0
    assert sorted(row.n for row in bench.spark.read.parquet(files).collect()) == list(range(12))


def test_I10_query_refuses_to_run_after_its_group_was_reset_manually(
    bench: Bench,
) -> None:
    bench.log.put("numbers", 4)
    bench.run(bench.numbers())
    topic_id = bench.log.admin.describe_topic("numbers").topic_id
    reset = (PendingOffset("numbers", topic_id, 0, UNCHECKED, 1),)
    bench.log.connection.offsets.commit(GROUP, reset)
    bench.log.put("numbers", 2)
    with pytest.raises(PySparkException) as refused:
        bench.run(bench.numbers())
    assert "numbers-0 of group g: checkpoint [2, 3), group 1 (1 behind the start)" in str(
        refused.value
    )
    assert bench.log.positions(GROUP)["numbers-0"] == (1, 3)
    assert bench.log.column("out", "n") == list(range(4))


def test_failed_query_does_not_move_its_group(bench: Bench) -> None:
    bench.log.put("numbers", 4)

    def refuse(rows: DataFrame, batch_id: int) -> None:
        raise RuntimeError("no room on the shelf")

    with pytest.raises(PySparkException, match="no room on the shelf"):
        bench.run_each(bench.numbers(), refuse)
    assert bench.log.positions(GROUP) == {}


# Damage.


def doomed_segment(bench: Bench, topic: str) -> Path:
    """The only segment of a topic, which the test damages."""
    bench.is_damaged = True
    (found,) = (bench.log.root / "topics" / topic).rglob("segments/*.arrow")
    return found


@pytest.mark.segments
def test_I15_a_corrupt_segment_is_named(bench: Bench) -> None:
    bench.log.put("numbers", 4)
    path = doomed_segment(bench, "numbers")
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    path.write_bytes(damaged)
    reader = bench.spark.read.format("txlog").option("subscribe", "numbers")
    with pytest.raises(PySparkException, match=f"CorruptData: .*{path.name}"):
        reader.load(bench.log.url).collect()


@pytest.mark.segments
def test_I15_a_missing_segment_is_named(bench: Bench) -> None:
    bench.log.put("numbers", 4)
    path = doomed_segment(bench, "numbers")
    path.unlink()
    with pytest.raises(PySparkException, match=f"MissingObject: .*{path.name}.*backup"):
        bench.run(bench.numbers())
    assert bench.log.rows("out") == []
    assert bench.log.positions(GROUP) == {}
