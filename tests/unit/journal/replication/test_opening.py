"""Opening is quick with a good hint and correct with any: old, wrong or missing (R16)."""

import gc
import json
from dataclasses import replace

import pytest

from tests.stores.faulty_stores import HookedStore
from tests.unit.journal.shelf_journal import LAYOUT, OPTIONS, fill, limits, new_store, process
from tests.unit.journal.shelf_machine import Put
from txlog.errors import CorruptData, MissingObject, StoreUnavailable, UnsupportedFormat
from txlog.journal.replication.opening import LARGE_SNAPSHOT_BYTES, entries_apart
from txlog.journal.replication.replica_options import ReplicaOptions
from txlog.journal.snapshot import SnapshotHead, decode_snapshot, encode_snapshot
from txlog.storage import MemoryStore, Store
from txlog.testing.counting_store import CountingStore


def names(count: int) -> tuple[str, ...]:
    return tuple(f"t{number}" for number in range(count))


def hinted(store: MemoryStore) -> int:
    data = store.get(LAYOUT.hint)
    assert data is not None
    slot: int = json.loads(data)["snapshot"]
    return slot


def spoil(store: MemoryStore, path: str) -> None:
    data = store.get(path)
    assert data is not None
    store.replace(path, data[: len(data) // 2])


def is_sound(store: Store, slot: int) -> bool:
    path = LAYOUT.snapshot(slot)
    data = store.get(path)
    return data is not None and decode_snapshot(data, path)[0].slot == slot


def test_snapshot_is_written_each_time_snapshot_entries_were_added() -> None:
    store = new_store()
    replica = process(store)
    fill(replica, 7)
    assert store.get(LAYOUT.hint) is None
    replica.execute(Put("t7"))
    assert hinted(store) == 7
    fill(replica, 8, "more")
    assert hinted(store) == 15


@pytest.mark.parametrize(
    ("size_bytes", "apart"),
    [(0, 8), (LARGE_SNAPSHOT_BYTES - 1, 8), (LARGE_SNAPSHOT_BYTES, 16), (10**9, 1920)],
)
def test_snapshots_are_the_farther_apart_the_larger_they_are(size_bytes: int, apart: int) -> None:
    assert entries_apart(8, size_bytes) == apart
    assert entries_apart(4096, size_bytes) == 4096


def test_large_snapshot_is_followed_by_another_after_twice_as_many_entries() -> None:
    store = new_store()
    large = Put("x" * LARGE_SNAPSHOT_BYTES)
    replica = process(store)
    replica.execute(large)
    fill(replica, 7)
    assert hinted(store) == 7
    for opened in (replica, process(store)):
        fill(opened, 4, f"more of {id(opened)}")
        assert hinted(store) == (7 if opened is replica else 15)
    fill(process(store), 15, "later")
    assert hinted(store) == 15
    assert process(store).catch_up() == replica.catch_up()


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 15, 16, 100])
def test_a_journal_of_any_length_opens_to_the_state_of_its_writer(length: int) -> None:
    store = new_store()
    fill(process(store), length)
    replica = process(store)
    assert replica.catch_up() == names(length)
    assert replica.next_slot == length


FAR_AND_NEAR = pytest.mark.parametrize(
    "options", [OPTIONS, replace(OPTIONS, is_far=True)], ids=["near", "far"]
)


def test_number_of_requests_to_open_does_not_grow_with_the_journal() -> None:
    requests = {}
    for length in (8, 80, 800):
        counting = CountingStore(new_store())
        fill(process(counting), length)
        counting.reset()
        process(counting).catch_up()
        counts = counting.reset()
        assert (counts.puts, counts.lists) == (0, 0)
        requests[length] = counts.gets
    assert set(requests.values()) == {requests[8]}
    assert requests[8] <= 6, "hint, snapshot, its last entry, boundary, two that are not there"


@pytest.mark.parametrize(
    "hint",
    [
        b"",
        b"x",
        b"null",
        b"[]",
        b"{}",
        b'{"snapshot": null}',
        b'{"snapshot": "15"}',
        b'{"snapshot": -1}',
        b'{"snapshot": 14}',
        b'{"snapshot": 7}',
        b'{"snapshot": 1000000}',
        b'{"snapshot": 1' + b"0" * 400 + b"}",
        b"[" * 100_000,
    ],
)
def test_R16_journal_opens_with_an_old_or_wrong_hint(hint: bytes) -> None:
    store = new_store()
    fill(process(store), 20)
    store.replace(LAYOUT.hint, hint)
    replica = process(store)
    assert replica.catch_up() == names(20)
    assert replica.execute(Put("next"))


def test_R16_journal_opens_without_a_hint() -> None:
    store = new_store()
    fill(process(store), 20)
    store.delete(LAYOUT.hint)
    assert process(store).catch_up() == names(20)


def test_R16_journal_opens_without_hinted_snapshot() -> None:
    store = new_store()
    fill(process(store), 20)
    store.delete(LAYOUT.snapshot(15))
    assert process(store).catch_up() == names(20)


def test_R16_pruned_journal_opens_from_the_boundarys_snapshot_without_good_hint() -> None:
    store = new_store()
    replica = process(store)
    fill(replica, 20)
    assert replica.prune(keep_entries=5) == 15
    for slot in (7, 15):
        store.delete(LAYOUT.snapshot(slot))
    for hint in (b'{"snapshot": 7}', b'{"snapshot": 99}', b"junk"):
        store.replace(LAYOUT.hint, hint)
        assert process(store).catch_up() == names(20)
    store.delete(LAYOUT.hint)
    assert process(store).catch_up() == names(20)


def pruned_to(lowest: int) -> HookedStore:
    """A journal of 20 entries. The process that pruned it died before it deleted the snapshot of
    slot 7, and an old hint names that snapshot.
    """
    store = HookedStore(new_store())
    replica = process(store)
    fill(replica, 20)

    def die() -> None:
        raise StoreUnavailable("the process is gone.")

    store.before("delete", LAYOUT.snapshot(7), die)
    with pytest.raises(StoreUnavailable):
        replica.prune(keep_entries=20 - lowest)
    store.replace(LAYOUT.hint, b'{"snapshot": 7}')
    return store


@pytest.mark.parametrize("lowest", [9, 10, 18])
def test_R16_hint_to_a_snapshot_below_the_boundary_is_not_followed(lowest: int) -> None:
    """The snapshot is good, but entries behind it are gone."""
    store = pruned_to(lowest)
    assert is_sound(store, 7)
    assert process(store).catch_up() == names(20)


@pytest.mark.parametrize("lowest", [7, 8])
def test_R16_a_hint_is_followed_if_its_snapshot_reaches_the_boundary(lowest: int) -> None:
    """All entries behind it exist, and the boundary's own snapshot is not needed."""
    store = pruned_to(lowest)
    for slot in (15, 19):
        store.delete(LAYOUT.snapshot(slot))
    assert process(store).catch_up() == names(20)


def test_R16_opening_starts_again_if_the_boundarys_snapshot_vanishes() -> None:
    """Meanwhile another process created the next boundary; its snapshot must be read."""
    store = HookedStore(new_store())
    writer = process(store.inner)
    fill(writer, 20)
    writer.prune(keep_entries=5)
    store.delete(LAYOUT.hint)

    def prune_on() -> None:
        fill(writer, 5, "more")
        writer.prune(keep_entries=1)
        store.inner.delete(LAYOUT.hint)
        store.inner.delete(LAYOUT.snapshot(19))

    store.before("get", LAYOUT.snapshot(19), prune_on)
    assert process(store).catch_up() == writer.state


def test_I15_pruned_journal_without_snapshots_names_the_missing_snapshot() -> None:
    store = new_store()
    replica = process(store)
    fill(replica, 20)
    replica.prune(keep_entries=5)
    store.delete(LAYOUT.hint)
    store.delete(LAYOUT.snapshot(19))
    with pytest.raises(CorruptData, match="missing") as caught:
        process(store).catch_up()
    assert LAYOUT.snapshot(19) in caught.value.message


def test_a_damaged_snapshot_is_rebuilt_from_the_journal() -> None:
    store = new_store()
    fill(process(store), 16)
    spoil(store, LAYOUT.snapshot(15))
    replica = process(store)
    assert replica.catch_up() == names(16)
    replica.execute(Put("t16"))
    assert is_sound(store, 16)
    assert hinted(store) == 16


@pytest.mark.parametrize("is_enabled", [True, False])
@pytest.mark.parametrize("is_damaged", [True, False])
def test_garbage_collection_is_as_before_after_an_opening(
    is_enabled: bool, is_damaged: bool
) -> None:
    store = new_store()
    fill(process(store), 9)
    if is_damaged:
        spoil(store, LAYOUT.snapshot(7))
    try:
        (gc.enable if is_enabled else gc.disable)()
        assert len(process(store).catch_up()) == 9
        assert gc.isenabled() == is_enabled
    finally:
        gc.enable()


def test_damaged_snapshot_of_pruned_journal_is_rebuilt_from_the_boundarys_snapshot() -> None:
    store = new_store()
    replica = process(store)
    fill(replica, 20)
    replica.prune(keep_entries=5)
    fill(replica, 5, "more")
    spoil(store, LAYOUT.snapshot(23))
    assert len(process(store).catch_up()) == 25
    assert is_sound(store, 24)
    assert hinted(store) == 24


def test_sound_snapshot_is_not_deleted_to_replace_a_damaged_one() -> None:
    """A crash between the two steps would lose the only copy."""
    store = HookedStore(new_store())
    replica = process(store)
    fill(replica, 20)
    replica.prune(keep_entries=0)
    store.replace(LAYOUT.hint, b'{"snapshot": 15}')
    store.put_new(LAYOUT.snapshot(15), b"no snapshot")

    def fail() -> None:
        raise AssertionError("the only sound snapshot was deleted")

    store.before("delete", LAYOUT.snapshot(19), fail)
    assert process(store).catch_up() == names(20)


def test_snapshot_of_newer_format_is_refused_and_left_unchanged() -> None:
    store = new_store()
    fill(process(store), 16)
    newer = encode_snapshot(SnapshotHead(4, 15, 0, -1), {})
    store.replace(LAYOUT.snapshot(15), newer)
    with pytest.raises(UnsupportedFormat):
        process(store).catch_up()
    assert store.get(LAYOUT.snapshot(15)) == newer


def test_snapshot_stored_under_another_slot_is_not_used() -> None:
    store = new_store()
    fill(process(store), 20)
    other = store.get(LAYOUT.snapshot(7))
    assert other is not None
    store.replace(LAYOUT.snapshot(15), other)
    assert process(store).catch_up() == names(20)


def test_failed_snapshot_write_does_not_fail_the_commit() -> None:
    store = HookedStore(new_store())
    replica = process(store)
    fill(replica, 7)

    def fail() -> None:
        raise StoreUnavailable("no answer; call again.")

    store.before("create", LAYOUT.snapshot(7), fail)
    assert replica.execute(Put("t7"))
    assert store.get(LAYOUT.hint) is None
    assert process(store).catch_up() == names(8)


def test_snapshot_can_be_requested_at_any_journal_length() -> None:
    store = new_store()
    replica = process(store)
    assert replica.snapshot() == -1
    fill(replica, 3)
    assert replica.snapshot() == 2
    assert hinted(store) == 2
    counting = CountingStore(store)
    assert process(counting, limits(boundary_probe_polls=100)).catch_up() == names(3)
    # The last one of the snapshot (R63), the next one, and one after it (I15).
    assert counting.reset().of("get", "entry") == 3


# What a snapshot covers must be there (R63).


@FAR_AND_NEAR
def test_R63_snapshot_above_the_last_entry_is_refused(options: ReplicaOptions) -> None:
    """Entries are lost, and a process that went on above them would begin another history."""
    store = new_store()
    fill(process(store), 16)
    for slot in range(10, 16):
        store.delete(LAYOUT.entry(slot))
    with pytest.raises(MissingObject, match=LAYOUT.entry(15)):
        process(store, options).catch_up()


@FAR_AND_NEAR
def test_R63_snapshot_of_another_history_is_not_used(options: ReplicaOptions) -> None:
    """A writer that had not noticed an older backup in the log's place wrote it."""
    store, other = new_store(), new_store()
    fill(process(store), 17)
    fill(process(other), 17, "other")
    store.replace(LAYOUT.snapshot(15), other.get(LAYOUT.snapshot(15)) or b"")
    reader = process(store, options)
    assert reader.catch_up() == names(17)
    assert reader.execute(Put("more"))
    assert process(store).catch_up() == reader.state


@FAR_AND_NEAR
@pytest.mark.parametrize("kept", [0, 3])
def test_R63_snapshot_whose_last_entry_was_pruned_is_used(
    options: ReplicaOptions, kept: int
) -> None:
    store = new_store()
    writer = process(store)
    fill(writer, 16)
    assert writer.prune(keep_entries=kept) == 16 - kept
    assert process(store, options).catch_up() == names(16)
