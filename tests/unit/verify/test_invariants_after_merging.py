"""`check_log` on a topic whose older batches were merged and whose older entries were pruned."""

from dataclasses import replace

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.journal.entry import decode_entry, encode_entry
from txlog.settings import LogSettings
from txlog.topic.events import BatchesAppended
from txlog.topic.machine import TopicMachine
from txlog.topic.upkeep.merging import merge_segments
from txlog.verify.invariants import check_log

SNAPSHOT_ENTRIES = 4


@pytest.fixture
def log() -> MemoryLog:
    """A log with a producer's records, merged and pruned, and two later ones."""
    log = MemoryLog(
        LogSettings(journal_snapshot_entries=SNAPSHOT_ENTRIES, entry_records_max_bytes=0)
    )
    log.admin.create_topic("events")
    producer = log.producer()
    for number in range(30):
        producer.send("events", b"%d" % number).get()
    topic = log.connection.cluster.topic("events")
    assert merge_segments(topic, 1 << 20).segments_before > 1
    assert topic.journal.prune(1) > 0
    for number in (30, 31):
        producer.send("events", b"%d" % number).get()
    return log


def test_merged_batches_without_sequences_are_not_reported(log: MemoryLog) -> None:
    assert check_log(log.memory) == []
    assert log.values("events") == [b"%d" % number for number in range(32)]


@pytest.mark.parametrize("sequence", [0, 30, 32])
def test_I7_wrong_sequence_after_merging_is_reported(log: MemoryLog, sequence: int) -> None:
    layout = log.connection.cluster.topic("events").layout
    path = [stored.path for stored in log.memory.list_after(layout.entries)][-1]
    data = log.memory.get(path)
    assert data is not None
    slot = int(path.rsplit("/", 1)[-1].partition(".")[0])
    entry = decode_entry(data, path, slot)[0]
    machine = TopicMachine(SNAPSHOT_ENTRIES)
    event = machine.decode_event(entry.events[0])
    assert isinstance(event, BatchesAppended)
    changed = replace(event, base_sequences={0: sequence})
    forged, _ = encode_entry(replace(entry, events=(machine.encode_event(changed),)))
    log.memory.replace(path, forged)
    assert "I7" in {finding.invariant for finding in check_log(log.memory)}
