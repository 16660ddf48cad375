"""A tombstone stays for `delete.retention.ms` after the first pass that found it, and no longer."""

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.maintenance.maintenance import Maintenance
from txlog.topic.batch_index import IndexedBatch

DAY_MS = 86_400_000
HOUR_MS = 3_600_000


@pytest.fixture
def compacted(log: MemoryLog) -> MemoryLog:
    """A topic `c` that keeps the newest record of each key, and tombstones for a day."""
    log.admin.create_topic("c", 1, config={"cleanup.policy": "compact"})
    return log


def send(log: MemoryLog, *keys: str, value: bytes | None = b"v") -> None:
    """Send one record for each key, each in a batch of its own."""
    producer = log.producer()
    for key in keys:
        producer.send("c", key=key.encode(), value=value, partition=0).get()


def maintained(log: MemoryLog) -> list[str]:
    """Run one pass in another process; returns what it did to the records of `c`."""
    report = Maintenance(log.process()).run_once()
    assert report.failures == []
    return [a.task for a in report.actions if a.task in ("compaction", "merging")]


def keys(log: MemoryLog) -> list[str]:
    """The keys of all existing records, in order."""
    polled = log.consumer("c", isolation_level="read_committed").poll(max_records=10_000)
    return [(record.key or b"").decode() for records in polled.values() for record in records]


def rows(log: MemoryLog) -> list[IndexedBatch]:
    """The batches of `c` as stored."""
    topic = log.process().cluster.topic("c")
    return list(topic.batches_from_slot(topic.catch_up(), 0))


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number:03}" for number in range(count)]


@pytest.mark.segments
def test_merging_does_not_delete_a_tombstone_before_its_delete_horizon(
    compacted: MemoryLog,
) -> None:
    """If it did, a slow reader that has the old value would keep the deleted key for ever."""
    log = compacted
    send(log, "a")
    send(log, "a", value=None)
    assert maintained(log) == ["compaction"]
    log.admin.alter_topic_config("c", {"min.cleanable.dirty.ratio": 1.0})
    log.clock.advance(DAY_MS - HOUR_MS)
    send(log, "b", value=None)
    send(log, *names("n", 150))
    assert maintained(log) == ["merging"], "what is new waits"
    assert keys(log) == ["a", "b", *names("n", 150)]
    log.clock.advance(HOUR_MS + 1)
    assert maintained(log) == ["compaction"]
    assert keys(log) == ["b", *names("n", 150)], "the time of `a` is over"
    log.clock.advance(DAY_MS - 1)
    assert maintained(log) == []
    log.clock.advance(1)
    assert maintained(log) == ["compaction"]
    assert keys(log) == names("n", 150)
    log.check()


def test_tombstone_is_deleted_on_time_while_newer_ones_arrive(compacted: MemoryLog) -> None:
    log = compacted
    log.admin.alter_topic_config("c", {"min.cleanable.dirty.ratio": 0.0})
    for hour in range(30):
        send(log, f"h{hour:02}", value=None)
        maintained(log)
        assert keys(log) == [f"h{left:02}" for left in range(max(hour - 23, 0), hour + 1)]
        log.clock.advance(HOUR_MS)
    log.check()


def test_compaction_combines_batches_with_and_without_tombstones(compacted: MemoryLog) -> None:
    log = compacted
    for number, key in enumerate(names("k", 100)):
        send(log, key, value=None if number % 10 == 3 else b"v")
    assert len(rows(log)) == 100
    maintained(log)
    (row,) = rows(log)
    assert row.delete_horizon_ms == log.clock.wall_ms() + DAY_MS
    assert keys(log) == names("k", 100)


@pytest.mark.segments
def test_uncompacted_batches_with_and_without_tombstones_are_merged(compacted: MemoryLog) -> None:
    log = compacted
    log.admin.alter_topic_config("c", {"min.cleanable.dirty.ratio": 1.0})
    for number, key in enumerate(names("k", 150)):
        send(log, key, value=None if number % 10 == 3 else b"v")
    before = len(rows(log))
    assert maintained(log) == ["merging"]
    assert len(rows(log)) < before - 50
    assert keys(log) == names("k", 150)
