"""The metadata that the driver passes to its tasks: enough to stage records, not to decide."""

import pickle

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from txlog.catalog.cluster import LogMetadata
from txlog.engine.connection import Connection, open_connection
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import InternalError, NotATxlog
from txlog.layout import CLUSTER_FILE
from txlog.settings import LogSettings
from txlog.sorted_map import SortedMap
from txlog.testing.round_trips import RoundTrips
from txlog.topic.events import AdvanceHorizon, AppendBatches
from txlog.topic.records.conversion import with_timestamp
from txlog.topic.topic_log import TopicLog

TRUSTING = LogSettings(boundary_trust_ms=1_000, boundary_grace_ms=7_000)
NUMBERS = pa.schema([("n", pa.int64())])
ROWS = with_timestamp(pa.RecordBatch.from_pydict({"n": [1, 2]}, NUMBERS), 0)


class Driver:
    """A log whose driver has pickled its metadata, and a task's process that has the copy."""

    def __init__(self) -> None:
        self.log = MemoryLog(TRUSTING)
        self.log.admin.create_topic("out", 3, NUMBERS, {"compression.type": "zstd"})
        known = self.log.connection.cluster.topic("out")
        copied = pickle.dumps(LogMetadata.of(self.log.connection.cluster, [known]))
        self.metadata: LogMetadata = pickle.loads(copied)
        self.rounds = RoundTrips(self.log.memory)

    def task(self) -> Connection:
        """A process that has made no request yet; each of its requests takes a round trip."""
        return open_connection(
            self.rounds.store, self.rounds.runtime, cluster_file=self.metadata.file
        )

    def asked(self, part: str = "") -> list[str]:
        """Verbs of the requests whose paths contain `part`."""
        return [request.verb for request in self.rounds.store.requests if part in request.path]

    def topic(self) -> TopicLog:
        """The topic, opened in a new task's process."""
        (known,) = self.metadata.topics
        return known.within(self.task().cluster)


def test_task_stages_records_with_a_single_write_and_no_reads() -> None:
    driver = Driver()
    topic = driver.topic()
    segment = topic.stage({0: [ROWS]}, topic.state.newest_schema_id)
    assert driver.asked() == ["put_new"]
    assert topic.schema() == NUMBERS
    assert len(topic.state.partitions) == 3
    assert topic.state.config.compression_type == "zstd"
    assert segment.path.startswith(f"topics/out/{topic.topic_id}/segments/")


def test_segment_names_are_above_the_drivers_staging_horizon() -> None:
    driver = Driver()
    horizon = f"{driver.log.clock.wall_ms() + 10_000:012x}" + "0" * 20
    state = driver.topic().state
    topic = driver.topic()
    topic.journal.show(type(state)(topic_id=state.topic_id, name=state.name, horizon=horizon))
    assert topic.new_name() > horizon


def test_R17_rows_of_a_task_are_committed_after_a_vacuum_whose_clock_was_ahead() -> None:
    """The vacuum has raised the topic's staging horizon above this process's clock."""
    driver = Driver()
    log = driver.log
    ahead_ms = log.clock.wall_ms() + 400 * 86_400_000
    known = log.connection.cluster.topic("out")
    known.execute(AdvanceHorizon(f"{ahead_ms:012x}" + "0" * 20))
    (metadata,) = LogMetadata.of(log.connection.cluster, [known]).topics
    topic = metadata.within(driver.task().cluster)
    known.execute(AppendBatches((topic.stage({0: [ROWS]}, 0),)))
    assert [row["n"] for row in log.values("out")] == [1, 2]


def test_R31_handed_over_state_is_readable_but_decides_nothing() -> None:
    """The task reads the boundary itself and decides by the journal alone."""
    driver = Driver()
    topic = driver.topic()
    shown = topic.state
    topic.journal.show(
        type(shown)(
            topic_id=topic.topic_id, name="out", schemas=SortedMap({0: "a", 1: "b"}), horizon="f"
        )
    )
    assert list(topic.state.schemas.values()) == ["a", "b"]
    state = topic.catch_up(linearizable=True)
    assert state == driver.log.connection.cluster.present_topic("out", linearizable=True).state
    assert driver.asked("/boundaries/")
    topic.journal.show(shown)
    assert topic.state == state, "what this process has read is not replaced"


def test_R35_a_registered_instance_cannot_be_handed_over() -> None:
    driver = Driver()
    session = TransactionSession(driver.log.connection, "id")
    session.register("run")
    with pytest.raises(InternalError, match="R35"):
        pickle.dumps(session)


def test_deleted_log_is_detected_with_the_first_journal_request() -> None:
    driver = Driver()
    driver.log.memory.delete(CLUSTER_FILE)
    task = driver.task()
    with pytest.raises(NotATxlog, match="is gone"):
        task.cluster.topic("out").catch_up()


def test_topic_learned_from_the_driver_is_not_looked_up() -> None:
    driver = Driver()
    task = driver.task()
    (known,) = driver.metadata.topics
    task.cluster.learn_topic(known.opened)
    assert task.cluster.topic_of_id("out", known.opened.topic_id).topic_id == known.opened.topic_id
    assert driver.asked() == []
