"""One journal's stored bytes, read from end to end, and what is wrong with them.

It proves I1 as far as bytes can (no hole, one chain of checksums, no token twice, boundaries that
only rise), I15 of every boundary, entry, chunk and snapshot, and that each snapshot agrees with the
entries. It reads what is stored, not what a replica has in memory, one object at a time, so that
the length of a journal costs time only. It may list objects, as no decision depends on the listing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias

from txlog.errors import CorruptData
from txlog.journal.boundaries.boundary import (
    NO_BOUNDARY,
    Boundary,
    decode_own_boundary,
    read_newest,
)
from txlog.journal.entry import GENESIS_CRC32, Entry, decode_own_entry
from txlog.journal.machine import (
    Machine,
    StateT,
    after_event,
    closed_entry,
    decoded_events,
    decoded_snapshot,
)
from txlog.journal.replication.opening import hinted_slot
from txlog.journal.snapshot import SnapshotHead
from txlog.layout import JournalLayout, parse_number
from txlog.storage.store import Store

ATTEMPTS_MAX = 3
"""Attempts to walk over a journal whose old entries are being deleted. Pruning deletes 4,096
entries at a time at least, so that a walk seldom meets it twice; after the last attempt the audit
reports what it has found."""

TOKENS_KEPT_MAX = 100_000
"""Tokens that are compared, some 20 MB: the two copies of an entry that was published twice are
close, since the writer of the second did not know of the first."""

_INVARIANT = re.compile(r"(I\d+): ")


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One violation of docs/invariants.md."""

    path: str
    """The object, or the journal's folder."""
    invariant: str
    """The invariant's number, such as "I2"."""
    message: str

    def __str__(self) -> str:
        return f"{self.invariant} {self.path}: {self.message}"

    @property
    def sentence(self) -> str:
        """The message, which names the object."""
        return self.message if self.path in self.message else f"{self.path}: {self.message}"


@dataclass(frozen=True, slots=True)
class Step:
    """One event of a live entry."""

    slot: int
    path: str
    event: Any


@dataclass(slots=True)
class Audit(Generic[StateT]):
    """The content of a journal: the state at its start and at its end, and what was read."""

    layout: JournalLayout
    base: StateT
    """The state in the newest boundary's snapshot; the empty state if nothing was pruned."""
    state: StateT
    base_slot: int = -1
    """The last slot that `base` covers."""
    tip: int = -1
    """The last slot that was read."""
    entries: int = 0
    snapshots: int = 0
    size_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)
    is_whole: bool = True
    """Whether every event up to the end was applied, so that `state` is reliable."""

    @property
    def is_pruned(self) -> bool:
        """Whether old events are deleted: then an event that is not among the steps may have been
        one of them."""
        return self.base_slot >= 0

    def report(self, invariant: str, path: str, message: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(path, invariant, message))


OnStep: TypeAlias = Callable[[Step], object]
OnBytes: TypeAlias = Callable[[int], object]


def audit_journal(
    store: Store,
    layout: JournalLayout,
    machine: Machine[StateT],
    *,
    on_begin: Callable[[], object] = lambda: None,
    on_step: OnStep = lambda _: None,
    on_bytes: OnBytes = lambda _: None,
) -> Audit[StateT]:
    """Read every boundary, entry and snapshot. Raises the store's errors, none caused by bytes.

    `on_step` is called with every event of the live entries, in order, and `on_bytes` with the size
    of each object. If entries are pruned meanwhile it starts again, and calls `on_begin`.
    """
    audit = Audit(layout, machine.initial(), machine.initial())
    for _ in range(ATTEMPTS_MAX):
        on_begin()
        walk = _Walk(store, layout, machine, on_step, on_bytes)
        audit = walk.run()
        if not walk.has_been_pruned():
            break
    return audit


def _does_not_rise(found: Boundary, before: Boundary) -> bool:
    """Whether `found` breaks the rule that each boundary is above the one before, and names no
    older snapshot (rule R47). Only the last boundary of a journal may have the slot of the one
    before."""
    if found.snapshot_slot < before.snapshot_slot:
        return True
    is_end = found.closed and not before.closed
    lowest = before.lowest_slot
    return found.lowest_slot < lowest or (found.lowest_slot == lowest and not is_end)


class _Walk(Generic[StateT]):
    """One pass over a journal."""

    def __init__(
        self,
        store: Store,
        layout: JournalLayout,
        machine: Machine[StateT],
        on_step: OnStep,
        on_bytes: OnBytes,
    ) -> None:
        self._store = store
        self._layout = layout
        self._machine = machine
        self._on_step = on_step
        self._on_bytes = on_bytes
        self._audit = Audit(layout, machine.initial(), machine.initial())
        self._boundary = NO_BOUNDARY
        self._head: SnapshotHead | None = None
        self._slots_of_tokens: dict[str, int] = {}
        self._crc32: int | None = GENESIS_CRC32
        """Checksum of the entry before the next one; None if it is unknown."""
        self._expected = 0
        """The slot whose entry comes next: every entry from the boundary's lowest slot on."""

    def run(self) -> Audit[StateT]:
        """Read everything, in the order in which a replica relies on it."""
        self._boundary = self._newest_boundary()
        self._expected = self._boundary.lowest_slot
        self._set_base()
        # Listed before the entries: a snapshot never covers an entry that is not stored yet.
        snapshots = self._numbered(self._layout.snapshots, self._layout.snapshot)
        have_snapshots = frozenset(snapshots)  # Looked up once for each entry.
        for slot in self._numbered(self._layout.entries, self._layout.entry):
            if slot >= self._boundary.lowest_slot:
                self._entry(slot, slot in have_snapshots)
        # Entries at the end may be lost, too: the boundary's snapshot proves that they existed.
        covered = self._boundary.snapshot_slot
        self._check_hole(covered + 1, self._layout.snapshot(covered))
        self._check_end()
        self._check_other_snapshots(snapshots)
        return self._audit

    def _check_end(self) -> None:
        """Check what a reader finds in place of the next entry: a listing omits what is not a
        file."""
        path = self._layout.entry(end := self._audit.tip + 1)
        try:
            self._store.get(path)
        except CorruptData as error:
            self._audit.report("I15", path, error.message)
            self._lose_track(end)

    def has_been_pruned(self) -> bool:
        """Whether the boundary has risen during the walk: then missing entries were deleted."""
        try:
            return read_newest(self._store, self._layout, self._boundary) != self._boundary
        except CorruptData:
            return False

    def _numbered(self, folder: str, name_of: Callable[[int], str]) -> list[int]:
        """Numbers of the objects in a folder; objects with other names are not the journal's."""
        try:
            paths = [stored.path for stored in self._store.list_after(folder)]
        except CorruptData as error:
            self._audit.report("I15", folder, error.message)
            self._audit.is_whole = False
            return []
        pairs = ((parse_number(path), path) for path in paths)
        return sorted(slot for slot, path in pairs if slot is not None and name_of(slot) == path)

    def _get(self, path: str) -> bytes | None:
        """Raises CorruptData for an object that cannot be read, such as one that is too large."""
        data = self._store.get(path)
        size = 0 if data is None else len(data)
        self._audit.size_bytes += size
        self._on_bytes(size)
        return data

    # The beginning.

    def _newest_boundary(self) -> Boundary:
        newest = NO_BOUNDARY
        while True:
            path = self._layout.boundary(newest.ordinal + 1)
            try:
                if (data := self._get(path)) is None:
                    break
                found = decode_own_boundary(data, self._layout, path)
            except CorruptData as error:
                self._audit.report("I15", path, error.message)
                self._audit.is_whole = False
                break
            if _does_not_rise(found, newest):
                text = f"boundary {found} does not rise above {newest} (rules R14, R47)"
                self._audit.report("I1", path, text)
            newest = found
        return newest

    def _set_base(self) -> None:
        if self._boundary.ordinal < 0:
            return
        # The first live entry may be below the snapshot's slot, so the chain begins at that entry;
        # `_check_link` compares it with the snapshot's checksum.
        audit, self._crc32 = self._audit, None
        path = self._layout.snapshot(named := self._boundary.snapshot_slot)
        try:
            if (data := self._get(path)) is None:
                raise CorruptData("the newest boundary names this snapshot, and it is missing")
            self._head, audit.base = decoded_snapshot(self._layout, self._machine, named, data)
            self._check_named_boundary(self._head, path)
            audit.state, audit.base_slot, audit.tip = audit.base, named, named
        except CorruptData as error:
            audit.report("I15", path, error.message)
            audit.is_whole = False

    # Entries.

    def _entry(self, slot: int, has_snapshot: bool) -> None:
        path = self._layout.entry(slot)
        self._check_hole(slot, path)
        self._expected = slot + 1
        self._audit.tip = max(self._audit.tip, slot)
        try:
            if (data := self._get(path)) is None:
                raise CorruptData(f"{path} is missing; restore it from a backup")
            entry, crc32 = decode_own_entry(data, self._layout, slot)
        except CorruptData as error:
            self._audit.report("I15", path, error.message)
            self._lose_track(slot)
            return
        self._audit.entries += 1
        self._check_link(entry, crc32, path)
        # The base covers the others: they are checked, and not applied again.
        if slot > self._audit.base_slot:
            self._apply(entry, path)
            self._check_chunks(has_snapshot)
            if has_snapshot:
                self._check_snapshot(slot, crc32)

    def _check_hole(self, slot: int, path: str) -> None:
        """Check that every entry below `slot` is there; `path` names what proves that it existed.

        This includes the entries that the boundary's snapshot covers: only entries below the
        boundary may be deleted (R14), and a process whose next slot is a missing one would fill it
        again. Listings may be stale, so a missing entry is requested before it is reported.
        """
        expected, self._expected = self._expected, max(self._expected, slot)
        for missing in range(expected, slot):
            hole = self._layout.entry(missing)
            try:
                if self._get(hole):
                    continue
                text = f"slot {missing} is missing below it: {hole} is not there"
                self._audit.report("I1", path, text)
            except CorruptData as error:  # A listing omits what is not a file.
                self._audit.report("I15", hole, error.message)
            self._lose_track(slot - 1)
            return

    def _lose_track(self, slot: int) -> None:
        """Note that an entry up to `slot` cannot be applied; up to its own slot the base has the
        state."""
        self._crc32 = None
        if slot > self._audit.base_slot:
            self._audit.is_whole = False

    def _check_link(self, entry: Entry, crc32: int, path: str) -> None:
        audit, head = self._audit, self._head
        if self._crc32 is not None and entry.prior_crc32 != self._crc32:
            text = f"it follows checksum {entry.prior_crc32}, not {self._crc32}"
            audit.report("I1", path, f"{text}: it does not follow the entry before it")
            audit.is_whole = False
        if entry.token in self._slots_of_tokens:
            known = self._slots_of_tokens[entry.token]
            audit.report("I1", path, f"its token is also that of slot {known}")
        if head is not None and entry.slot == head.slot and crc32 != head.crc32:
            snapshot = self._layout.snapshot(head.slot)
            text = "its checksum is not that of the last entry that it covers"
            audit.report("I1", snapshot, text)
        # The last entry that the snapshot covers may be deleted: the one after it proves the same.
        if head is not None and entry.slot == head.slot + 1 and entry.prior_crc32 != head.crc32:
            snapshot = self._layout.snapshot(head.slot)
            audit.report("I1", snapshot, "the entry after it does not follow it")
        if len(self._slots_of_tokens) >= TOKENS_KEPT_MAX:
            self._slots_of_tokens.clear()
        self._slots_of_tokens[entry.token] = entry.slot
        self._crc32 = crc32

    def _apply(self, entry: Entry, path: str) -> None:
        audit = self._audit
        try:
            for event in decoded_events(self._machine, entry, path):
                # After a loss `apply` would refuse sound events: only the steps are passed on.
                self._on_step(Step(entry.slot, path, event))
                if audit.is_whole:
                    audit.state = after_event(self._machine, audit.state, event, entry.slot, path)
            if audit.is_whole:
                audit.state = closed_entry(self._machine, audit.state, entry.slot, path)
        except CorruptData as error:
            said = _INVARIANT.match(error.message)
            audit.report(said.group(1) if said else "I15", path, error.message)
            audit.is_whole = False

    # Chunks and snapshots.

    def _check_chunks(self, is_saved: bool) -> None:
        """Each sealed chunk is stored byte for byte, unless it was replaced and removed since.

        Chunks are saved before the snapshot of their slot, and are read from the store from then
        on. A missing chunk that the log refers to is found when the index is read.
        """
        audit = self._audit
        for chunk in self._machine.unsaved_chunks(audit.state) if audit.is_whole else ():
            path = self._layout.chunk(chunk.first_slot, chunk.last_slot)
            try:
                data = self._get(path)
                if data is not None and data != chunk.data:
                    raise CorruptData(f"{path} is damaged: the entries lead to other bytes")
            except CorruptData as error:
                audit.report("I15", path, error.message)
        if is_saved and audit.is_whole:
            audit.state = self._machine.without_unsaved(audit.state)

    def _check_snapshot(self, slot: int, crc32: int) -> None:
        audit, path = self._audit, self._layout.snapshot(slot)
        found = self._snapshot(slot)
        if found is None:
            return
        head, state = found
        if head.crc32 != crc32:
            text = "its checksum is not that of the last entry that it covers"
            audit.report("I1", path, text)
        try:
            is_other = audit.is_whole and state != audit.state
        except CorruptData as error:  # A part that is read only on request.
            audit.report("I15", path, error.message)
            return
        if is_other:
            audit.report("I15", path, "it differs from the entries up to its slot")

    def _check_other_snapshots(self, snapshots: list[int]) -> None:
        """Snapshots below the boundary must still be readable; none may be above the end."""
        audit = self._audit
        named = self._boundary.snapshot_slot
        # A reader opens the one in the hint, which a listing omits if it is not a file.
        hinted = hinted_slot(self._store, self._layout)
        if hinted is not None and hinted not in snapshots:
            self._snapshot(hinted)
        for slot in snapshots:
            if slot > audit.tip:
                self._snapshot(slot)
                text = f"the journal ends at slot {audit.tip}"
                audit.report("I1", self._layout.snapshot(slot), text)
            elif slot <= audit.base_slot and slot != named:
                # `_set_base` has read the named one, and `_entry` those above it.
                self._snapshot(slot)

    def _snapshot(self, slot: int) -> tuple[SnapshotHead, StateT] | None:
        path = self._layout.snapshot(slot)
        try:
            if (data := self._get(path)) is None:
                return None
            self._audit.snapshots += 1
            head, state = decoded_snapshot(self._layout, self._machine, slot, data)
            self._check_named_boundary(head, path)
            return head, state
        except CorruptData as error:
            self._audit.report("I15", path, error.message)
            return None

    def _check_named_boundary(self, head: SnapshotHead, path: str) -> None:
        """A reader that opens the journal from this snapshot continues at the boundary it names."""
        if head.boundary > self._boundary.ordinal:
            named = self._layout.boundary(head.boundary)
            if self._get(named) is None:
                self._audit.report("I15", path, f"it names {named}, which is missing")
