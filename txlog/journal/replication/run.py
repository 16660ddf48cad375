"""Reading a run of entries: as many as a replica reads before it judges them.

Keeps I15: a hole is damage, and is never skipped or filled (R34). Whether an entry counts by the
boundary (R15) is judged in `replica.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from txlog.errors import MissingObject
from txlog.fan_out import FanOut
from txlog.journal.beginning import lost_journal
from txlog.journal.boundaries.boundary import BoundaryChecks, Position
from txlog.journal.entry import Entry, decode_own_entry
from txlog.journal.replication.opening import Prefetch
from txlog.journal.replication.replica_options import ReplicaOptions
from txlog.layout import JournalLayout
from txlog.storage.store import Store

EXPECTED_MAX = 6
"""Entries that are requested in advance: a process that finds five new entries at each read, as of
a micro-batch, reads them in one round trip. Those that do not exist yet are requested in vain."""

RUN_ENTRIES_MAX = 1_000
"""A run with this many entries is full: it is applied, and another one begins. A longer run takes
more memory and is read again whole if its boundary has moved; a shorter one costs a check of the
boundary for each."""

RUN_BYTES_MAX = 16 << 20
"""The same in bytes, as stored: 16 entries of the largest size. A run may exceed either limit by
one fetch."""


@dataclass(slots=True)
class Run:
    """Consecutive entries, each with its CRC32: read, but not believed until the boundary was read
    after them (rule R15). A run is limited, so that a lagging replica holds little in memory
    (I16)."""

    entries: list[tuple[Entry, int]] = field(default_factory=list)
    size_bytes: int = 0
    is_full: bool = False
    """Whether it ended because of its size: there may be more entries."""

    def add(self, entry: tuple[Entry, int], size_bytes: int) -> None:
        """Append one entry."""
        self.entries.append(entry)
        self.size_bytes += size_bytes
        self.is_full = len(self.entries) >= RUN_ENTRIES_MAX or self.size_bytes >= RUN_BYTES_MAX


class RunReader:
    """Reads one journal, for the thread that holds the replica's lock."""

    def __init__(
        self,
        store: Store,
        layout: JournalLayout,
        fan_out: FanOut,
        checks: BoundaryChecks,
        options: ReplicaOptions,
    ) -> None:
        self._store = store
        self._layout = layout
        self._fan_out = fan_out
        self._checks = checks
        self._is_far = options.is_far
        self._is_begun = options.is_begun
        self._window_max = options.process.catch_up_window_max
        self.first_window = 1
        """Entries that the next read requests at once: two after opening, to detect a hole."""
        self.prefetch: Prefetch | None = None
        """The reads that opening has prefetched. Only the call that opens the journal uses them:
        later, an entry that was absent may exist, so each call forgets them."""
        self.found_last = 0
        """Entries that the last read found, up to EXPECTED_MAX: where each request is a round trip,
        the next read requests as many and one more at once."""

    def read(self, at: Position, found: bytes | None, reads_on: bool) -> Run:
        """Entries from the next slot on, up to the first absent one, or until the run is full. A
        run that is not full has reached the last entry. `found` is the entry of the next slot, if
        it is known; without `reads_on` it is the whole run."""
        run = Run()
        slot = at.next_slot
        ahead, self.prefetch = self.prefetch, None
        known: list[bytes | None] = [] if found is None else [found]
        while found is None and ahead and ahead.has(path := self._layout.entry(slot + len(known))):
            known.append(ahead.get(path))
        # As many as the last read found, and one more: a process that finds the same few at each
        # read waits for one round trip.
        window = max(self.first_window, 1 + (self.found_last if self._checks.are_trusted else 0))
        if len(known) > 1:  # The prefetched entries were the first window.
            window = 2 * len(known)
        while not run.is_full:
            bodies, known = known or self.fetch(slot, window), []
            for number, data in enumerate(bodies):
                if data is None:
                    later = bodies[number + 1 :]
                    # The first read after an opening looks one slot further. Otherwise a hole would
                    # look like the end of the journal, and this process would fill it (I15).
                    if self.first_window > 1 and not later:
                        later = self.fetch(slot + 1, 1)
                    self._require_no_hole(at, slot, later)
                    self.first_window = 1
                    # Even if the entry has come meanwhile: it was absent during this call.
                    return run
                run.add(decode_own_entry(data, self._layout, slot), len(data))
                slot += 1
            if not reads_on:
                return run
            window = min(window * 2, self._window_max)
        return run

    def _require_no_hole(self, at: Position, slot: int, later: list[bytes | None]) -> None:
        """Raises CorruptData if the entry of `slot` is lost.

        A writer creates an entry only above an existing one, so a later entry proves that this one
        existed, and so does the snapshot of a boundary. The first entry has always existed (R63).
        It may have been created between the two requests, or have been pruned, which only a
        boundary check that is sent now can tell (R34); otherwise it is lost.
        """
        path, known = self._layout.entry(slot), at.boundary
        is_first = slot == 0 and self._is_begun
        is_covered = known.lowest_slot <= slot <= known.snapshot_slot
        has_existed = is_first or is_covered or any(data is not None for data in later)
        if not has_existed or self._store.get(path) is not None:
            return
        if self._checks.check(known).boundary.lowest_slot <= slot:
            raise lost_journal(self._layout) if is_first else missing_entry(path)

    def fetch(self, slot: int, count: int) -> list[bytes | None]:
        """So many entries from the slot on, at least up to the first absent one."""
        names = [self._layout.entry(slot + index) for index in range(count)]
        if count > 1 and self._is_far:
            return self._fan_out.run_all([partial(self._store.get, name) for name in names])
        found: list[bytes | None] = []
        for name in names:
            found.append(self._store.get(name))
            if found[-1] is None:  # It ends the journal: nothing after it is read.
                break
        return found


def missing_entry(path: str) -> MissingObject:
    """The error for a hole."""
    return MissingObject(
        f"{path} is missing, and entries after it exist. Restore it from a backup; nothing was "
        "skipped.",
        path=path,
    )
