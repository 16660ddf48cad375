"""Planted bugs about boundaries that are trusted for a time, and about the entries below them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from tests.simulation.planted_bugs.mutant import Mutant, Patch
from txlog.errors import CorruptData
from txlog.journal.boundaries import boundary
from txlog.journal.boundaries.boundary import (
    Boundary,
    BoundaryCheck,
    BoundaryChecks,
    ClockReading,
    Pruner,
    read_boundary,
)
from txlog.journal.replication import opening
from txlog.journal.replication.opening import Followed
from txlog.journal.replication.publish_queue import Attempt
from txlog.journal.replication.replica import Replica
from txlog.journal.replication.run import RunReader, missing_entry
from txlog.layout import JournalLayout
from txlog.settings import LogSettings
from txlog.storage.store import Store


def no_grace(patch: Patch) -> None:
    """Entries below the newest boundary are deleted at once."""
    original = Pruner.delete_below

    def delete_below(self: Pruner, newest: Boundary) -> tuple[int, int]:
        return original(replace(self, grace_ms=0), newest)

    patch.setattr(Pruner, "delete_below", delete_below)


def age_by_own_clock(patch: Patch) -> None:
    """The age of a boundary is measured by the clock of the deleting process."""
    patch.setattr(Pruner, "_store_date", lambda self: self.runtime.clock.wall_ms())


def trusted_for_ever(patch: Patch) -> None:
    """A check is valid as long as its process lives."""
    patch.setattr(boundary, "_is_within", lambda sent, arrived, trust_ms: True)


def trusted_by(clock: str) -> Callable[[Patch], None]:
    """The trusted time is measured by one clock only."""

    def plant(patch: Patch) -> None:
        def is_within(sent: ClockReading, arrived: ClockReading, trust_ms: int) -> bool:
            passed = getattr(arrived, clock) - getattr(sent, clock)
            return bool(passed < trust_ms)

        patch.setattr(boundary, "_is_within", is_within)

    return plant


def from_the_answer_on(patch: Patch) -> None:
    """The trusted time starts when a check is answered."""
    original = BoundaryChecks.check

    def check(self: BoundaryChecks, known: Boundary) -> BoundaryCheck:
        check = original(self, known)
        self._newest = replace(check, sent=ClockReading.now(self._clock))
        return self._newest

    patch.setattr(BoundaryChecks, "check", check)


def judged_by_the_last(patch: Patch) -> None:
    """Of a run of entries only the last one is checked, and stands for all of them."""
    original = Replica._is_believed

    def is_believed(self: Replica[Any], slot: int) -> bool:
        return original(self, getattr(self._reader, "last_read", slot))

    read_run = RunReader.read

    def read(self: RunReader, at: Any, found: bytes | None, reads_on: bool) -> Any:
        run = read_run(self, at, found, reads_on)
        self.last_read = at.next_slot + len(run.entries)  # type: ignore[attr-defined]
        return run

    patch.setattr(Replica, "_is_believed", is_believed)
    patch.setattr(RunReader, "read", read)


def snapshots_check(patch: Patch) -> None:
    """The boundary that a snapshot names is taken for the newest one."""

    def boundary_of(store: Store, layout: JournalLayout, head: Any, known: Boundary) -> Boundary:
        if head.boundary <= known.ordinal:
            return known
        return read_boundary(store, layout, head.boundary) or known

    patch.setattr(opening, "_boundary_of", boundary_of)


def inherited(patch: Patch) -> None:
    """A check is valid in any process that inherits it in memory."""
    patch.setattr(boundary, "os", SimpleNamespace(getpid=lambda: 1))


def lost_for_certain(patch: Patch) -> None:
    """A slot reported as another process's counts as never written by this one."""

    def follow_winner(self: Replica[Any], slot: int, winner: bytes, reads_on: bool) -> Attempt:
        self._catch_up(winner, reads_on=reads_on)
        return Attempt.TAKEN

    patch.setattr(Replica, "_follow_winner", follow_winner)


def holes_by_the_check_at_hand(patch: Patch) -> None:
    """A missing entry counts as damage if the known boundary does not explain it."""

    def require_no_hole(self: RunReader, at: Any, slot: int, later: list[bytes | None]) -> None:
        path = self._layout.entry(slot)
        if all(data is None for data in later) or self._store.get(path) is not None:
            return
        if at.boundary.lowest_slot <= slot:
            raise missing_entry(path)

    patch.setattr(RunReader, "_require_no_hole", require_no_hole)


def absent_snapshots_by_the_check_at_hand(patch: Patch) -> None:
    """A missing snapshot that the boundary names counts as damage, too."""
    original = opening._from_snapshot

    def from_snapshot(
        store: Store, layout: JournalLayout, machine: Any, slot: int, known: Boundary
    ) -> Followed[Any] | None:
        found = original(store, layout, machine, slot, known)
        if found is None and slot == known.snapshot_slot:
            path = layout.snapshot(slot)
            raise CorruptData(f"{path} is missing. Restore it from a backup.", path=path)
        return found

    patch.setattr(opening, "_from_snapshot", from_snapshot)


def absent_since_it_was_opened(patch: Patch) -> None:
    """Entries found absent during opening stay absent for every later call."""

    def keep(self: Any, prefetch: Any) -> None:
        self._kept = prefetch or getattr(self, "_kept", None)

    patch.setattr(RunReader, "prefetch", property(lambda self: self._kept, keep), raising=False)


def absent_before_it_was_named(patch: Patch) -> None:
    """A boundary counts as missing if it was absent when it was requested ahead."""
    patch.setattr(opening, "unprefetched", lambda store: SimpleNamespace(get=lambda path: None))


def opened_from_the_answer_on(patch: Patch) -> None:
    """The trusted time of the check during opening starts at its end."""
    original = BoundaryChecks.by_opening

    def by_opening(self: BoundaryChecks, read: Callable[[], Followed[Any]]) -> Followed[Any]:
        opened = original(self, read)
        assert self._newest is not None
        self._newest = replace(self._newest, sent=ClockReading.now(self._clock))
        return opened

    patch.setattr(BoundaryChecks, "by_opening", by_opening)


def own_grace(patch: Patch) -> None:
    """Each process deletes by its own configuration, and not by that in the log's cluster file."""
    patch.setattr(LogSettings, "pruning_grace_ms", 0)


OF_TRUST: Mapping[str, Mutant] = {
    "without R14, grace ignored": Mutant(no_grace, "trusted", 21),
    "without R15, check trusted for ever": Mutant(trusted_for_ever, "trusted", 16),
    "without R15, trust by the wall clock alone": Mutant(trusted_by("wall_ms"), "trusted", 93),
    "without R31, snapshot's boundary counts as checked": Mutant(
        snapshots_check, "trusted", 35, unseen_seeds=300
    ),
    "without R32": Mutant(own_grace, "trusted", 21),
    "without R34, missing entry counts as damage at once": Mutant(
        holes_by_the_check_at_hand, "trusted", 27
    ),
}

_CHECKS = "tests/unit/journal/boundaries/test_trusted_checks.py::"
_AHEAD = "tests/unit/journal/replication/test_opening_ahead.py::"
_GRACE = "tests/unit/journal/boundaries/test_pruning_grace.py::"

BUGS_OF_TRUST: Mapping[str, tuple[Callable[[Patch], None], str]] = {
    "boundary age by the local clock (R14)": (
        age_by_own_clock,
        f"{_GRACE}test_R14_clock_of_the_deleting_process_never_shortens_the_grace",
    ),
    "trust counts from the check's answer (R15)": (
        from_the_answer_on,
        f"{_CHECKS}test_R15_trust_is_measured_from_before_the_check_was_sent",
    ),
    "trust counts from the end of the opening (R15)": (
        opened_from_the_answer_on,
        f"{_AHEAD}test_R15_trust_of_an_opening_is_measured_from_before_its_first_request",
    ),
    "absence read ahead at the opening stays valid (R15)": (
        absent_since_it_was_opened,
        f"{_AHEAD}test_R15_prefetched_absence_is_not_used_after_the_opening_call",
    ),
    "boundary absent when read ahead counts as missing (R34)": (
        absent_before_it_was_named,
        f"{_AHEAD}test_R34_boundary_created_after_its_prefetch_is_not_missing",
    ),
    "a run is judged by its last slot (R15)": (
        judged_by_the_last,
        f"{_CHECKS}test_R15_run_of_slots_is_judged_by_its_first_slot",
    ),
    "check inherited by a forked process (R31)": (
        inherited,
        f"{_CHECKS}test_R31_forked_child_sends_a_new_boundary_check",
    ),
    "lost slot counts as never written (R33)": (
        lost_for_certain,
        f"{_CHECKS}test_R33_command_whose_slot_was_freed_and_refilled_raises_outcome_unknown",
    ),
    "missing snapshot counts as damage at once (R34)": (
        absent_snapshots_by_the_check_at_hand,
        f"{_CHECKS}test_R34_missing_snapshot_is_judged_by_a_check_sent_afterwards",
    ),
}
"""Planted bug -> the function that plants it, and the test that detects it."""
