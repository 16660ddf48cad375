"""Consumers whose process lags behind the end of the log, or whose group is beyond the end.

A process that lags behind a pruned journal does not see at once that there is more (rule R15).
"""

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.consumer.consumer import Consumer
from txlog.errors import OffsetOutOfRange
from txlog.groups.state import PendingOffset
from txlog.model import TopicPartition

U0 = TopicPartition("u", 0)


def fill(log: MemoryLog, count: int) -> None:
    """Write records to `u`."""
    producer = log.producer()
    for number in range(count):
        producer.send("u", b"%d" % number)
        if number % 3 == 0:
            producer.flush()
    producer.close()


def offsets(consumer: Consumer) -> list[int]:
    return [record.offset for record in consumer.poll().get(U0, [])]


@pytest.mark.segments
def test_idle_process_reads_new_records_after_old_entries_were_pruned(
    log: MemoryLog,
) -> None:
    """The journal's next entry is gone, which does not prove that no entries follow (R15)."""
    idle = log.process()
    Consumer("u", root=idle)
    for _ in range(10):
        fill(log, 4)
    assert log.process().cluster.topic("u").journal.prune(keep_entries=5) > 10
    options = {"root": idle, "auto_offset_reset": "earliest"}
    assert Consumer(**options).end_offsets([U0]) == {U0: 40}
    assert offsets(Consumer("u", **options)) == list(range(40))


def commit_beyond_end(log: MemoryLog) -> None:
    """Commit offset 9 for group `g` in a log that ends at 3, as if restored from an older copy."""
    fill(log, 3)
    topic_id = log.connection.cluster.topic("u").topic_id
    log.connection.offsets.commit("g", (PendingOffset("u", topic_id, 0, 0, 9),))


def test_group_offset_beyond_end_is_reset_per_auto_offset_reset(log: MemoryLog) -> None:
    """Otherwise the group would skip records written there later."""
    commit_beyond_end(log)
    assert offsets(log.consumer("u", group_id="g")) == [0, 1, 2]
    latest = log.consumer("u", group_id="g", auto_offset_reset="latest")
    assert offsets(latest) == []
    log.producer().send("u", b"new").get()
    assert offsets(latest) == [3]
    with pytest.raises(OffsetOutOfRange, match="offset 9 of topic 'u' partition 0"):
        log.consumer("u", group_id="g", auto_offset_reset="none").poll()


@pytest.mark.segments
def test_R15_lagging_process_does_not_reset_group_after_pruning(
    log: MemoryLog,
) -> None:
    stale = log.process()
    assert stale.cluster.present_topic("u").state.end_offset(0) == 0
    fill(log, 9)
    reader = log.consumer("u", group_id="g")
    assert len(offsets(reader)) == 9
    reader.commit()
    log.producer().send("u", b"next").get()
    log.connection.cluster.topic("u").journal.prune(0)
    assert stale.cluster.present_topic("u").state.end_offset(0) == 0, "it lags"
    options = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = Consumer("u", root=stale, group_id="g", **options)
    assert offsets(consumer) == [9]
    consumer.commit()
    assert log.process().offsets.group("g").committed[U0].offset == 10


def test_R15_lagging_process_does_not_reset_a_position_sought_at_the_new_end(
    log: MemoryLog,
) -> None:
    """The offset is beyond the end that the consumer has seen, but not beyond the log's."""
    lagging = log.consumer("u")
    assert offsets(lagging) == []
    fill(log, 10)
    log.connection.cluster.topic("u").journal.prune(0)
    lagging.seek(U0, 10)
    assert offsets(lagging) == []
    assert lagging.position(U0) == 10
    log.producer().send("u", b"next").get()
    assert offsets(lagging) == [10]


def test_close_commits_the_offset_of_a_seek(log: MemoryLog) -> None:
    """As `commit()` does, in a partition where the group has no offset to begin at."""
    fill(log, 3)
    consumer = log.consumer(group_id="g", auto_offset_reset="none", enable_auto_commit=True)
    consumer.assign([U0])
    consumer.seek(U0, 2)
    consumer.close()
    assert log.consumer(group_id="g").committed(U0) == 2
