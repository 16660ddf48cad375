"""A writer proves that the journal still has what it has read (R62).

Users put older backups in place of a log, and remove folders, while processes have it open.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from tests.stores.faulty_stores import HookedStore
from tests.unit.journal.shelf_journal import LAYOUT, OPTIONS, fill, new_store, process
from tests.unit.journal.shelf_machine import Look, Put, Shelf, ShelfMachine
from txlog.clock import Runtime
from txlog.errors import NotATxlog, OutcomeUnknown, StoreUnavailable
from txlog.fan_out import SerialFanOut
from txlog.journal.audit import audit_journal
from txlog.journal.log_presence import LogPresence
from txlog.journal.replication.replica import Replica
from txlog.storage import Store
from txlog.testing.clock import ManualClock, SeededEntropy
from txlog.testing.counting_store import CountingStore
from txlog.testing.round_trips import RoundTrips

FAR = replace(OPTIONS, is_far=True, trust_ms=1 << 40, grace_ms=1 << 50)
INTERVAL_MS = FAR.process.log_presence_interval_ms
ENTRIES = 12
"""Entries that a process has read before the past is taken away."""


def objects(store: Store) -> dict[str, bytes]:
    return {found.path: store.get(found.path) or b"" for found in store.list_after("")}


def put_back(store: Store, backup: dict[str, bytes]) -> None:
    """What `rsync --delete` and `aws s3 sync --delete` do."""
    for path, data in objects(store).items():
        if backup.get(path) != data:
            store.delete(path)
    for path, data in backup.items():
        if store.get(path) is None:
            store.replace(path, data)


def restore_older(store: Store, backup: dict[str, bytes]) -> None:
    put_back(store, backup)


def restore_older_and_go_on(store: Store, backup: dict[str, bytes]) -> None:
    put_back(store, backup)
    fill(process(store), ENTRIES - 5, "another history")


def restore_older_and_go_further(store: Store, backup: dict[str, bytes]) -> None:
    put_back(store, backup)
    fill(process(store), ENTRIES, "another history")


def remove_entries(store: Store, backup: dict[str, bytes]) -> None:
    for path in objects(store):
        if path.startswith(LAYOUT.entries):
            store.delete(path)


def remove_journal(store: Store, backup: dict[str, bytes]) -> None:
    put_back(store, {})


TakenAway = Callable[[Store, dict[str, bytes]], object]
TAKEN_AWAY = pytest.mark.parametrize(
    "take_away",
    [
        restore_older,
        restore_older_and_go_on,
        restore_older_and_go_further,
        remove_entries,
        remove_journal,
    ],
)


def begun(store: Store, writer: Replica[Shelf]) -> dict[str, bytes]:
    """Fills the journal; returns an older backup of it."""
    fill(writer, 5)
    backup = objects(store)
    fill(writer, ENTRIES - 5, "later")
    return backup


@TAKEN_AWAY
def test_R62_write_is_refused_and_changes_nothing_once_past_is_taken_away(
    take_away: TakenAway,
) -> None:
    store = new_store()
    writer = process(store)
    take_away(store, begun(store, writer))
    before = objects(store)
    for _ in range(2):
        with pytest.raises(NotATxlog, match=LAYOUT.entry(ENTRIES - 1)):
            writer.execute(Put("mine"))
    assert objects(store) == before


@TAKEN_AWAY
def test_R62_answer_that_rests_on_lost_past_is_refused(take_away: TakenAway) -> None:
    store = new_store()
    reader = process(store)
    take_away(store, begun(store, reader))
    with pytest.raises(NotATxlog):
        reader.execute(Put("later0"))  # It was done, so that nothing would be written.
    with pytest.raises(NotATxlog):
        reader.execute(Look("later0"))
    with pytest.raises(NotATxlog):
        reader.catch_up(linearizable=True)


@TAKEN_AWAY
def test_R62_write_while_past_is_taken_away_is_not_acknowledged(take_away: TakenAway) -> None:
    store = HookedStore(new_store())
    writer = process(store)
    backup = begun(store, writer)
    store.before("create", LAYOUT.entry(ENTRIES), lambda: take_away(store.inner, backup))
    with pytest.raises((OutcomeUnknown, NotATxlog)):
        writer.execute(Put("mine"))
    with pytest.raises(NotATxlog):
        writer.execute(Put("mine"))


@pytest.mark.parametrize("kept", [0, 1, 5])
def test_R62_pruned_past_is_not_a_lost_one(kept: int) -> None:
    store = new_store()
    writer, other = process(store), process(store)
    begun(store, writer)
    assert other.prune(keep_entries=kept) == ENTRIES - kept
    assert writer.execute(Put("mine"))
    assert writer.catch_up(linearizable=True) == process(store).catch_up()
    assert audit_journal(store, LAYOUT, ShelfMachine()).findings == []


def test_R62_older_backup_is_noticed_although_the_newest_entries_were_pruned() -> None:
    store = new_store()
    writer = process(store)
    backup = begun(store, writer)
    writer.prune(keep_entries=0)
    put_back(store, backup)
    with pytest.raises(NotATxlog):
        writer.execute(Put("mine"))


@pytest.mark.parametrize("closed", [False, True])
def test_R62_boundary_is_not_raised_in_journal_whose_past_was_taken_away(closed: bool) -> None:
    """Its snapshot would be of a history that the journal does not have."""
    store, clock = new_store(), ManualClock()
    writer = far_process(store, clock)
    put_back(store, begun(store, writer))
    before = objects(store)
    with pytest.raises(NotATxlog):
        writer.close() if closed else writer.prune(keep_entries=0)
    assert objects(store) == before


# In a distant store: once in an interval, in parallel with another request.


def far_process(store: Store, clock: ManualClock) -> Replica[Shelf]:
    runtime = Runtime(clock, SeededEntropy("far"), SerialFanOut())
    presence = LogPresence("here", "its id", lambda: "its id", runtime, 0)
    return Replica(store, LAYOUT, ShelfMachine(), runtime, replace(FAR, presence=presence))


@TAKEN_AWAY
@pytest.mark.parametrize("pause_ms", [10, INTERVAL_MS // 2, INTERVAL_MS, 100 * INTERVAL_MS])
def test_R62_distant_writer_is_refused_within_the_interval(
    take_away: TakenAway, pause_ms: int
) -> None:
    """A busy one soon has only entries of its own below its slot, above the hole."""
    store, clock = new_store(), ManualClock()
    writer = far_process(store, clock)
    backup = begun(store, writer)
    for number in range(2 * INTERVAL_MS // pause_ms):
        clock.advance(pause_ms)
        writer.execute(Put(f"busy{number}"))
    clock.advance(pause_ms)
    take_away(store, backup)
    begun_ms = clock.monotonic_ms()
    acknowledged = []
    with pytest.raises((OutcomeUnknown, NotATxlog)):  # noqa: PT012 - until it is refused
        for number in range(1_000):
            writer.execute(Put(f"mine{number}"))
            acknowledged.append(clock.monotonic_ms())
            clock.advance(pause_ms)
    assert all(moment_ms < begun_ms + INTERVAL_MS for moment_ms in acknowledged)
    before = objects(store)
    for _ in range(2):
        clock.advance(1)
        with pytest.raises(NotATxlog):
            writer.execute(Put("mine"))
    assert objects(store) == before, "and writes nothing more"


def test_R62_backup_that_is_newer_than_the_last_check_is_noticed() -> None:
    """The writer was idle since, so that the check before its next entry looks at its newest."""
    store, clock = new_store(), ManualClock()
    writer = far_process(store, clock)
    begun(store, writer)
    clock.advance(INTERVAL_MS)
    writer.execute(Put("checked"))
    writer.execute(Put("in the backup"))
    backup = objects(store)
    writer.execute(Put("after the backup"))
    put_back(store, backup)
    clock.advance(INTERVAL_MS)
    with pytest.raises((OutcomeUnknown, NotATxlog)):
        writer.execute(Put("mine"))


def test_R62_distant_reader_is_refused_within_the_interval() -> None:
    store, clock = new_store(), ManualClock()
    reader = far_process(store, clock)
    backup = begun(store, process(store))
    reader.catch_up()
    put_back(store, backup)
    clock.advance(INTERVAL_MS)
    with pytest.raises(NotATxlog):
        reader.catch_up()


def test_R62_distant_check_costs_two_reads_an_interval_at_most() -> None:
    clock = ManualClock()
    counting = CountingStore(new_store())
    writer = far_process(counting, clock)
    fill(writer, 5)
    reads = []
    for number in range(12):
        counting.reset()
        writer.execute(Put(f"x{number}"))
        counts = counting.reset()
        assert counts.of("create", "entry") == 1
        reads.append(counts.of("get", "entry"))
        clock.advance(INTERVAL_MS // 4)
    assert reads == [0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]


def test_R62_distant_check_lets_no_write_wait() -> None:
    far = RoundTrips(new_store())
    presence = LogPresence("here", "its id", lambda: "its id", far.runtime, 0)
    options = replace(FAR, presence=presence, snapshot_entries=64)
    writer = Replica(far.store, LAYOUT, ShelfMachine(), far.runtime, options)
    fill(writer, 5)
    reads = []
    for number in range(3):
        far.fan_out.idle(INTERVAL_MS)
        assert far.waits(partial(writer.execute, Put(f"x{number}"))) == 1
        reads.append(sum(request.verb == "get" for request in far.store.requests))
    assert reads == [1, 2, 2]


def test_R62_unanswered_check_is_repeated_without_failing_the_write() -> None:
    store, clock = HookedStore(new_store()), ManualClock()
    writer = far_process(store, clock)
    backup = begun(store, writer)
    clock.advance(INTERVAL_MS)

    def not_answered() -> None:
        raise StoreUnavailable("no answer", path=LAYOUT.entries)

    store.before("get", LAYOUT.entry(ENTRIES - 1), not_answered)
    assert writer.execute(Put("mine"))
    assert store.is_met
    put_back(store.inner, backup)
    with pytest.raises((OutcomeUnknown, NotATxlog)):
        writer.execute(Put("again"))
