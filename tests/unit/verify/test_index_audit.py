"""The audit of a topic's index reports each row that its segments or its tree do not bear out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.clock import Runtime
from txlog.engine.connection import open_connection
from txlog.errors import CorruptData
from txlog.fan_out import SerialFanOut
from txlog.journal.audit import Finding
from txlog.settings import LogSettings
from txlog.storage.disk.local import LocalStore
from txlog.storage.policy.read_ahead import ReadAheadStore
from txlog.storage.policy.store_wrapper import AuditedStore
from txlog.storage.store import ByteRange, Store
from txlog.topic import batch_index
from txlog.topic.batch_index import ChunkRef, IndexedBatch
from txlog.topic.records.segment_reader import footer_range
from txlog.topic.state import TopicState
from txlog.topic.topic_log import TopicLog
from txlog.topic.upkeep.merging import merge_segments
from txlog.verify import index_audit
from txlog.verify.index_audit import IndexAudit


def small_log() -> MemoryLog:
    """A topic with 24 batches, of which the first ones are sealed."""
    log = MemoryLog(LogSettings(journal_snapshot_entries=4, entry_records_max_bytes=0))
    log.admin.create_topic("u", 1)
    producer = log.producer()
    for number in range(24):
        producer.send("u", b"%d" % number).get()
    return log


@pytest.fixture
def log() -> MemoryLog:
    return small_log()


class Opened:
    """The topic in a process of its own, its rows, and an audit of it with its findings."""

    def __init__(self, log: MemoryLog, **changes: Any) -> None:
        self.topic: TopicLog = log.process().cluster.topic("u")
        self.state: TopicState = replace(self.topic.catch_up(), **changes)
        self.findings: list[Finding] = []
        self.rows = list(self.topic.batches(self.topic.state, 0, 0, 1 << 60))
        self.audit = self.over(self.topic.store)

    def over(self, store: Store) -> IndexAudit:
        return IndexAudit(store, self.topic, self.state, self.findings.append)


def test_sound_index_has_no_findings(log: MemoryLog) -> None:
    opened = Opened(log)
    opened.audit.check_tree()
    for row in opened.audit.read_ahead(opened.rows):
        assert opened.audit.is_new(row)
        opened.audit.check_segment(row)
    assert opened.findings == []
    assert len(opened.rows) == 24


# The tree.


def with_end(state: TopicState, index: int, next_offset: int) -> TopicState:
    """A state in which the reference at that place says that its chunk ends elsewhere."""
    (level,) = state.sealed.levels
    (span,) = level[index].spans
    changed = replace(level[index], spans=(replace(span, next_offset=next_offset),))
    levels = ((*level[:index], changed, *level[index + 1 :]),)
    return replace(state, sealed=replace(state.sealed, levels=levels))


@pytest.mark.parametrize("is_merged", [False, True])
def test_I2_chunk_that_covers_other_offsets_than_its_reference_says_is_named(
    log: MemoryLog, is_merged: bool
) -> None:
    """A chunk that replaced others has a name of its own."""
    if is_merged:
        merge_segments(log.connection.cluster.topic("u"), 1 << 20)
    opened = Opened(log)
    roots = opened.state.sealed.roots()
    place, first = next((n, ref) for n, ref in enumerate(roots) if bool(ref.name) is is_merged)
    opened.state = with_end(opened.state, place, first.spans[0].next_offset + 1)
    opened.over(opened.topic.store).check_tree()
    path = opened.topic.layout.chunk(first.first_slot, first.last_slot, first.name)
    assert path in log.objects()
    text = "it covers other offsets than its reference says"
    assert opened.findings == [Finding(path, "I2", text)]


def test_I2_chunks_below_a_node_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_index, "FANOUT", 2)
    other = small_log()
    opened = Opened(other)
    assert any(ref.level for ref in opened.state.sealed.roots())
    opened.audit.check_tree()
    assert opened.findings == []
    node = next(ref for ref in opened.state.sealed.roots() if ref.level)
    leaf = opened.topic.chunk(opened.state, node)[0]
    assert isinstance(leaf, ChunkRef)
    other.memory.delete(opened.topic.layout.chunk(leaf.first_slot, leaf.last_slot))
    with pytest.raises(CorruptData):
        Opened(other).audit.check_tree()


# Rows against segments.


def test_I7_batch_whose_row_comes_twice_is_reported_once_each_time(log: MemoryLog) -> None:
    opened = Opened(log)
    row, other = opened.rows[:2]
    assert opened.audit.is_new(row)
    assert opened.audit.is_new(other)
    assert opened.audit.is_new(replace(row, position=row.position + 1))
    assert not opened.audit.is_new(replace(row, base_offset=99))
    text = f"the batch at byte {row.position} is in the index twice"
    assert opened.findings == [Finding(row.segment, "I7", text)]


def test_I16_audit_forgets_batches_when_it_remembers_too_many(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_audit, "BATCHES_KEPT_MAX", 2)
    opened = Opened(log)
    first, second, third = opened.rows[:3]
    assert [opened.audit.is_new(row) for row in (first, second)] == [True, True]
    assert not opened.audit.is_new(first)
    assert [opened.audit.is_new(row) for row in (third, first)] == [True, True]
    assert not opened.audit.is_new(third)


@pytest.mark.parametrize("changes", [{"position": 9}, {"length": 1}])
def test_I15_row_that_the_segments_footer_does_not_name_is_reported(
    log: MemoryLog, changes: dict[str, int]
) -> None:
    opened = Opened(log)
    row = replace(opened.rows[0], **changes)
    opened.audit.check_segment(row)
    text = f"its footer does not name the batch at byte {row.position} of the index"
    assert opened.findings == [Finding(row.segment, "I15", text)]


def test_I15_damaged_footer_is_reported(log: MemoryLog) -> None:
    path = Opened(log).rows[0].segment
    log.memory.replace(path, (log.memory.get(path) or b"")[:-1] + b"x")
    opened = Opened(log)
    opened.audit.check_segment(opened.rows[0])
    (found,) = opened.findings
    assert (found.path, found.invariant) == (path, "I15")
    assert path in found.message


def test_segment_that_is_gone_is_left_to_the_reader_of_its_batches(log: MemoryLog) -> None:
    opened = Opened(log)
    listed, *_ = opened.rows
    log.memory.delete(listed.segment)
    opened.audit.check_segment(listed)
    later = Opened(log)
    later.audit.check_segment(listed)
    assert opened.findings == later.findings == []


def test_I15_folder_of_segments_that_cannot_be_listed_is_named(
    log: MemoryLog, tmp_path: Path
) -> None:
    store = LocalStore(tmp_path, Runtime(), durable=False)
    for path, data in log.objects().items():
        store.put_new(path, data)
    topic = open_connection(store, Runtime()).cluster.topic("u")
    state, findings = topic.catch_up(), list[Finding]()
    folder = tmp_path / topic.layout.segments
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    IndexAudit(AuditedStore(store), topic, state, findings.append)
    assert [(one.path, one.invariant) for one in findings] == [(topic.layout.segments, "I15")]


# Reading ahead.


class Expecting(ReadAheadStore):
    """Records what it is told to read."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, SerialFanOut())
        self.expected: list[dict[str, list[ByteRange]]] = []

    def expect_ranges(self, wanted: Mapping[str, Sequence[ByteRange]]) -> None:
        self.expected.append({path: list(ranges) for path, ranges in wanted.items()})


def test_footers_and_batches_of_several_rows_are_read_together(log: MemoryLog) -> None:
    opened = Opened(log)
    store = Expecting(opened.topic.store)
    audit = opened.over(store)
    first, second = opened.rows[:2]
    unlisted = replace(first, segment=second.segment.replace(".arrow", "")[:-1] + "f.arrow")
    emptied = replace(second, segment="", stored_rows=0)
    misnamed = replace(second, segment="README")
    rows = [first, replace(first, position=500), second, unlisted, emptied, misnamed]
    emptied_too = replace(opened.rows[2], stored_rows=0)
    assert list(audit.read_ahead([*rows, emptied_too])) == [*rows, emptied_too]
    sizes = {path: len(data) for path, data in log.objects().items()}
    here = ByteRange(first.position, first.length)
    assert store.expected == [
        {
            first.segment: [
                footer_range(sizes[first.segment]),
                here,
                ByteRange(500, first.length),
            ],
            second.segment: [
                footer_range(sizes[second.segment]),
                ByteRange(second.position, second.length),
            ],
            unlisted.segment: [here],
        },
        {},
    ]


def windows(log: MemoryLog, rows: Sequence[IndexedBatch]) -> list[int]:
    """How many rows are read together each time."""
    opened = Opened(log)
    store = Expecting(opened.topic.store)
    assert list(opened.over(store).read_ahead(rows)) == list(rows)
    return [sum(len(ranges) - 1 for ranges in each.values()) for each in store.expected]


def test_I16_rows_that_are_read_together_are_bounded(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [replace(row, length=100) for row in Opened(log).rows[:12]]
    monkeypatch.setattr(index_audit, "ROWS_AHEAD_MAX", 5)
    assert windows(log, rows) == [5, 5, 2, 0]
    monkeypatch.setattr(index_audit, "ROWS_AHEAD_MAX", 64)
    monkeypatch.setattr(index_audit, "BYTES_AHEAD_MAX", 300)
    assert windows(log, rows) == [3, 3, 3, 3, 0]
    monkeypatch.setattr(index_audit, "BYTES_AHEAD_MAX", 301)
    assert windows(log, rows) == [4, 4, 4, 0]


@pytest.mark.parametrize("is_far", [False, True])
def test_rows_before_a_damaged_chunk_come_first(log: MemoryLog, is_far: bool) -> None:
    opened = Opened(log)

    def rows() -> Iterator[IndexedBatch]:
        yield from opened.rows[:3]
        raise CorruptData("the next chunk is damaged")

    store = Expecting(opened.topic.store) if is_far else opened.topic.store
    ahead = opened.over(store).read_ahead(rows())
    assert [next(ahead) for _ in range(3)] == opened.rows[:3]
    with pytest.raises(CorruptData, match="the next chunk"):
        next(ahead)
