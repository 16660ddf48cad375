"""The facts about Spark 4.2 on which the plugin relies, tested with the real Spark."""

import json
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window

from spark_plugin.checkpoints.checkpoint import Checkpoint, locate, open_checkpoint
from spark_plugin.checkpoints.offset_log import GroupTopicPartition
from spark_plugin.python_worker import JOB_TAGS, run_of
from spark_plugin.source.offsets import PartitionRange
from tests.spark.recording_source import IS_TASK, LOG_ID, PROPERTIES, RecordingSource
from txlog.clock import Runtime

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

Event = dict[str, Any]
P0 = GroupTopicPartition("g", "numbers", 0)


@dataclass
class Bench:
    """One source, one sink, one checkpoint, and the record of Spark's calls."""

    spark: SparkSession
    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.put(0)

    @property
    def checkpoint_folder(self) -> Path:
        """The path of the checkpoint."""
        return self.folder / "cp"

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint, read by the plugin's code."""
        return open_checkpoint(str(self.checkpoint_folder), Runtime())

    def put(self, rows: int) -> None:
        """Set the number of rows."""
        (self.folder / "rows").write_text(str(rows))

    def source(self, name: str | None = None, **options: str) -> DataFrame:
        """The numbers, as a stream."""
        reader = self.spark.readStream.format("recording").option("group", "g")
        for option, value in {**self._options(), **options}.items():
            reader = reader.option(option, value)
        return (reader.name(name) if name else reader).load()

    def run(self, frame: DataFrame, output_mode: str = "append", **options: str) -> None:
        """Run a query to the end of its input."""
        writer = frame.writeStream.format("recording").outputMode(output_mode)
        place = {"checkpointLocation": str(self.checkpoint_folder)}
        for option, value in {**self._options(), **place, **options}.items():
            writer = writer.option(option, value)
        writer.trigger(availableNow=True).start().awaitTermination()

    def events(self, *kinds: str) -> list[Event]:
        """The events since the last call of `forget`, of all or of some kinds."""
        lines = (self.folder / "events").read_text().splitlines()
        found = [json.loads(line) for line in lines]
        return [event for event in found if not kinds or event["what"] in kinds]

    def forget(self) -> None:
        """Forget all events."""
        (self.folder / "events").write_text("")

    def lines(self, batch_id: int) -> list[str]:
        """The sources' lines in `offsets/<batch_id>`, as Spark wrote them."""
        return (self.checkpoint_folder / "offsets" / str(batch_id)).read_text().split("\n")[2:]

    def lose_commit(self, batch_id: int) -> None:
        """Delete `commits/<batch_id>`, as if Spark had died before it wrote the file."""
        for name in (str(batch_id), f".{batch_id}.crc"):
            (self.checkpoint_folder / "commits" / name).unlink()

    def _options(self) -> dict[str, str]:
        return {"events": str(self.folder / "events"), "rows": str(self.folder / "rows")}


@pytest.fixture(scope="module")
def registered(spark: SparkSession) -> SparkSession:
    """The session, with the recording source registered."""
    spark.dataSource.register(RecordingSource)
    return spark


@pytest.fixture
def bench(registered: SparkSession, tmp_path: Path) -> Bench:
    """A fresh bench, in a folder whose name has a space and a URL-encoded character."""
    return Bench(registered, tmp_path / "a b%20c")


@pytest.fixture(scope="module")
def two_batches(registered: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Batches [0, 3) and [3, 4), run once for several tests that only read."""
    bench = Bench(registered, tmp_path_factory.mktemp("two_batches"))
    bench.put(4)
    bench.run(bench.source(most="3"), camelCaseName="VaLue", queryName="My Query")
    return bench


@pytest.fixture
def settings(registered: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Sets configuration for one test."""
    changed: list[str] = []

    def change(name: str, value: str) -> None:
        changed.append(name)
        registered.conf.set(name, value)

    yield change
    for name in changed:
        registered.conf.unset(name)


# The order of calls, and their processes.


def test_spark_calls_source_and_sink_in_the_expected_order(two_batches: Bench) -> None:
    calls = [event["what"] for event in two_batches.events()]
    first = calls.index("sink.commit")
    assert [c for c in calls[:first] if c not in ("read", "write", "streamReader")] == [
        "prepareForTriggerAvailableNow",
        "getDefaultReadLimit",
        "initialOffset",
        "latestOffset",
        "initialOffset",
        "partitions",
        "streamWriter",
        "streamWriter",
    ]
    second = calls.index("sink.commit", first + 1)
    assert [c for c in calls[first + 1 : second] if c not in ("read", "write", "streamReader")] == [
        "latestOffset",
        "source.commit",
        "partitions",
        "streamWriter",
        "streamWriter",
    ]


def test_default_read_limit_is_requested_once_and_passed_to_every_latest_offset(
    two_batches: Bench,
) -> None:
    calls = two_batches.events("latestOffset")
    assert [(c["start"], c["end"], c["limit"]) for c in calls] == [
        (0, 3, "ReadMaxRows(max_rows=3)"),
        (3, 4, "ReadMaxRows(max_rows=3)"),
        (4, 4, "ReadMaxRows(max_rows=3)"),
    ]
    assert len(two_batches.events("getDefaultReadLimit")) == 1


def test_R20_initial_offset_is_requested_twice(two_batches: Bench) -> None:
    assert len(two_batches.events("initialOffset")) == 2


def test_R1_writer_is_created_after_offsets_are_written_and_again_before_commit(
    two_batches: Bench,
) -> None:
    made = [(event["offsets"], event["commits"]) for event in two_batches.events("streamWriter")]
    assert made == [
        (["0"], []),
        (["0"], []),
        (["0", "1"], ["0"]),
        (["0", "1"], ["0"]),
    ]


def test_spark_writes_its_commit_file_after_the_sink_commit(two_batches: Bench) -> None:
    committed = two_batches.events("sink.commit")
    assert [(c["batch_id"], c["commits"]) for c in committed] == [(0, []), (1, ["0"])]
    assert two_batches.checkpoint.newest_commit() == 1


def test_source_commit_is_called_one_batch_late_and_never_for_the_last(
    two_batches: Bench,
) -> None:
    assert [event["end"] for event in two_batches.events("source.commit")] == [3]


def test_a_source_has_one_process_for_the_whole_query(two_batches: Bench) -> None:
    driver = two_batches.events("initialOffset", "latestOffset", "partitions", "source.commit")
    assert len({event["pid"] for event in driver}) == 1


def test_sink_commits_share_a_process_separate_from_the_first_writer(two_batches: Bench) -> None:
    first, before_commit, *_ = two_batches.events("streamWriter")
    commits = {event["pid"] for event in two_batches.events("sink.commit")}
    assert commits == {before_commit["pid"]}
    assert first["pid"] not in commits
    made = [event["is_for_commits"] for event in two_batches.events("streamWriter")]
    assert made == [False, True, False, True]


def test_option_names_arrive_in_lower_case_and_values_unchanged(
    two_batches: Bench,
) -> None:
    options = two_batches.events("streamWriter")[0]["options"]
    assert options["camelcasename"] == "VaLue"
    assert options["queryname"] == "My Query"
    assert options["checkpointlocation"] == str(two_batches.checkpoint_folder)
    assert all(name == name.lower() for name in options)


def test_tasks_see_query_batch_and_run_and_sink_commit_does_not(two_batches: Bench) -> None:
    query_id = two_batches.checkpoint.query_id()
    for event in two_batches.events("read", "write"):
        assert event["sql.streaming.queryId"] == query_id
        assert event["streaming.sql.batchId"] in ("0", "1")
        assert event["spark.jobGroup.id"] not in (None, query_id)
        assert event[IS_TASK] == "yes"
    for event in two_batches.events("sink.commit"):
        assert event[IS_TASK] == "no"
        assert [event[name] for name in PROPERTIES] == [None] * len(PROPERTIES)
        batches = {identity["streaming.sql.batchId"] for identity in event["identities"]}
        assert batches == {str(event["batch_id"])}


def test_the_plugin_reads_the_checkpoint_that_spark_wrote(two_batches: Bench) -> None:
    checkpoint = two_batches.checkpoint
    assert (checkpoint.newest_batch(), checkpoint.newest_commit()) == (1, 1)
    found = [dict(checkpoint.batch_range(n, LOG_ID).ranges) for n in (0, 1)]
    assert found == [{P0: PartitionRange(0, 3)}, {P0: PartitionRange(3, 4)}]


# Replays.


def test_R28_replay_repeats_the_planned_batch_first_in_a_new_run(bench: Bench) -> None:
    bench.put(4)
    bench.run(bench.source())
    planned, runs = bench.checkpoint.plan(), run_ids(bench)
    bench.lose_commit(0)
    bench.forget()
    bench.put(9)
    bench.run(bench.source())
    replayed, *_ = bench.events("partitions", "latestOffset")
    assert (replayed["what"], replayed["start"], replayed["end"]) == ("partitions", 0, 4)
    # Spark requests again the start of batch 0, which it does not store (R20).
    assert len(bench.events("initialOffset")) == 1
    assert [event["batch_id"] for event in bench.events("sink.commit")] == [0, 1]
    bench.checkpoint.require_plan(planned)
    # The query's own session, the same in all batches (R27).
    assert len(runs) == len(run_ids(bench)) == 1
    assert runs.isdisjoint(run_ids(bench))
    queries = {event["sql.streaming.queryId"] for event in bench.events("write")}
    assert queries == {bench.checkpoint.query_id()}


def run_ids(bench: Bench) -> set[str]:
    """The runs of the recorded tasks."""
    return {
        run_of(event[JOB_TAGS], "no tag of a root execution") for event in bench.events("write")
    }


def test_R23_watermark_only_batch_repeats_the_offsets_line_and_emits_rows(bench: Bench) -> None:
    bench.put(10)
    windows = bench.source().withWatermark("at", "0 seconds").groupBy(window("at", "2 seconds"))
    bench.run(windows.count())
    assert bench.lines(0) == bench.lines(1)
    assert len(bench.events("partitions")) == 1
    emitted = [sum(event["rows"]) for event in bench.events("sink.commit")]
    assert emitted[0] == 0
    assert emitted[1] > 0
    assert bench.checkpoint.batch_range(1, LOG_ID).ranges == {}
    first, second = bench.checkpoint.offsets(0), bench.checkpoint.offsets(1)
    assert first.fingerprint != second.fingerprint


def test_R26_abort_after_a_failed_commit_receives_all_messages_in_another_process(
    bench: Bench,
) -> None:
    bench.put(4)
    (bench.folder / "failing").touch()
    with pytest.raises(PySparkException, match="asked to fail in commit"):
        bench.run(bench.source(), fail="commit", failing=str(bench.folder / "failing"))
    (committed,), (aborted,) = bench.events("sink.commit"), bench.events("sink.abort")
    assert aborted["rows"] == committed["rows"] == [2, 2]
    assert aborted["pid"] != committed["pid"]


def test_abort_after_a_failed_task_receives_none_for_that_task(bench: Bench) -> None:
    bench.put(4)
    (bench.folder / "failing").touch()
    with pytest.raises(PySparkException, match="asked to fail in write"):
        bench.run(bench.source(), fail="write", failing=str(bench.folder / "failing"))
    (aborted,) = bench.events("sink.abort")
    assert aborted["batch_id"] == 0
    assert None in aborted["rows"]


def test_batch_without_partitions_still_has_one_commit_message(bench: Bench) -> None:
    bench.put(4)
    bench.run(bench.source(empty="yes"))
    assert [event["rows"] for event in bench.events("sink.commit")] == [[0]]


# The offset log with several sources.


def test_R21_self_union_shares_the_reader_and_repeats_the_offsets_line(bench: Bench) -> None:
    bench.put(4)
    numbers = bench.source()
    bench.run(numbers.union(numbers))
    first, second = bench.lines(0)
    assert first == second
    assert len({event["pid"] for event in bench.events("latestOffset")}) == 1
    assert dict(bench.checkpoint.batch_range(0, LOG_ID).ranges) == {P0: PartitionRange(0, 4)}


@pytest.mark.parametrize("version", ["1", "2"])
def test_R25_offsets_line_of_another_source_is_recognised_in_both_versions(
    bench: Bench, settings: Callable[[str, str], None], version: str
) -> None:
    settings("spark.sql.streaming.offsetLog.formatVersion", version)
    bench.put(4)
    files = bench.folder / "files"
    files.mkdir()
    others = bench.spark.readStream.schema("n bigint, at timestamp").json(str(files))
    bench.run(others.union(bench.source()))
    assert bench.checkpoint.offsets(0).version == int(version)
    # In version 1 the line of a source without an offset is a dash; in version 2 it is missing.
    expected = ("0",) if version == "1" else ()
    assert bench.checkpoint.batch_range(0, LOG_ID).others == expected
    (files / "one.json").write_text('{"n": 1}\n')
    bench.put(5)
    bench.run(others.union(bench.source()))
    found = bench.checkpoint.batch_range(1, LOG_ID)
    assert found.others == ("0",)
    assert dict(found.ranges) == {P0: PartitionRange(4, 5)}


def test_R25_named_sources_are_keys_of_the_offset_log(
    bench: Bench, settings: Callable[[str, str], None]
) -> None:
    settings("spark.sql.streaming.offsetLog.formatVersion", "2")
    settings("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true")
    bench.put(4)
    bench.run(bench.source("zeta").union(bench.source("alpha", group="h")))
    assert set(bench.checkpoint.offsets(0).lines) == {"zeta", "alpha"}
    other = GroupTopicPartition("h", "numbers", 0)
    assert set(bench.checkpoint.batch_range(0, LOG_ID).ranges) == {P0, other}


# The checkpoint's place.


def test_R22_sink_does_not_receive_the_session_checkpoint_location(
    bench: Bench, settings: Callable[[str, str], None]
) -> None:
    settings("spark.sql.streaming.checkpointLocation", str(bench.folder / "all"))
    bench.put(1)
    writer = bench.source().writeStream.format("recording")
    query = writer.option("events", str(bench.folder / "events")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert "checkpointlocation" not in bench.events("streamWriter")[0]["options"]


@pytest.mark.parametrize("form", ["file:{}/", "relative"])
def test_R24_checkpoint_location_arrives_as_written_and_the_plugin_opens_it(
    bench: Bench, form: str
) -> None:
    written = form.format(bench.checkpoint_folder)
    if form == "relative":
        written = os.path.relpath(bench.checkpoint_folder)
    bench.put(1)
    bench.run(bench.source(), checkpointLocation=written)
    (event,) = bench.events("sink.commit")
    assert bench.events("streamWriter")[0]["options"]["checkpointlocation"] == written
    identity = event["identities"][0]
    open_checkpoint(written, Runtime()).require_query(identity["sql.streaming.queryId"])


@pytest.mark.parametrize(
    "location",
    [
        "/a//b/../c%20d/./e f/",
        "file:/a/b",
        "file:///a/b c/",
        "rel/cp a",
        "./x:y/cp",
        "../cp",
        "/a/x:y?z#w+v",
        "s3a://bucket/a/../b/",
        "hdfs://name:8020//a",
    ],
)
def test_R24_checkpoint_location_resolves_as_in_hadoop(spark: SparkSession, location: str) -> None:
    jvm = spark._jvm
    assert jvm is not None
    base = jvm.java.net.URI("file:///")
    folder = jvm.org.apache.hadoop.fs.Path(f"file:{os.getcwd()}")
    path = jvm.org.apache.hadoop.fs.Path(location).makeQualified(base, folder)
    uri, place = path.toUri(), locate(location)
    assert (place.scheme, place.authority, place.path) == (
        uri.getScheme(),
        uri.getAuthority() or "",
        uri.getPath(),
    )


# The folder of its sockets.


def test_worker_sockets_are_in_a_folder_private_to_the_owner(spark: SparkSession) -> None:
    """With only SPARK_CONF_DIR Spark accepts any process that connects, without a secret."""
    setting = spark.sparkContext.getConf().get("spark.python.unix.domain.socket.dir")
    assert setting is not None
    folder = Path(setting)
    assert stat.S_IMODE(folder.lstat().st_mode) == 0o700
    # The accumulators' socket exists as long as the session.
    assert any(stat.S_ISSOCK(file.lstat().st_mode) for file in folder.iterdir())


# The information about the query that a sink gets, and that it does not get.


def test_complete_mode_sets_overwrite_and_update_mode_is_refused(bench: Bench) -> None:
    bench.put(4)
    with pytest.raises(PySparkException, match="does not support Update mode"):
        bench.run(bench.source().groupBy("n").count(), "update")
    bench.run(bench.source().groupBy().count(), "complete", checkpointLocation=f"{bench.folder}/c")
    assert bench.events("streamWriter")[0]["overwrite"] is True


def test_R30_foreach_batch_tasks_see_the_batch_and_commit_runs_in_another_process(
    bench: Bench,
) -> None:
    bench.put(4)
    events = str(bench.folder / "events")

    def write(frame: DataFrame, batch_id: int) -> None:
        frame.write.format("recording").mode("append").option("events", events).save()

    query = (
        bench.source()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(bench.checkpoint_folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    for event in bench.events("batch.write"):
        assert event["sql.streaming.queryId"] == bench.checkpoint.query_id()
        assert event["streaming.sql.batchId"] == "0"
    (committed,) = bench.events("batch.commit")
    assert committed["rows"] == [2, 2]
    assert committed["made_here"] is False
    assert committed[IS_TASK] == "no"
    assert [committed[name] for name in PROPERTIES] == [None] * len(PROPERTIES)


def test_sink_receives_timestamps_in_the_session_time_zone(
    bench: Bench, settings: Callable[[str, str], None]
) -> None:
    settings("spark.sql.session.timeZone", "America/New_York")
    bench.put(4)
    bench.run(bench.source())
    assert bench.events("write")[0]["types"] == ["int64", "timestamp[us, tz=America/New_York]"]


def test_a_year_month_interval_fails_inside_the_task(bench: Bench) -> None:
    """`frame_schema` refuses such a column when the writer is created, because of this."""
    bench.put(4)
    with pytest.raises(PySparkException, match="KeyError"):
        bench.run(bench.source().selectExpr("n", "interval '1' year AS months"))
