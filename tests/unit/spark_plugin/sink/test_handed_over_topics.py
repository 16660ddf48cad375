"""Topics that the driver has read and passes to its tasks; they may have changed since."""

from collections.abc import Sequence

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from spark_plugin.options import parse_writer_options
from spark_plugin.sink import sink_topics
from spark_plugin.sink.sink_topics import Creation, SinkTopics, topics_of_rows
from spark_plugin.sink.staging import Staging
from tests.logs.memory_log import MemoryLog
from tests.stores.faulty_stores import HookedStore
from tests.unit.client.far_log import FarLog
from txlog.catalog.cluster import LogMetadata
from txlog.coordinator.events import Participant
from txlog.engine.connection import Connection
from txlog.journal.replication.opening import FIRST_ENTRIES
from txlog.testing.counting_store import CountingStore

FRAME = StructType().add("n", LongType()).add("topic", StringType())
WITH_M = StructType().add("n", LongType()).add("topic", StringType()).add("m", LongType())
WITH_P = StructType().add("n", LongType()).add("topic", StringType()).add("p", IntegerType())
N = pa.schema([("n", pa.int64())])
WITH_COLUMN_M = pa.schema([("n", pa.int64()), ("m", pa.int64())])
NAMES = ("a", "b", "c")


@pytest.fixture
def log() -> MemoryLog:
    log = MemoryLog()
    for name in NAMES:
        log.admin.create_topic(name, 2, N)
    return log


def far(log: MemoryLog) -> Connection:
    """A process to which the log is far away."""
    return log.process(HookedStore(log.memory))


def planned(
    process: Connection, frame: StructType = FRAME, allowed: Creation = Creation.NONE
) -> LogMetadata:
    """What the driver passes to the tasks of a batch whose rows name their topics."""
    options = parse_writer_options({"path": "memory://log"})
    return SinkTopics(process, options, frame, allowed).prepared()


def names(metadata: LogMetadata) -> list[str]:
    return [topic.opened.name for topic in metadata.topics]


def staged(
    process: Connection,
    metadata: LogMetadata,
    columns: dict[str, Sequence[object]],
    frame: StructType = FRAME,
    **options: str,
) -> tuple[Participant, ...]:
    """Stage rows in one task of that batch."""
    parsed = parse_writer_options({"path": "memory://log", "createTopics": "false", **options})
    staging = Staging(process, parsed, frame, Creation.NONE, metadata.topics)
    return staging.add_all([pa.record_batch(columns)])


def rows(*topics: str, **others: Sequence[object]) -> dict[str, Sequence[object]]:
    return {"n": list(range(len(topics))), "topic": list(topics), **others}


def test_driver_passes_all_topics_of_a_far_log_and_none_of_a_near_one(log: MemoryLog) -> None:
    assert names(planned(far(log))) == ["a", "b", "c"]
    assert names(planned(log.process())) == []


def test_driver_that_starts_asks_for_nothing_twice_and_reads_all_topics_in_one_wait() -> None:
    """The boundary, the hint and the first entries of each topic at once (design note 0026); later
    batches ask for the next entry only."""
    log = FarLog()
    for number in range(6):
        log.admin.create_topic(f"t{number}", 2, N)
    driver = log.process()
    assert log.rounds.waits(lambda: topics_of_rows(driver, waits=True)) <= 3
    asked = [request.path for request in log.rounds.store.requests]
    assert len(asked) == len(set(asked))
    of_topics = [path for path in asked if path.startswith("topics/")]
    assert len(of_topics) == 6 * (2 + FIRST_ENTRIES)
    # The next batch still asks for as many entries as the opening found, and one more.
    topics_of_rows(driver, waits=True)
    log.rounds.store.requests.clear()
    topics_of_rows(driver, waits=True)
    again = [request.path for request in log.rounds.store.requests]
    assert len([path for path in again if path.startswith("topics/")]) == 6


def test_topic_that_the_driver_does_not_know_yet_is_opened_by_the_task(log: MemoryLog) -> None:
    metadata = planned(far(log))
    log.admin.create_topic("new", 1, N)
    found = staged(far(log), metadata, rows("a", "new"))
    assert [topic.topic for topic in found] == ["a", "new"]


@pytest.mark.parametrize(
    ("limit", "value"), [("HANDED_OVER_MAX", 2), ("HANDED_OVER_BYTES_MAX", 100)]
)
def test_of_too_many_or_too_large_topics_the_driver_passes_none(
    log: MemoryLog, limit: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_topics, limit, value)
    metadata = planned(far(log))
    assert names(metadata) == []
    assert len(staged(far(log), metadata, rows("a", "b"))) == 2


def test_created_and_deleted_topics_are_learned_for_the_next_batch_without_a_wait(
    log: MemoryLog,
) -> None:
    driver = far(log)
    planned(driver)
    log.admin.create_topic("d", 1, N)
    log.admin.delete_topics(["a"])
    planned(driver)
    assert names(planned(driver)) == ["b", "c", "d"]


def test_driver_that_may_create_topics_again_reads_them_before_the_tasks_do(
    log: MemoryLog,
) -> None:
    driver = far(log)
    planned(driver)
    log.admin.delete_topics(["a"])
    assert names(planned(driver, allowed=Creation.ALL)) == ["b", "c"]


def test_damaged_topic_that_no_row_names_does_not_concern_the_query(log: MemoryLog) -> None:
    layout = log.connection.cluster.topic("b").layout
    for path in [path for path in log.objects() if path.startswith(layout.root)]:
        log.memory.delete(path)
    metadata = planned(far(log))
    assert names(metadata) == ["a", "c"]
    assert len(staged(far(log), metadata, rows("a", "c"))) == 2


def test_job_of_which_each_row_names_its_topic_gets_all_topics_as_well(log: MemoryLog) -> None:
    found = topics_of_rows(far(log), waits=True)
    assert [topic.name for topic in found] == ["a", "b", "c"]


# What has changed since the driver has read a topic.


def test_column_that_was_added_since_is_staged(log: MemoryLog) -> None:
    metadata = planned(far(log), WITH_M)
    log.admin.evolve_schema("a", WITH_COLUMN_M)
    (found,) = staged(far(log), metadata, rows("a", m=[1]), WITH_M)
    assert [segment.schema_id for segment in found.segments] == [1]


def test_partition_that_was_added_since_is_staged(log: MemoryLog) -> None:
    metadata = planned(far(log), WITH_P)
    log.admin.create_partitions("a", 3)
    p = pa.array([2], pa.int32())
    (found,) = staged(far(log), metadata, rows("a", p=p), WITH_P, partition="p")
    (segment,) = found.segments
    assert [batch.partition for batch in segment.batches] == [2]


def test_column_that_was_added_since_the_last_batch_is_not_refused(log: MemoryLog) -> None:
    """The driver uses the topic as it last read it, and has not read that column yet."""
    store = HookedStore(log.memory)
    driver = log.process(store)
    options = parse_writer_options({"path": "memory://log", "topic": "a"})
    narrow, wide = StructType().add("n", LongType()), StructType([WITH_M["n"], WITH_M["m"]])
    SinkTopics(driver, options, narrow, Creation.NONE).prepared()
    topic = driver.cluster.topic("a")
    entry = topic.layout.entry(topic.next_slot)
    store.after("get", entry, lambda: log.admin.evolve_schema("a", WITH_COLUMN_M))
    metadata = SinkTopics(driver, options, wide, Creation.NONE).prepared()
    assert store.is_met
    assert list(metadata.topics[0].state.schemas) == [0, 1]


def test_task_opens_no_topic_that_the_driver_knows(log: MemoryLog) -> None:
    metadata = planned(far(log))
    store = CountingStore(log.memory)
    task = log.process(store)
    store.reset()
    staged(task, metadata, rows(*NAMES))
    counts = store.snapshot()
    assert counts.of("get", "entry") == counts.of("get", "snapshot") == 0
    assert counts.puts == len(NAMES)
