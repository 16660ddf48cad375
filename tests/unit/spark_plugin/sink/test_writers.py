"""The writers as Spark calls them, without Spark: made on the driver, pickled to the tasks, whose
messages are pickled to a commit in another process of the driver."""

import json
import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import LongType, StringType, StructType

from spark_plugin.options import parse_writer_options
from spark_plugin.python_worker import BATCH_ID, COMMITTER, JOB_GROUP, NO_BATCH, QUERY_ID
from spark_plugin.sink.batch_writer import TxlogBatchWriter
from spark_plugin.sink.staging import TaskMessage
from spark_plugin.sink.stream_writer import TxlogStreamWriter
from tests.logs.empty_log import empty_log
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.engine import connection
from txlog.errors import (
    CheckpointConflict,
    InternalError,
    InvalidOption,
    NotATxlog,
    TxlogError,
    UnknownTopic,
)
from txlog.verify.invariants import check_log

FRAME = StructType().add("n", LongType()).add("topic", StringType())
ONLY_NUMBERS = StructType().add("n", LongType())
NUMBERS = pa.schema([("n", pa.int64())])
ROWS = ({"n": [1, 2, 3], "topic": ["a", "b", "b"]}, {"n": [4, 5], "topic": ["b", "a"]})
STREAM, FOREACH, OFFSETS, VERSION, JOB = (
    "stream",
    "foreach",
    "foreach with offsets",
    "version",
    "job",
)
KINDS = (STREAM, FOREACH, OFFSETS, VERSION, JOB)
REPEATED = KINDS[:4]
"""Kinds of writes that a second attempt does not repeat."""


@dataclass
class Spark:
    """A driver with a log, and the calls that Spark makes for a write."""

    folder: Path
    patch: pytest.MonkeyPatch
    kind: str = JOB
    given: dict[str, str] = field(default_factory=dict)
    frame: StructType = FRAME

    @property
    def root(self) -> str:
        """The log's place."""
        return str(self.folder / "log")

    def create(self) -> "Spark":
        """Create the log, with the topics of ROWS."""
        empty_log(Path(self.root))
        for name in ("a", "b"):
            Admin(self.root).create_topic(name, 1, NUMBERS)
        return self

    def planned(self, batch: int) -> Path:
        """The query's checkpoint after Spark has planned a batch."""
        checkpoint = self.folder / "checkpoint"
        (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
        (checkpoint / "metadata").write_text(json.dumps({"id": "query"}))
        for number in range(batch + 1):
            plan = f'v1\n{{"batchWatermarkMs":0}}\n{{"n":{number}}}'
            (checkpoint / "offsets" / str(number)).write_text(plan)
        return checkpoint

    def writer(self, batch: int = 0) -> Any:
        """The writer of a batch or job, made as by Spark's planner."""
        asked = {"path": self.root, **self.given}
        if self.kind in (STREAM, OFFSETS):
            asked["checkpointLocation"] = str(self.planned(batch))
        if self.kind == VERSION:
            asked |= {"txnAppId": "app", "txnVersion": str(batch)}
        options = parse_writer_options(asked)
        if self.kind == STREAM:
            return TxlogStreamWriter.for_batch(options, self.frame)
        return TxlogBatchWriter.for_job(options, self.frame, overwrite=False)

    def task(
        self, writer: Any, batch: int, rows: Mapping[str, Any] | None, run: str = "run"
    ) -> TaskMessage:
        """Run a task in a process that has no connection yet."""
        is_plain = self.kind in (JOB, VERSION)
        in_query = {QUERY_ID: "query", BATCH_ID: str(batch), JOB_GROUP: run}
        batches = [] if rows is None else [pa.RecordBatch.from_pydict(dict(rows))]
        with self.patch.context() as patch:
            patch.setattr(connection, "_connections", {})
            patch.setattr(TaskContext, "_taskContext", None)
            TaskContext()._localProperties = {} if is_plain else in_query
            sent = pickle.loads(pickle.dumps(writer))
            found: TaskMessage = pickle.loads(pickle.dumps(sent.write(iter(batches))))
        return found

    def commit(self, writer: Any, batch: int, messages: list[Any]) -> None:
        """Commit in the process that Spark has for commits; a batch write's is the planner's."""
        if self.kind != STREAM:
            writer.commit(messages)
            return
        with self.patch.context() as patch:
            patch.setattr(connection, "_connections", {})
            patch.setitem(sys.modules, COMMITTER, ModuleType(COMMITTER))
            self.writer(batch).commit(messages, batch)

    def write(self, batch: int = 0, rows: tuple[Any, ...] = ROWS, run: str = "run") -> None:
        """Write a batch or job."""
        writer = self.writer(batch)
        self.commit(writer, batch, [self.task(writer, batch, each, run) for each in rows])

    def numbers(self, *topics: str) -> list[int]:
        """What a reader finds; the log is sound."""
        opened = connection.connect(self.root)
        assert check_log(opened) == []
        with Consumer(*topics, root=opened, auto_offset_reset="earliest") as consumer:
            polled = consumer.poll(timeout_ms=50)
        return sorted(record.value["n"] for found in polled.values() for record in found)


@pytest.fixture(params=KINDS)
def spark(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spark:
    """A driver; each kind of write by default."""
    return Spark(tmp_path, monkeypatch, request.param)


def of(*kinds: str) -> pytest.MarkDecorator:
    """Only these kinds of writes."""
    return pytest.mark.parametrize("spark", kinds, indirect=True)


def test_rows_of_all_tasks_are_committed_to_their_topics(spark: Spark) -> None:
    spark.create().write()
    assert (spark.numbers("a"), spark.numbers("b")) == ([1, 5], [2, 3, 4])


@of(*REPEATED)
@pytest.mark.parametrize("batch", [0, 3])
def test_I10_batch_written_again_by_a_later_run_changes_nothing(spark: Spark, batch: int) -> None:
    spark.create().write(batch)
    spark.write(batch, run="later run")
    assert spark.numbers("a", "b") == [1, 2, 3, 4, 5]
    spark.write(batch + 1, run="later run")
    assert spark.numbers("a", "b") == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


@of(JOB)
def test_plain_job_written_twice_is_written_twice(spark: Spark) -> None:
    spark.create().write()
    spark.write()
    assert spark.numbers("a", "b") == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


@of(STREAM, FOREACH, OFFSETS)
def test_message_names_query_run_batch_plan_and_log_of_the_task(spark: Spark) -> None:
    spark.create()
    writer = spark.writer(3)
    message = spark.task(writer, 3, ROWS[0])
    assert (message.query_id, message.run_id, message.batch_id) == ("query", "run", 3)
    assert message.is_of_batch
    assert (message.plan is None) == (spark.kind == FOREACH)
    assert message.plan is None or message.plan.batch_id == 3
    assert message.log is not None
    assert message.log.file == connection.connect(spark.root).cluster.file
    assert [topic.opened.name for topic in message.log.topics] == ["a", "b"]


@of(JOB)
def test_message_of_a_plain_job_names_no_batch(spark: Spark) -> None:
    spark.create()
    message = spark.task(spark.writer(), 0, ROWS[0])
    assert (message.query_id, message.batch_id, message.plan) == ("", NO_BATCH, None)
    assert not message.is_of_batch


@of(STREAM, FOREACH, OFFSETS)
def test_R1_tasks_of_two_runs_are_not_committed_together(spark: Spark) -> None:
    spark.create()
    writer = spark.writer()
    messages = [spark.task(writer, 0, ROWS[0], run) for run in ("run", "later run")]
    with pytest.raises(CheckpointConflict, match="another run of this query uses the checkpoint"):
        spark.commit(writer, 0, messages)
    assert spark.numbers("a", "b") == []


@of(STREAM)
def test_R1_task_of_another_batch_than_the_writer_planned_stages_nothing(spark: Spark) -> None:
    writer = spark.create().writer(3)
    with pytest.raises(CheckpointConflict, match="batch 4, but the newest .* was 3") as refused:
        spark.task(writer, 4, ROWS[0])
    assert refused.value.facts == {"batch_id": 4, "planned": 3}
    assert list(Path(spark.root).rglob("*.arrow")) == []


@of(STREAM)
def test_R1_writer_made_for_a_commit_stages_nothing(spark: Spark) -> None:
    spark.create()
    with spark.patch.context() as patch:
        patch.setitem(sys.modules, COMMITTER, ModuleType(COMMITTER))
        writer = spark.writer()
    with pytest.raises(CheckpointConflict, match="newest plan in the checkpoint was None"):
        spark.task(writer, 0, ROWS[0])


def test_commit_without_a_message_of_any_task_commits_nothing(spark: Spark) -> None:
    writer = spark.create().writer()
    if spark.kind == STREAM:
        with pytest.raises(InternalError, match="came without a message"):
            spark.commit(writer, 0, [None])
    else:
        spark.commit(writer, 0, [None])
    assert spark.numbers("a", "b") == []


def test_task_that_sees_another_log_stages_nothing(spark: Spark) -> None:
    """As on an executor with another disk at the same place."""
    spark.create()
    writer, place = spark.writer(), Path(spark.root)
    place.rename(spark.folder / "the driver's")
    Admin(spark.root, create=True)
    before = sorted(place.rglob("*"))
    with pytest.raises(NotATxlog, match="this executor does not see the driver's log"):
        spark.task(writer, 0, ROWS[0])
    assert sorted(path for path in place.rglob("*") if path.is_file()) == [
        path for path in before if path.is_file()
    ]


@pytest.mark.parametrize("has_rows", [True, False])
def test_topic_option_creates_the_topic_also_without_rows(spark: Spark, has_rows: bool) -> None:
    """A task without rows has not looked for its topic."""
    empty_log(Path(spark.root))
    spark.given, spark.frame = {"topic": "new"}, ONLY_NUMBERS
    spark.write(0, ({"n": [1]},) if has_rows else (None,))
    assert Admin(spark.root).list_topics() == ["new"]
    assert spark.numbers("new") == ([1] if has_rows else [])


@of(STREAM, FOREACH, OFFSETS, VERSION)
@pytest.mark.parametrize("is_named", [True, False])
def test_topic_missing_after_the_first_batch_is_not_created_again(
    spark: Spark, is_named: bool
) -> None:
    spark.create()
    rows: tuple[Any, ...] = ROWS
    if is_named:
        spark.given, spark.frame, rows = {"topic": "a"}, ONLY_NUMBERS, ({"n": [1]},)
    spark.write(0, rows)
    Admin(spark.root).delete_topics("a")
    with pytest.raises(UnknownTopic, match="'a'"):
        spark.write(1, rows)
    assert Admin(spark.root).list_topics() == ["b"]


def test_option_for_missing_topics_decides_in_every_batch(spark: Spark) -> None:
    rows = ({"n": [1], "topic": ["c"]},)
    spark.create().given = {"createTopics": "false"}
    with pytest.raises(UnknownTopic, match="'c'"):
        spark.write(0, rows)
    assert Admin(spark.root).list_topics() == ["a", "b"]
    spark.write(0)
    spark.given = {"createTopics": "true"}
    spark.write(1, rows)
    assert spark.numbers("c") == [1]


@of(STREAM, FOREACH, OFFSETS)
def test_log_missing_in_a_later_batch_is_not_written_into(spark: Spark) -> None:
    said = "a running query does not go on in another one" if spark.kind == FOREACH else "no log"
    with pytest.raises(NotATxlog, match=said):
        spark.write(1)
    assert not list(Path(spark.root).rglob("*.arrow"))


def test_missing_log_is_created_in_any_batch_if_the_option_says_so(spark: Spark) -> None:
    spark.given = {"createTopics": "false"}
    with pytest.raises(NotATxlog, match="no log"):
        spark.write(0)
    assert not Path(spark.root).exists()
    spark.given = {"createTopics": "true"}
    spark.write(1)
    assert spark.numbers("a", "b") == [1, 2, 3, 4, 5]


def test_log_missing_at_the_first_batch_is_created(spark: Spark) -> None:
    spark.write(0)
    assert spark.numbers("a", "b") == [1, 2, 3, 4, 5]


@of(JOB)
@pytest.mark.parametrize("option", ["label", "checkpointLocation"])
def test_R30_option_of_a_batch_is_refused_where_spark_names_no_batch(
    spark: Spark, option: str
) -> None:
    spark.create()
    spark.given = {option: str(spark.planned(0))}
    writer = spark.writer()
    with pytest.raises(InvalidOption, match=f"option '{option}' is for a write within") as refused:
        spark.task(writer, 0, ROWS[0])
    assert refused.value.facts["option"] == option


@of(VERSION)
def test_R30_label_of_a_version_needs_no_batch(spark: Spark) -> None:
    spark.create().given = {"label": "copy"}
    spark.write()
    spark.write()
    assert spark.numbers("a", "b") == [1, 2, 3, 4, 5]


@of(VERSION)
def test_task_of_a_version_in_the_log_reads_its_rows_to_the_end_and_stages_none(
    spark: Spark,
) -> None:
    spark.create().write(1)
    staged = sorted(Path(spark.root).rglob("*.arrow"))
    rows = [pa.RecordBatch.from_pydict(dict(each)) for each in ROWS]
    left = iter(rows)
    writer = spark.writer(1)
    with spark.patch.context() as patch:
        patch.setattr(TaskContext, "_taskContext", None)
        TaskContext()._localProperties = {}
        assert writer.write(left).staged == ()
    assert next(left, None) is None
    assert sorted(Path(spark.root).rglob("*.arrow")) == staged


@of(JOB)
def test_job_has_the_transactional_id_of_its_options(spark: Spark) -> None:
    spark.create().given = {"transactional.id": "mine"}
    spark.write()
    opened = connection.connect(spark.root)
    known = [name for each in opened.caught_up() for name in each.state.ids]
    assert known == ["mine"]


@of(STREAM, FOREACH)
def test_error_of_a_task_names_its_host(spark: Spark) -> None:
    writer = spark.create().writer()
    with pytest.raises(TxlogError, match=r"on host \S+"):
        spark.task(writer, 0, {"n": [1], "topic": [None]})
