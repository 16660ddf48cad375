"""One journal's stored bytes, walked from end to end, and what is wrong with them.

It proves I1 as far as bytes can tell (no hole, one chain of checksums, no token twice, boundaries
that only rise) and that every snapshot says what the entries say. It reads what is stored, not what
a replica has in memory, and it may list: nobody decides anything on its answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic

from txlog.errors import CorruptData, TxlogError
from txlog.journal.boundary import NO_BOUNDARY, Boundary, decode_boundary
from txlog.journal.entry import GENESIS_CRC32, Entry, decode_entry
from txlog.journal.machine import Machine, StateT
from txlog.journal.snapshot import SnapshotHead, decode_snapshot
from txlog.layout import JournalLayout, parse_number
from txlog.storage.store import Store

_INVARIANT = re.compile(r"(I\d+): ")


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One thing that is not as docs/invariants.md says it must be."""

    path: str
    """The object, or the journal's folder."""
    invariant: str
    """Its number there, such as "I2"."""
    message: str

    def __str__(self) -> str:
        return f"{self.invariant} {self.path}: {self.message}"


@dataclass(frozen=True, slots=True)
class Step:
    """One event of a live entry."""

    slot: int
    path: str
    event: Any


@dataclass(slots=True)
class Walk(Generic[StateT]):
    """What a journal holds: the state at its start, every event since, the state at its end."""

    layout: JournalLayout
    base: StateT
    """The state that the newest boundary's snapshot holds; the empty one if nothing was pruned."""
    state: StateT
    base_slot: int = -1
    """The last slot that `base` covers."""
    steps: list[Step] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    is_whole: bool = True
    """The fold came to the end, so that `state` can be relied on."""

    @property
    def is_pruned(self) -> bool:
        """Old events are gone: what is not among the steps may have been."""
        return self.base_slot >= 0

    def report(self, invariant: str, path: str, message: str) -> None:
        """Note what was found."""
        self.findings.append(Finding(path, invariant, message))


def walk_journal(store: Store, layout: JournalLayout, machine: Machine[StateT]) -> Walk[StateT]:
    """Read every boundary, entry and snapshot of a journal. Raises nothing that bytes can cause."""
    walk = Walk(layout, machine.initial(), machine.initial())
    boundary = _newest_boundary(store, walk)
    entries = _entries(store, walk, boundary)
    _check_chain(walk, entries, boundary)
    head = _set_base(store, walk, machine, boundary)
    _check_head(walk, entries, head)
    _decode_events(walk, machine, entries)
    _fold(store, walk, machine, entries)
    return walk


def _newest_boundary(store: Store, walk: Walk[StateT]) -> Boundary:
    newest = NO_BOUNDARY
    while (data := store.get(path := walk.layout.boundary(newest.ordinal + 1))) is not None:
        try:
            found = decode_boundary(data, path)
        except CorruptData as error:
            walk.report("I15", path, error.message)
            walk.is_whole = False
            break
        if found.ordinal != newest.ordinal + 1 or _falls(found, newest):
            walk.report("I1", path, f"boundary {found} does not rise above {newest} (rule R14)")
        newest = found
    return newest


def _falls(found: Boundary, before: Boundary) -> bool:
    """A boundary rises; only the last one of a journal may stand where the one before stood."""
    is_end = found.closed and not before.closed
    lowest = before.lowest_slot
    return found.lowest_slot < lowest or (found.lowest_slot == lowest and not is_end)


def _entries(store: Store, walk: Walk[StateT], boundary: Boundary) -> dict[int, tuple[Entry, int]]:
    """Slot -> entry and its checksum, of all that live."""
    listed = [parse_number(stored.path) for stored in store.list_after(walk.layout.entries)]
    slots = sorted(slot for slot in listed if slot is not None and slot >= boundary.lowest_slot)
    entries: dict[int, tuple[Entry, int]] = {}
    for slot in slots:
        path = walk.layout.entry(slot)
        data = store.get(path)
        try:
            if data is not None:
                entries[slot] = decode_entry(data, path, slot)
        except CorruptData as error:
            walk.report("I15", path, error.message)
    return entries


def _check_chain(
    walk: Walk[StateT], entries: dict[int, tuple[Entry, int]], boundary: Boundary
) -> None:
    tokens: dict[str, int] = {}
    prior = GENESIS_CRC32 if boundary.lowest_slot == 0 else None
    expected = boundary.lowest_slot
    for slot, (entry, crc32) in entries.items():
        path = walk.layout.entry(slot)
        if slot != expected:
            walk.report("I1", path, f"slot {expected} is missing below it")
            walk.is_whole = False
        elif prior is not None and entry.prior_crc32 != prior:
            walk.report("I1", path, f"it follows checksum {entry.prior_crc32}, not {prior}")
            walk.is_whole = False
        if entry.token in tokens:
            walk.report("I1", path, f"its token is also that of slot {tokens[entry.token]}")
        tokens[entry.token] = slot
        prior, expected = crc32, slot + 1


def _set_base(
    store: Store, walk: Walk[StateT], machine: Machine[StateT], boundary: Boundary
) -> SnapshotHead | None:
    if boundary.ordinal < 0:
        return None
    path = walk.layout.snapshot(boundary.snapshot_slot)
    data = store.get(path)
    if data is None:
        walk.report("I15", path, "the newest boundary names this snapshot, and it is missing")
        walk.is_whole = False
        return None
    try:
        head, sections = decode_snapshot(data, path)
        walk.base = walk.state = machine.decode_state(sections)
        walk.base_slot = head.slot
    except CorruptData as error:
        walk.report("I15", path, error.message)
        walk.is_whole = False
        return None
    return head


def _check_head(
    walk: Walk[StateT], entries: dict[int, tuple[Entry, int]], head: SnapshotHead | None
) -> None:
    """The snapshot at the start must continue in the first entry that it does not cover."""
    if head is None:
        return
    path = walk.layout.snapshot(head.slot)
    covered, following = entries.get(head.slot), entries.get(head.slot + 1)
    if covered is not None and covered[1] != head.crc32:
        walk.report("I1", path, "its checksum is not that of the last entry that it covers")
    if following is not None and following[0].prior_crc32 != head.crc32:
        walk.report("I1", path, "the entry after it does not follow it")


def _decode_events(
    walk: Walk[StateT], machine: Machine[StateT], entries: dict[int, tuple[Entry, int]]
) -> None:
    for slot, (entry, _) in entries.items():
        path = walk.layout.entry(slot)
        for value in entry.events if slot > walk.base_slot else ():
            try:
                walk.steps.append(Step(slot, path, machine.decode_event(value)))
            except CorruptData as error:
                walk.report("I15", path, error.message)
                walk.is_whole = False


def _fold(
    store: Store,
    walk: Walk[StateT],
    machine: Machine[StateT],
    entries: dict[int, tuple[Entry, int]],
) -> None:
    """Apply every event, and hold each snapshot on the way against the state at its slot."""
    snapshots = dict(_snapshots(store, walk, machine))
    by_slot: dict[int, list[Step]] = {slot: [] for slot in entries if slot > walk.base_slot}
    for step in walk.steps:
        by_slot[step.slot].append(step)
    tip = max(entries, default=walk.base_slot)
    for slot in sorted(by_slot) if walk.is_whole else ():
        if not _apply(walk, machine, by_slot[slot], slot):
            walk.is_whole = False
            return
        if slot in snapshots:
            _compare(walk, snapshots[slot], entries[slot][1])
    for slot in snapshots:
        if slot > tip:
            walk.report("I1", walk.layout.snapshot(slot), f"the journal ends at slot {tip}")


def _apply(walk: Walk[StateT], machine: Machine[StateT], steps: list[Step], slot: int) -> bool:
    try:
        for step in steps:
            walk.state = machine.apply(walk.state, step.event, slot)
        walk.state = machine.close_entry(walk.state, slot)
    except TxlogError as error:
        said = _INVARIANT.match(error.message)
        walk.report(said.group(1) if said else "I15", walk.layout.entry(slot), error.message)
        return False
    except (KeyError, IndexError) as error:
        text = f"an event speaks of something that does not exist ({error!r})"
        walk.report("I15", walk.layout.entry(slot), text)
        return False
    return True


def _snapshots(
    store: Store, walk: Walk[StateT], machine: Machine[StateT]
) -> Iterator[tuple[int, tuple[SnapshotHead, StateT]]]:
    for stored in store.list_after(walk.layout.snapshots):
        slot, data = parse_number(stored.path), store.get(stored.path)
        if slot is None or data is None or slot <= walk.base_slot:
            continue
        try:
            head, sections = decode_snapshot(data, stored.path)
            yield slot, (head, machine.decode_state(sections))
        except CorruptData as error:
            walk.report("I15", stored.path, error.message)


def _compare(walk: Walk[StateT], snapshot: tuple[SnapshotHead, StateT], crc32: int) -> None:
    head, state = snapshot
    path = walk.layout.snapshot(head.slot)
    if head.crc32 != crc32:
        walk.report("I1", path, "its checksum is not that of the last entry that it covers")
    if state != walk.state:
        walk.report("I15", path, "it says something else than the entries up to its slot")
