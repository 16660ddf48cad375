"""The index agrees with a plain scan, before and after sealing, saving and reopening (I2, I3)."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.stores.faulty_stores import HookedStore
from tests.unit.machine_without_journal import MachineHarness
from tests.unit.topic.topic_history import PARTITIONS, STEPS, History, Step
from txlog.errors import CorruptData, MissingObject, StoreUnavailable
from txlog.journal.replication.replica_options import ReplicaOptions
from txlog.model import Decision
from txlog.settings import TopicConfig
from txlog.storage import MemoryStore, Store
from txlog.testing.clock import manual_runtime
from txlog.testing.counting_store import CountingStore
from txlog.topic import chunk_cache
from txlog.topic.batch_index import FANOUT, IndexedBatch, SealedIndex
from txlog.topic.events import TopicCommand, TopicOpened
from txlog.topic.machine import TopicMachine
from txlog.topic.state import TopicState
from txlog.topic.topic_log import TopicLog

OPENED = TopicOpened("0123456789abcdef", "t", PARTITIONS, "c2NoZW1h", TopicConfig())


class LoggedTopic:
    """A topic on a journal in memory."""

    def __init__(self, store: Store, snapshot_entries: int, seed: int = 1) -> None:
        options = ReplicaOptions(snapshot_entries)
        self.log = TopicLog(store, OPENED, manual_runtime(seed), options)
        if store.get(self.log.layout.entry(0)) is None:
            self.log.journal.execute(OPENED)

    def run(self, command: TopicCommand) -> Any:
        return self.log.execute(command)


def check(history: History, log: TopicLog, state: TopicState) -> None:
    """Compare every lookup in every partition with a plain scan."""
    for partition in range(PARTITIONS):
        end = history.ends.get(partition, 0)
        assert state.end_offset(partition) == end
        assert state.last_stable_offset(partition) == history.last_stable_offset(partition)
        for start, stop in [(0, end), (0, 1), (end // 2, end), (end // 3, end // 2), (end, end)]:
            rows = list(log.batches(state, partition, start, stop))
            expected = history.found(partition, start, stop)
            assert [(row.base_offset, row.row_count, row.tx_id) for row in rows] == expected
            for row in rows:
                decision = history.decisions.get(row.tx_id) if row.tx_id else None
                assert row.aborted is (decision is Decision.ABORT)
                assert (row.decided_slot >= 0) is (decision is not None)
    check_walks(history, log, state)


def check_walks(history: History, log: TopicLog, state: TopicState) -> None:
    """The two walks over all partitions, in slot order."""
    everything = list(log.batches_from_slot(state, 0))
    assert len(everything) == len(history.batches)
    assert [row.slot for row in everything] == sorted(row.slot for row in everything)
    middle = everything[len(everything) // 2].slot if everything else 0
    assert list(log.batches_from_slot(state, middle)) == [r for r in everything if r.slot >= middle]
    starts = {p: history.ends.get(p, 0) // 2 for p in range(PARTITIONS)}
    assert list(log.batches_since(state, starts)) == [
        row for row in everything if row.next_offset > starts[row.partition]
    ]


@given(STEPS)
@settings(max_examples=examples(60), derandomize=True)
def test_I2_offsets_are_dense_and_lookups_match_a_plain_scan(steps: list[Step]) -> None:
    store = MemoryStore(manual_runtime())
    topic = LoggedTopic(store, snapshot_entries=4)
    history = History(topic)
    history.take(steps)
    check(history, topic.log, topic.log.catch_up())
    for index, row in enumerate(history.batches):
        before = [b for b in history.batches[:index] if b.partition == row.partition]
        assert row.offset == sum(b.count for b in before)


@given(STEPS, st.integers(0, 60))
@settings(max_examples=examples(60), derandomize=True)
def test_state_from_snapshot_equals_state_from_entries(
    steps: list[Step], joined_after: int
) -> None:
    """The writer, a replica that always followed, one that joined, one that opens at the end."""
    store = MemoryStore(manual_runtime())
    topic, follower = LoggedTopic(store, 4), LoggedTopic(store, 4, seed=2)
    history = History(topic)
    history.take(steps[:joined_after])
    follower.log.catch_up()
    history.take(steps[joined_after:])
    written = topic.log.catch_up()
    opened = LoggedTopic(store, 4, seed=3)
    for other in (follower, opened):
        state = other.log.catch_up()
        assert state == written
        check(history, other.log, state)


@given(STEPS)
@settings(max_examples=examples(60), derandomize=True)
def test_snapshot_restores_the_whole_state(steps: list[Step]) -> None:
    harness = MachineHarness(TopicMachine(window_slots=4))
    harness.run(OPENED)
    History(harness).take(steps)
    assert harness.reopened() == harness.state


@given(STEPS)
@settings(max_examples=examples(60), derandomize=True)
def test_undecided_batches_are_never_sealed(steps: list[Step]) -> None:
    harness = MachineHarness(TopicMachine(window_slots=2))
    harness.run(OPENED)
    history = History(harness)
    history.take(steps)
    undecided = {tx_id for tx_id, _ in harness.state.open_transactions()}
    in_tail = {row.tx_id for row in harness.state.tail}
    assert undecided <= in_tail
    assert undecided == set(history.open.values()) & {b.tx_id for b in history.batches}
    assert all(row.slot > harness.state.sealed_slot for row in harness.state.tail)


def many_commits(topic: LoggedTopic | MachineHarness[TopicState], count: int) -> History:
    history = History(topic)
    rows = ((0, 2), (1, 1))
    for _ in range(count):
        history.take([("staged", 0, rows)])
    return history


def test_tail_and_index_levels_stay_bounded() -> None:
    harness = MachineHarness(TopicMachine(window_slots=2))
    harness.run(OPENED)
    many_commits(harness, 3 * FANOUT)
    assert len(harness.state.tail) <= 2 * 2 * 2
    assert all(len(level) < FANOUT for level in harness.state.sealed.levels)


def test_index_tree_grows_levels_and_keeps_roots_in_order() -> None:
    index = SealedIndex()
    count = FANOUT * FANOUT + 3 * FANOUT + 5
    for slot in range(count):
        row = IndexedBatch(slot, 0, slot * 10, 10, "s", 0, 1, 0, 0, 5, slot, -1, -1, -1, -1)
        index = SealedIndex(index.with_leaf(slot, slot, [row]).levels)
    assert [len(level) for level in index.levels] == [5, 3, 1]
    slots = [(ref.first_slot, ref.last_slot) for ref in index.roots()]
    assert slots[0] == (0, FANOUT * FANOUT - 1)
    assert all(left[1] + 1 == right[0] for left, right in pairwise(slots))
    spans = [ref.span(0) for ref in index.roots()]
    assert [(s.first_offset, s.next_offset, s.length_bytes) for s in spans if s] == [
        (first * 10, last * 10 + 10, last + 1 - first) for first, last in slots
    ]


def test_follower_keeps_at_most_one_unsaved_chunk() -> None:
    store = MemoryStore(manual_runtime())
    topic, follower = LoggedTopic(store, 4), LoggedTopic(store, 4, seed=2)
    follower.log.catch_up()
    history = many_commits(topic, 400)
    state = follower.log.catch_up()
    assert len(state.sealed.unsaved) <= 1
    check(history, follower.log, state)


def test_writer_releases_chunks_once_saved() -> None:
    topic = LoggedTopic(MemoryStore(manual_runtime()), 4)
    history = many_commits(topic, 39)
    assert topic.log.state.sealed_slot == 35
    assert topic.log.state.sealed.unsaved == ()
    check(history, topic.log, topic.log.state)


@pytest.mark.parametrize(("commits", "looks"), [(6, 0), (7, 1), (8, 1), (11, 2)])
def test_follower_reads_only_snapshots_that_let_it_release_chunks(commits: int, looks: int) -> None:
    """Slot 3 has the first snapshot, without a chunk; 7 and 11 have the next ones."""
    counting = CountingStore(MemoryStore(manual_runtime()))
    follower = LoggedTopic(counting, 4, seed=2)
    follower.log.catch_up()
    many_commits(LoggedTopic(counting, 4), commits)
    counting.reset()
    assert follower.log.catch_up().sealed.unsaved == ()
    counts = counting.reset()
    assert counts.of("get", "snapshot") + counts.of("get_ranges", "snapshot") == looks


def follower_of_failing_writer(
    kind: str = "snapshot",
) -> tuple[HookedStore, History, TopicLog, TopicLog]:
    """The writer seals a chunk and cannot save it, or a snapshot; the follower has read the
    entries."""
    store = HookedStore(MemoryStore(manual_runtime()))
    topic, follower = LoggedTopic(store, 4), LoggedTopic(store, 4, seed=2)

    def fail() -> None:
        raise StoreUnavailable("no answer; call again.")

    layout = topic.log.layout
    store.before("create", layout.snapshot(7) if kind == "snapshot" else layout.chunk(0, 3), fail)
    history = many_commits(topic, 7)
    follower.log.catch_up()
    assert topic.log.state.sealed_slot == 3
    return store, history, topic.log, follower.log


@pytest.mark.parametrize("kind", ["snapshot", "chunk"])
def test_follower_keeps_chunk_that_no_snapshot_has_saved(kind: str) -> None:
    """No snapshot is written before its chunks: it would refer to a missing chunk."""
    store, history, topic, follower = follower_of_failing_writer(kind)
    store.delete(topic.layout.chunk(0, 3))
    assert store.get(topic.layout.snapshot(7)) is None
    state = follower.catch_up()
    assert len(state.sealed.unsaved) == 1
    check(history, follower, state)
    assert follower.journal.snapshot() == 7
    opened = LoggedTopic(store, 4, seed=3).log
    check(history, opened, opened.catch_up())


def test_a_lookup_near_the_tip_reads_no_old_chunk() -> None:
    counting = CountingStore(MemoryStore(manual_runtime()))
    history = many_commits(LoggedTopic(counting, snapshot_entries=4), 1200)
    reader = LoggedTopic(counting, snapshot_entries=4, seed=2)
    state = reader.log.catch_up()
    counting.reset()
    end = history.ends[0]
    assert len(list(reader.log.batches(state, 0, end - 2, end))) == 1
    assert counting.reset().gets == 0
    assert [row.base_offset for row in reader.log.batches(state, 0, 100, 101)] == [100]
    assert 1 <= counting.reset().of("get", "chunk") <= len(state.sealed.levels)
    assert counting.reset().lists == 0


@pytest.mark.parametrize(("rows_max", "read_again"), [(1 << 16, False), (16, True)])
def test_I16_cached_chunks_hold_a_limited_number_of_rows(
    rows_max: int, read_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the nine chunks has eight rows, so two of them are within the lower limit."""
    monkeypatch.setattr(chunk_cache, "CHUNK_ROWS_CACHED_MAX", rows_max)
    counting = CountingStore(MemoryStore(manual_runtime()))
    history = many_commits(LoggedTopic(counting, snapshot_entries=4), 40)
    reader = LoggedTopic(counting, snapshot_entries=4, seed=2).log
    state = reader.catch_up()
    count = len(list(reader.batches_from_slot(state, 0)))
    assert count == len(history.batches)
    counting.reset()
    newest = state.sealed.roots()[-1]
    assert len(reader.chunk(state, newest)) == 8
    assert counting.reset().gets == 0, "the chunk that was read last is kept"
    assert len(list(reader.batches_from_slot(state, 0))) == count
    assert counting.reset().of("get", "chunk") == (len(state.sealed.roots()) if read_again else 0)


def sealed_store() -> tuple[MemoryStore, str]:
    """A topic with sealed chunks, and the path of the first."""
    store = MemoryStore(manual_runtime())
    topic = LoggedTopic(store, snapshot_entries=4)
    many_commits(topic, 40)
    first = topic.log.catch_up().sealed.roots()[0]
    return store, topic.log.layout.chunk(first.first_slot, first.last_slot)


def test_I15_missing_chunk_error_names_its_path() -> None:
    store, path = sealed_store()
    store.delete(path)
    reader = LoggedTopic(store, 4, seed=2).log
    with pytest.raises(MissingObject) as caught:
        list(reader.batches(reader.catch_up(), 0, 0, 1))
    assert path in caught.value.message


@pytest.mark.parametrize("position", [0, 9, 200, -1])
def test_I15_damaged_chunk_error_names_its_path(position: int) -> None:
    store, path = sealed_store()
    data = bytearray(store.get(path) or b"")
    data[position] ^= 1
    store.replace(path, bytes(data))
    reader = LoggedTopic(store, 4, seed=2).log
    with pytest.raises(CorruptData) as caught:
        list(reader.batches(reader.catch_up(), 0, 0, 1))
    assert path in caught.value.message


def test_I15_snapshot_referring_to_a_damaged_chunk_is_refused() -> None:
    """A stored chunk with other bytes is not accepted as the replica's own."""
    store, _, topic, follower = follower_of_failing_writer()
    path = topic.layout.chunk(0, 3)
    store.replace(path, b"other bytes")
    with pytest.raises(CorruptData, match="damaged") as caught:
        follower.journal.prune(keep_entries=1)
    assert path in caught.value.message
    assert store.get(topic.layout.boundary(0)) is None, "and nothing was pruned"


def test_index_equality_ignores_unsaved_chunks() -> None:
    harness = MachineHarness(TopicMachine(window_slots=2))
    harness.run(OPENED)
    many_commits(harness, 20)
    assert harness.state.sealed.unsaved
    assert harness.state.sealed == SealedIndex(harness.state.sealed.levels)
