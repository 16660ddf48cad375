"""Executors that see another disk than the driver: nothing is acknowledged that no reader finds.

The executor is a process of its own, with another file system at the log's place. It gets the real
writers and readers, and its messages come back, as bytes.
"""

import json
import pickle
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructType

from spark_plugin.options import parse_reader_options, parse_writer_options
from spark_plugin.python_worker import BATCH_ID, JOB_GROUP, QUERY_ID
from spark_plugin.sink.batch_writer import TxlogBatchWriter
from spark_plugin.sink.staging import TaskMessage
from spark_plugin.sink.stream_writer import TxlogStreamWriter
from spark_plugin.source.batch_reader import TxlogBatchReader
from tests.integration import other_disk_worker as worker
from tests.logs.empty_log import empty_log
from tests.processes.forked_process import run_forked
from txlog.client.admin import Admin
from txlog.engine.connection import connect
from txlog.errors import NotATxlog
from txlog.verify.invariants import check_log

pytestmark = pytest.mark.slow

FRAME = StructType().add("n", LongType()).add("topic", StringType())
READ = StructType().add("n", LongType())
NUMBERS = pa.schema([("n", pa.int64())])
KINDS = ("batch", "foreach", "stream")
TOPICS = ("one", "three")
"""Topics with one partition and with three."""


SAID = (
    "): this executor does not see the driver's log (another disk?): use an object store or a "
    "shared file system"
)


@dataclass
class Write:
    """A write of two tasks."""

    kind: str
    writer: Any
    properties: dict[str, str]

    def tasks(self) -> list[worker.Task]:
        rows = [{"n": [n, n + 1, n + 2], "topic": ["one", "three", "three"]} for n in (0, 10)]
        return [(self.writer, "write", each, self.properties) for each in rows]

    def commit(self, messages: list[TaskMessage]) -> None:
        batch = (0,) if self.kind == "stream" else ()
        self.writer.commit(messages, *batch)


class Driver:
    """A driver, whose disk at `~` has the log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        # A name of its own: a process keeps its connections by their roots.
        self.root = f"~/{folder.name}/log"
        self.place = self.home / folder.name / "log"
        self.home.mkdir()

    def create(self, *, with_topics: bool = True) -> Admin:
        """The log, and the topics."""
        empty_log(self.place)
        admin = Admin(self.root)
        if with_topics:
            for partitions, name in zip((1, 3), TOPICS, strict=True):
                admin.create_topic(name, partitions, NUMBERS)
        return admin

    def write(self, kind: str) -> Write:
        """The writer of a job, made as Spark's planner does."""
        asked = {"root": self.root}
        properties = {QUERY_ID: f"query of {kind}", BATCH_ID: "0", JOB_GROUP: "run"}
        if kind == "stream":
            checkpoint = self.folder / "checkpoint"
            (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
            (checkpoint / "metadata").write_text(json.dumps({"id": properties[QUERY_ID]}))
            (checkpoint / "offsets" / "0").write_text('v1\n{"batchWatermarkMs":0}\n{"n":1}')
            options = parse_writer_options({**asked, "checkpointLocation": str(checkpoint)})
            return Write(kind, TxlogStreamWriter.for_batch(options, FRAME), properties)
        options = parse_writer_options(asked if kind == "batch" else {**asked, "label": "copy"})
        writer = TxlogBatchWriter.for_job(options, FRAME, overwrite=False)
        return Write(kind, writer, {} if kind == "batch" else properties)

    def elsewhere(self, tasks: list[worker.Task], content: Path | None = None) -> list[Any]:
        """What the tasks return, or raise, where the disk has that content; and its files then."""
        sent, answers = self.folder / "tasks", self.folder / "answers"
        sent.write_bytes(pickle.dumps(tasks))
        ended = run_forked(worker.main, self.home, content, sent, answers)
        assert ended.status == 0, ended.err
        found: list[Any] = pickle.loads(answers.read_bytes())
        return found

    def copy(self) -> Path:
        """A copy of the disk as it is now."""
        return Path(shutil.copytree(self.home, self.folder / "copy"))

    def another(self) -> Path:
        """A disk with another log at the same place."""
        home = self.folder / "another"
        # With an id of its own: all empty logs of the tests have the same.
        Admin(str(home / self.folder.name / "log"), create=True)
        return home

    def ends(self) -> dict[str, list[int]]:
        """The end offsets of each topic. The log is sound."""
        assert check_log(connect(self.root)) == []
        described = Admin(self.root).describe_topics()
        return {topic.name: [p.end_offset for p in topic.partitions] for topic in described}


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A driver, whose home is in a folder of this test."""
    driver = Driver(tmp_path)
    monkeypatch.setenv("HOME", str(driver.home))
    return driver


def refused(answers: list[Any]) -> None:
    """Every task was refused, and said on which host and why."""
    assert answers
    for error in answers:
        assert isinstance(error, NotATxlog), error
        assert error.message.startswith(f"on host {socket.gethostname()} (")
        assert SAID in error.message


def test_first_tasks_of_a_new_log_on_an_empty_disk_write_nothing(driver: Driver) -> None:
    """Regression: the executor of a batch write created a second log and staged its rows there."""
    tasks = [task for kind in KINDS for task in driver.write(kind).tasks()]
    *answers, left = driver.elsewhere(tasks)
    assert left == []
    refused(answers)
    assert driver.ends() == {}


@pytest.mark.parametrize("disk", ["empty", "another log", "older copy"])
def test_tasks_on_another_disk_neither_write_nor_read(driver: Driver, disk: str) -> None:
    """With failOnDataLoss=false, too: records that are not on this disk are not deleted ones."""
    driver.create()
    content = {"empty": None, "another log": driver.another(), "older copy": driver.copy()}[disk]
    filled = driver.write("batch")
    filled.commit([worker.run(task) for task in filled.tasks()])
    ends = driver.ends()
    tasks = [task for kind in KINDS for task in driver.write(kind).tasks()]
    for loses in ("true", "false"):
        asked = {"root": driver.root, "subscribe": "one,three", "failOnDataLoss": loses}
        reader = TxlogBatchReader(parse_reader_options(asked, streaming=False), READ)
        reads: list[worker.Task] = [(reader, "read", task, {}) for task in reader.partitions()]
        assert [sum(rows) for rows in map(worker.run, reads)] == [6]
        # A copy has the log's id, so a task that writes does not notice it; the commit does.
        tasks = [*reads, *(() if disk == "older copy" else tasks)]
    *answers, left = driver.elsewhere(tasks, content)
    refused(answers)
    if disk != "older copy":
        assert [path for path in left if path.endswith("arrow")] == []
    assert driver.ends() == ends


def test_commit_refuses_segments_that_only_a_copy_of_the_disk_has(driver: Driver) -> None:
    driver.create()
    ends, writes = driver.ends(), [driver.write(kind) for kind in KINDS]
    tasks = [task for write in writes for task in write.tasks()]
    *messages, _ = driver.elsewhere(tasks, driver.copy())
    for place, write in enumerate(writes):
        with pytest.raises(NotATxlog, match=r"does not have topics/.*another disk.*: use an"):
            write.commit(messages[2 * place :][:2])
    assert driver.ends() == ends


def test_commit_refuses_topics_that_only_a_copy_of_the_disk_has(driver: Driver) -> None:
    """Regression: it began their journals, with one partition each."""
    driver.create(with_topics=False)
    writes = [driver.write(kind) for kind in KINDS]
    tasks = [task for write in writes for task in write.tasks()]
    *messages, _ = driver.elsewhere(tasks, driver.copy())
    for place, write in enumerate(writes):
        with pytest.raises(NotATxlog, match="has never had a topic .*another disk.*: use an"):
            write.commit(messages[2 * place :][:2])
    assert driver.ends() == {}
    assert not (driver.place / "topics").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_on_the_drivers_disk_are_committed(driver: Driver, kind: str) -> None:
    driver.create()
    write = driver.write(kind)
    write.commit([worker.run(task) for task in pickle.loads(pickle.dumps(write.tasks()))])
    assert {name: sum(ends) for name, ends in driver.ends().items()} == {"one": 2, "three": 4}


def test_later_batch_does_not_go_on_in_a_log_that_was_created_for_it(driver: Driver) -> None:
    """Only its tasks know that it is not the first batch. A restarted query may go on."""
    write = driver.write("foreach")
    write.properties[BATCH_ID] = "7"
    for error in map(worker.run, write.tasks()):
        assert "when batch 7 began, and a running query does not go on" in str(error)
    again = driver.write("foreach")
    again.properties[BATCH_ID] = "7"
    again.commit([worker.run(task) for task in again.tasks()])
    assert {name: sum(ends) for name, ends in driver.ends().items()} == {"one": 2, "three": 4}
