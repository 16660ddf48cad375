"""Checkpoints that are replayed, lost, restored or shared by two runs: exactly once, or refused."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions

from spark_plugin.listener import BatchReport, TxlogListener
from tests.spark.bench import GROUP, Bench, bench_in
from tests.spark.drill import until
from tests.spark.small_log import Row
from tests.spark.tasks import DyingSink, gated
from txlog.model import TransactionOutcome

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

TAKE_OVER = {"group.takeover": True}


@dataclass(frozen=True)
class Replay:
    """A batch of six numbers that Spark ran again after four more numbers had been sent."""

    bench: Bench
    before: list[Row]
    """The topic's rows before the replay."""
    reports: list[BatchReport]
    """What the listener reported of the batches, in their order."""


@pytest.fixture(scope="module")
def replay(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replay]:
    """Replay once for the tests that only read."""
    with bench_in(spark, tmp_path_factory.mktemp("replay")) as bench:
        reports: list[BatchReport] = []
        listener = TxlogListener.install(spark, bench.log.url, reports.append)
        bench.log.put("numbers", 6)
        bench.run(bench.numbers())
        before = bench.log.rows("out")
        # Spark calls it some time after the batch.
        until(lambda: len(reports) == 1, "the report of the first batch")
        bench.lose_commit()
        bench.log.put("numbers", 4)
        bench.run(bench.numbers())
        until(lambda: len(reports) == 3, "the reports of the second run")
        spark.streams.removeListener(listener)
        yield Replay(bench, before, reports)


def test_I10_a_replayed_batch_changes_nothing(replay: Replay) -> None:
    assert sorted(row["n"] for row in replay.before) == list(range(6))
    assert [row for row in replay.bench.log.rows("out") if row["n"] < 6] == replay.before


def test_R28_replay_keeps_its_range_and_newer_records_form_the_next_batch(replay: Replay) -> None:
    assert replay.bench.log.column("out", "n") == list(range(10))
    assert [(p["batchId"], p["numInputRows"]) for p in replay.bench.progress] == [(0, 6), (1, 4)]


def test_listener_reports_lag_transaction_and_replay_of_each_batch(replay: Replay) -> None:
    first, replayed, following = replay.reports
    assert [report.batch_id for report in replay.reports] == [0, 0, 1]
    assert [report.is_replay for report in replay.reports] == [False, True, False]
    assert [report.lag for report in replay.reports] == [0, 4, 0]
    assert {report.outcome for report in replay.reports} == {TransactionOutcome.COMMITTED}
    # By the time of the second report batch 1 may be committed, too.
    assert replayed.tx_id in (first.tx_id, None)
    assert following.tx_id == replay.bench.log.admin.describe_group(GROUP).last_commit
    assert first.tx_id not in (None, following.tx_id)


def test_R20_replay_of_batch_0_reads_its_plan_despite_new_starting_offsets(
    bench: Bench,
) -> None:
    bench.log.put("numbers", 6)
    assert sorted(bench.batches(bench.numbers())[0]) == list(range(6))
    bench.lose_commit()
    bench.log.put("numbers", 4)
    later = {"startingOffsets": "latest"}
    replayed, following = bench.batches(bench.numbers(options=later))
    assert sorted(replayed) == list(range(6))
    assert sorted(following) == list(range(6, 10))


# A lost checkpoint.


def test_lost_checkpoint_does_not_repeat_old_records_of_an_idle_partition(
    bench: Bench,
) -> None:
    """The query starts at the end of 100 records in each partition, and only one partition gets
    more.

    Its third run fails: the lost checkpoint had planned more than was committed.
    """
    named = {"transactional.id": "copier"}
    bench.log.put("numbers", 200)
    begins = {"startingOffsets": None}
    bench.run(bench.numbers(options=begins), options=named)
    assert bench.log.positions(GROUP) == {"numbers-0": (100, 100), "numbers-1": (100, 100)}
    with bench.log.producer.transaction():
        for number in range(200, 210):
            bench.log.producer.send("numbers", b"%d" % number, partition=0)
    bench.run(bench.numbers(options=begins), options=named)
    with bench.log.producer.transaction():
        bench.log.producer.send("numbers", b"210", partition=0)
    failing = bench.numbers(options=begins).selectExpr("CAST(raise_error('no') AS bigint) AS n")
    with pytest.raises(PySparkException):
        bench.run(failing, options=named)
    bench.lose_checkpoint()
    bench.run(bench.numbers(), options=named)
    assert bench.log.column("out", "n") == list(range(200, 211))
    assert bench.log.positions(GROUP) == {"numbers-0": (111, 111), "numbers-1": (100, 100)}


def test_R12_new_query_takes_over_a_group_only_with_the_takeover_option(bench: Bench) -> None:
    bench.log.put("numbers", 6)
    bench.run(bench.numbers())
    bench.lose_checkpoint()
    # It begins before the committed offsets, even with takeover.
    earliest = bench.numbers(options={"startingOffsets": "earliest"})
    with pytest.raises(PySparkException, match="Another query has consumed these records"):
        bench.run(earliest, options=TAKE_OVER)
    bench.lose_checkpoint()
    bench.log.put("numbers", 4)
    with pytest.raises(PySparkException, match="is owned by .*group.takeover=true"):
        bench.run(bench.numbers())
    assert bench.log.column("out", "n") == list(range(6))
    # The same checkpoint continues with takeover.
    bench.run(bench.numbers(), options=TAKE_OVER)
    assert bench.log.column("out", "n") == list(range(10))
    assert bench.log.lag(GROUP) == 0


def test_lost_checkpoint_with_an_explicit_transactional_id_needs_no_takeover(
    bench: Bench,
) -> None:
    named = {"transactional.id": "copy"}
    bench.log.put("numbers", 6)
    bench.run(bench.numbers(), options=named)
    bench.lose_checkpoint()
    bench.log.put("numbers", 4)
    bench.run(bench.numbers(), options=named)
    assert bench.log.column("out", "n") == list(range(10))


# A checkpoint that is not the newest, or not whole.


def run_two_batches(bench: Bench, *sizes: int) -> None:
    """In one run of the query, with one transaction in each batch because of the limit."""
    for size in sizes:
        bench.log.put("numbers", size)
    bench.run(bench.numbers(options={"maxOffsetsPerTrigger": min(sizes)}))
    assert [p["numInputRows"] for p in bench.progress if p["numInputRows"]] == list(sizes)


def test_R2_restored_older_checkpoint_is_refused_with_the_offsets(bench: Bench) -> None:
    run_two_batches(bench, 6, 4)
    # The state after batch 0: a stateless checkpoint consists of these files.
    bench.lose(1, "offsets", "commits")
    bench.log.put("numbers", 2)
    with pytest.raises(PySparkException) as refused:
        bench.run(bench.numbers())
    said = str(refused.value)
    assert "batch 1 of query" in said
    assert "the log has another batch under this number" in said
    assert "numbers-0 of group g: checkpoint [3, 6), group 5 (2 into the batch)" in said
    assert "a new checkpointLocation, startingOffsets=committed" in said
    assert "txlog group describe g" in said
    assert bench.log.column("out", "n") == list(range(10))
    assert {at for at, _ in bench.log.positions(GROUP).values()} == {5}


def test_a_checkpoint_without_its_newest_offsets_is_refused(bench: Bench) -> None:
    run_two_batches(bench, 4, 4)
    bench.lose(1, "offsets")
    bench.log.put("numbers", 4)
    with pytest.raises(PySparkException, match="the log has batches of this query up to 1"):
        bench.run(bench.numbers())
    assert bench.log.column("out", "n") == list(range(8))


def test_R23_checkpoint_without_the_offsets_of_the_previous_batch_is_refused(bench: Bench) -> None:
    run_two_batches(bench, 4, 4)
    bench.lose_commit()
    bench.lose(0, "offsets")
    # Spark reads it before it calls the source or the sink.
    with pytest.raises(PySparkException, match="Previous batch 0 not found"):
        bench.run(bench.numbers())
    assert bench.log.column("out", "n") == list(range(8))


def test_R1_rows_of_a_plan_replaced_during_the_batch_are_refused(bench: Bench) -> None:
    """Another run of the query replans the batch while the tasks of this run are running."""
    bench.log.put("numbers", 4)
    gate = bench.folder / "gate"
    query = (
        gated(bench.numbers(), gate)
        .writeStream.format("txlog")
        .options(root=bench.log.url, topic="out", checkpointLocation=str(bench.checkpoint))
        .start()
    )
    until(lambda: (gate.parent / "gate.reached").exists(), "a task")
    plan_further(bench.checkpoint / "offsets" / "0", to=3)
    gate.touch()
    with pytest.raises(PySparkException, match="was rewritten while the batch ran"):
        query.awaitTermination()
    assert bench.log.rows("out") == []
    assert bench.log.positions(GROUP) == {}


def plan_further(file: Path, to: int) -> None:
    """The plan of a second run: the same batch, with later ends."""
    *head, line = file.read_text().split("\n")
    plan = json.loads(line)
    for bounds in plan["topics"]["numbers"]["partitions"].values():
        bounds["to"] = to
    file.write_text("\n".join([*head, json.dumps(plan)]))
    (file.parent / f".{file.name}.crc").unlink()


# Batches without rows, and batches without new offsets.


def test_filter_that_drops_all_rows_advances_the_offsets(bench: Bench) -> None:
    bench.log.put("numbers", 6)
    bench.run(bench.numbers().where("n < 0"))
    assert bench.log.rows("out") == []
    assert bench.log.lag(GROUP) == 0
    assert bench.log.positions(GROUP) != {}


def test_query_that_the_optimizer_reduces_to_no_rows_advances_the_offsets(bench: Bench) -> None:
    bench.log.put("numbers", 6)
    bench.run(bench.numbers().where("false"))
    assert bench.log.positions(GROUP) == {"numbers-0": (3, 3), "numbers-1": (3, 3)}


def test_no_new_records_make_no_batch_and_aborted_records_advance_offsets(bench: Bench) -> None:
    bench.log.put("numbers", 2)
    bench.run(bench.numbers())
    bench.run(bench.numbers())
    assert [p["batchId"] for p in bench.progress if p["numInputRows"]] == []
    assert sorted(f.name for f in (bench.checkpoint / "offsets").glob("[0-9]*")) == ["0"]
    bench.log.producer.begin_transaction()
    bench.log.producer.send("numbers", b"99", partition=0)
    bench.log.producer.flush()
    bench.log.producer.abort_transaction()
    bench.run(bench.numbers())
    assert bench.log.column("out", "n") == [0, 1]
    assert bench.log.positions(GROUP)["numbers-0"] == (2, 2)


def tens(bench: Bench) -> DataFrame:
    """A stateful query: the count of numbers in each complete ten."""
    at = bench.numbers().select(functions.timestamp_seconds("n").alias("at"))
    counted = (
        at.withWatermark("at", "0 seconds").groupBy(functions.window("at", "10 seconds")).count()
    )
    return counted.select(
        (functions.unix_seconds("window.start") * 100 + functions.col("count")).alias("n")
    )


def test_R23_watermark_only_batch_writes_its_rows_once_even_when_replayed(bench: Bench) -> None:
    bench.log.put("numbers", 25)
    bench.run(tens(bench))
    assert bench.log.column("out", "n") == [10, 1010]
    assert [p["numInputRows"] for p in bench.progress][:2] == [25, 0]
    bench.lose_commit()
    bench.run(tens(bench))
    assert bench.log.column("out", "n") == [10, 1010]
    old = bench.keep_checkpoint()
    bench.log.put("numbers", 10)
    bench.run(tens(bench))
    assert bench.log.column("out", "n") == [10, 1010, 2010]
    # A restored older checkpoint with state is refused, too.
    bench.put_back(old)
    with pytest.raises(PySparkException, match="the log has batches of this query up to"):
        bench.run(tens(bench))
    assert bench.log.column("out", "n") == [10, 1010, 2010]


# Sources that are not txlog.


def rates(bench: Bench) -> DataFrame:
    """Ten rows a batch, the same at every read."""
    source = bench.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10)
    return source.option("numPartitions", 2).load().select(functions.col("value").alias("n"))


def test_R2_a_replayed_batch_of_another_source_changes_nothing(bench: Bench) -> None:
    bench.run(rates(bench))
    assert bench.log.column("out", "n") == list(range(10))
    bench.lose_commit()
    bench.run(rates(bench))
    found = bench.log.column("out", "n")
    assert found == list(range(len(found)))
    assert len(found) in (10, 20)


def test_R2_batch_that_follows_a_changed_plan_is_refused(bench: Bench) -> None:
    """The checkpoint was restored, and the old run recorded a replanned batch as done."""
    bench.run(rates(bench))
    before = bench.log.column("out", "n")
    newest = max((bench.checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    plan = newest.read_text()
    *head, line = plan.split("\n")
    offset = json.loads(line)
    newest.write_text("\n".join([*head, json.dumps({**offset, "offset": offset["offset"] + 5})]))
    (newest.parent / f".{newest.name}.crc").unlink()
    with pytest.raises(PySparkException, match=f"another batch {newest.name}, the one before it"):
        bench.run(rates(bench))
    assert bench.log.column("out", "n") == before
    # Its own plan again, without the later plan that followed the other one.
    newest.write_text(plan)
    refused = int(newest.name) + 1
    for name in (f"{refused}", f".{refused}.crc"):
        (newest.parent / name).unlink()
    bench.run(rates(bench))
    found = bench.log.column("out", "n")
    assert found == list(range(len(found)))
    assert len(found) > len(before)


def test_a_union_with_another_source_commits_the_groups_offsets_too(bench: Bench) -> None:
    files = bench.folder / "files"
    files.mkdir()
    (files / "one.json").write_text('{"n": 100}\n')
    others = bench.spark.readStream.schema("n bigint").json(str(files))
    bench.log.put("numbers", 4)
    bench.run(bench.numbers().union(others))
    assert bench.log.column("out", "n") == [0, 1, 2, 3, 100]
    (files / "two.json").write_text('{"n": 101}\n')
    bench.lose_commit()
    bench.run(bench.numbers().union(others))
    assert bench.log.column("out", "n") == [0, 1, 2, 3, 100, 101]
    assert bench.log.lag(GROUP) == 0


# Several lines in offsets/N.


def test_R21_a_self_union_reads_twice_and_commits_once(bench: Bench) -> None:
    bench.log.put("numbers", 4)
    numbers = bench.numbers()
    bench.run(numbers.union(numbers.select(functions.col("n") + 100)))
    assert bench.log.column("out", "n") == [0, 1, 2, 3, 100, 101, 102, 103]
    assert bench.log.lag(GROUP) == 0
    bench.log.put("numbers", 2)
    numbers = bench.numbers()
    bench.run(numbers.union(numbers.select(functions.col("n") + 100)))
    assert bench.log.column("out", "n") == [*range(6), *range(100, 106)]


def test_R21_sources_of_one_group_with_different_ranges_are_refused(bench: Bench) -> None:
    bench.log.put("numbers", 4)
    one = bench.numbers()
    other = bench.numbers(options={"startingOffsets": '{"numbers": {"0": 1, "1": -2}}'})
    with pytest.raises(PySparkException, match="two sources of group g read different ranges"):
        bench.run(one.union(other))
    assert bench.log.rows("out") == []


def test_R25_a_union_restarted_in_another_order_is_refused(bench: Bench) -> None:
    bench.log.admin.create_topic("others", 1)
    bench.log.put("numbers", 2)
    bench.log.put("others", 2)

    def sources() -> tuple[DataFrame, DataFrame]:
        return bench.numbers(), bench.numbers("others", {"group.id": "h"})

    one, other = sources()
    bench.run(one.union(other))
    bench.log.put("numbers", 2)
    one, other = sources()
    with pytest.raises(
        PySparkException,
        match="group [gh] there, [gh] here; topics (numbers|others) there, none of them here",
    ):
        bench.run(other.union(one))
    assert bench.log.column("out", "n") == [0, 1, 2, 3]


# Tasks that fail.


def test_I5_rows_staged_by_a_failed_task_attempt_stay_invisible(bench: Bench) -> None:
    bench.spark.dataSource.register(DyingSink)
    bench.log.put("numbers", 6)
    bench.sink_format = DyingSink.name()
    flag = bench.folder / "died"
    bench.run(bench.numbers(), options={"queryName": str(flag)})
    assert flag.exists()
    segments = list((bench.log.root / "topics" / "out").rglob("segments/*.arrow"))
    assert len(segments) == 2
    assert bench.log.column("out", "n") == list(range(6))
