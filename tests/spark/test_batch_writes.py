"""`df.write`, also in `foreachBatch`: one transaction a write, and repeats that change nothing."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from tests.spark.bench import GROUP, Bench
from tests.spark.tasks import dying

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_a_write_is_one_transaction_of_all_its_tasks(bench: Bench) -> None:
    bench.write(bench.counted(100).repartition(4))
    assert bench.log.column("out", "n") == list(range(100))
    (sink,) = [t for t in bench.log.admin.list_transactions() if t.transactional_id != "input"]
    assert str(sink.state) == "CompleteCommit"
    assert str(sink.last_tx_id).endswith("-0-0")


def test_I5_failed_write_makes_no_rows_visible(bench: Bench) -> None:
    broken = bench.counted(100, "n", "raise_error('no more') AS m")
    with pytest.raises(PySparkException, match="no more"):
        bench.write(broken.selectExpr("IF(n = 99, m, n) AS n").repartition(2))
    assert bench.log.rows("out") == []


def test_write_with_a_retried_task_stores_each_row_once(bench: Bench) -> None:
    bench.write(dying(bench.counted(10), bench.folder / "died"))
    assert bench.log.column("out", "n") == list(range(10))


def test_an_overwrite_is_refused(bench: Bench) -> None:
    writer = bench.counted(3).write.format("txlog").mode("overwrite")
    with pytest.raises(PySparkException, match="a log can only be appended to"):
        writer.option("topic", "out").save(bench.log.url)
    assert bench.log.rows("out") == []


def doubled(bench: Bench, crash: bool = False, **options: object) -> None:
    """Run a `foreachBatch` that writes each number, and then 100 more, with labels."""

    def write_both(rows: DataFrame, batch_id: int) -> None:
        bench.write(rows, options={"label": "plain"})
        if crash:
            raise RuntimeError("between the writes")
        bench.write(rows.selectExpr("n + 100 AS n"), options={"label": "raised", **options})

    bench.run_each(bench.numbers(), write_both)


def test_R30_replayed_foreach_batch_skips_its_committed_writes(
    bench: Bench,
) -> None:
    bench.log.put("numbers", 3)
    with pytest.raises(PySparkException, match="between the writes"):
        doubled(bench, crash=True)
    assert bench.log.column("out", "n") == [0, 1, 2]
    doubled(bench)
    assert bench.log.column("out", "n") == [0, 1, 2, 100, 101, 102]
    bench.lose_commit()
    bench.log.put("numbers", 1)
    doubled(bench)
    assert bench.log.column("out", "n") == [0, 1, 2, 3, 100, 101, 102, 103]
    assert bench.log.lag(GROUP) == 0


def test_R30_offsets_are_committed_with_the_write_that_names_the_checkpoint(bench: Bench) -> None:
    bench.log.put("numbers", 3)
    doubled(bench, checkpointLocation=bench.checkpoint)
    assert bench.log.connection.offsets.group(GROUP).last_commit is not None
    assert bench.log.lag(GROUP) == 0
    bench.lose_commit()
    doubled(bench, checkpointLocation=bench.checkpoint)
    assert bench.log.column("out", "n") == [0, 1, 2, 100, 101, 102]


def test_R30_second_write_of_a_batch_without_a_label_is_refused(bench: Bench) -> None:
    """The second write has other rows, which must not count as committed."""

    def write_twice(rows: DataFrame, batch_id: int) -> None:
        bench.write(rows)
        bench.write(rows.selectExpr("n + 100 AS n"))

    bench.log.put("numbers", 3)
    with pytest.raises(
        PySparkException,
        match="leave the first one as it is",
    ):
        bench.run_each(bench.numbers(), write_twice)
    assert bench.log.column("out", "n") == [0, 1, 2]
    assert bench.log.positions(GROUP) == {}


def test_labelled_write_may_skip_batches(bench: Bench) -> None:
    batches: list[int] = []

    def write_even(rows: DataFrame, batch_id: int) -> None:
        batches.append(batch_id)
        if batch_id % 2 == 0:
            bench.write(rows, options={"label": "even"})

    for count in (2, 3, 4):
        bench.log.put("numbers", count)
    bench.run_each(bench.numbers(options={"maxOffsetsPerTrigger": 1}), write_even)
    assert batches == [0, 1, 2]
    assert bench.log.column("out", "n") == [0, 1, 5, 6, 7, 8]
    assert bench.log.lag(GROUP) == 0


def write_everywhere(bench: Bench, rows: DataFrame) -> None:
    """Write from every kind of thread and session, under a job group of the user's own."""
    context = bench.spark.sparkContext
    context.setJobGroup("mine", "all that my team runs")
    bench.write(rows)
    found = [(row["n"] + 100,) for row in rows.collect()]
    other = bench.spark.newSession().createDataFrame(found, "n bigint")
    bench.write(other, options={"label": "another session"})

    def write_in_thread() -> None:
        rows.sparkSession.createDataFrame([(0,)], "n int")
        bench.write(rows.selectExpr("n + 200 AS n"), options={"label": "thread"})

    thread = InheritableThread(target=write_in_thread, session=rows.sparkSession)
    thread.start()
    thread.join()
    context.clearJobTags()
    bench.write(rows.selectExpr("n + 300 AS n"), options={"label": "no tags"})


def test_R30_replay_is_recognised_under_a_user_defined_job_group(bench: Bench) -> None:
    """A write once identified its run by the job group: after a restart, the batch seemed to be
    written by the new run."""
    bench.log.put("numbers", 3)
    for _ in range(2):
        bench.run_each(bench.numbers(), lambda rows, _: write_everywhere(bench, rows))
        bench.lose_commit()
    expected = [base + n for base in (0, 100, 200, 300) for n in range(3)]
    assert bench.log.column("out", "n") == expected
    # The next batch belongs to the same run in any thread or session.
    bench.log.put("numbers", 2)
    bench.run_each(bench.numbers(), lambda rows, _: write_everywhere(bench, rows))
    expected = [base + n for base in (0, 100, 200, 300) for n in range(5)]
    assert bench.log.column("out", "n") == expected


def test_R30_two_queries_under_one_job_group_do_not_interfere(bench: Bench) -> None:
    def start(name: str) -> StreamingQuery:
        def write(rows: DataFrame, _: int) -> None:
            bench.spark.sparkContext.setJobGroup("mine", "all that my team runs")
            bench.write(rows, name, {"partitions": 1})

        frame = bench.numbers(options={"group.id": name})
        writer = frame.writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", str(bench.folder / name))
        return writer.trigger(availableNow=True).start()

    names = ("one", "two")
    for numbers in (3, 2):
        bench.log.put("numbers", numbers)
        for query in [start(name) for name in names]:
            query.awaitTermination()
        for name in names:
            newest = max((bench.folder / name / "commits").glob("[0-9]*"))
            newest.unlink()
            newest.with_name(f".{newest.name}.crc").unlink()
    for query in [start(name) for name in names]:
        query.awaitTermination()
    assert [bench.log.column(name, "n") for name in names] == [list(range(5))] * 2


def write_in_thread(bench: Bench, *arguments: Any) -> None:
    """Write in a thread of the user's own, with an active session and without the query's
    properties."""
    bench.spark.createDataFrame([(0,)], "n int")
    bench.write(*arguments)


@pytest.mark.parametrize("option", ["label", "checkpointLocation"])
def test_R30_write_with_label_or_checkpoint_but_no_batch_id_is_refused(
    bench: Bench, option: str
) -> None:
    """As a plain job in a thread of the user's own, a replay once duplicated its rows."""

    def write(rows: DataFrame, batch_id: int) -> None:
        value = {"label": "mine", "checkpointLocation": bench.checkpoint}[option]
        with ThreadPoolExecutor(1) as threads:
            threads.submit(write_in_thread, bench, rows, "out", {option: value}).result()

    bench.log.put("numbers", 3)
    with pytest.raises(PySparkException, match="gives this write no batch id"):
        bench.run_each(bench.numbers(), write)
    with pytest.raises(PySparkException, match="in a plain job leave it out"):
        bench.write(bench.counted(3), options={"label": "mine"})
    assert bench.log.rows("out") == []


def test_I10_writes_in_threads_with_txn_version_are_stored_once_when_replayed(bench: Bench) -> None:
    def write(rows: DataFrame, batch_id: int) -> None:
        options = {"txnAppId": "my query", "txnVersion": batch_id}
        with ThreadPoolExecutor(2) as threads:
            jobs = [
                threads.submit(write_in_thread, bench, rows, topic, options)
                for topic in ("out", "other")
            ]
        for job in jobs:
            job.result()

    bench.log.put("numbers", 3)
    bench.run_each(bench.numbers(), write)
    bench.lose_commit()
    bench.run_each(bench.numbers(), write)
    bench.log.put("numbers", 2)
    bench.run_each(bench.numbers(), write)
    for topic in ("out", "other"):
        assert bench.log.column(topic, "n") == [0, 1, 2, 3, 4]


def test_I10_job_with_a_committed_txn_version_writes_nothing(bench: Bench) -> None:
    for version, count in ((7, 3), (7, 9), (6, 9), (8, 1)):
        options = {"txnAppId": "nightly", "txnVersion": version}
        bench.write(bench.counted(count), options=options)
    bench.write(bench.counted(1), options={"txnAppId": "another", "txnVersion": 1})
    assert bench.log.column("out", "n") == [0, 0, 0, 1, 2]
