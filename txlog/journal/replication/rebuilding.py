"""The state of a journal once more, from an older snapshot and the entries after it (R64).

A process believes the snapshot from which it opened a journal. If that one is damaged in a way that
its checksums do not show, or forged, the state lacks what the entries say. Reading it costs
nothing, but objects that are deleted because the state does not name them are lost. So before
anything is deleted, an older snapshot and the entries must lead to the same state. In a journal of
few entries this is the beginning, as for `txlog verify`. This module must not know what events
mean.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from txlog.errors import BoundaryMoved, CorruptData, TxlogError
from txlog.journal.boundaries.boundary import read_newest
from txlog.journal.entry import GENESIS_CRC32, decode_own_entry
from txlog.journal.machine import Machine, StateT, after_entry, decoded_snapshot
from txlog.journal.replication.opening import ENTRIES_APART_MAX, Followed
from txlog.layout import JournalLayout, parse_number
from txlog.storage.store import Store

WINDOW = 32
"""Entries that are requested at once."""

Fetch = Callable[[int, int], list[bytes | None]]
"""(slot, count) -> so many entries from the slot on, at least up to the first absent one."""


def require_rebuilt(
    store: Store,
    layout: JournalLayout,
    machine: Machine[StateT],
    at: Followed[StateT],
    opened_slot: int,
    fetch: Fetch,
) -> None:
    """Raises CorruptData unless a snapshot below `opened_slot`, from which the journal was opened,
    and the entries lead to the state `at`; BoundaryMoved if they are pruned meanwhile. Costs a
    listing, and a read for each entry since that snapshot."""
    state, slot, crc32 = _older(store, layout, machine, at, opened_slot)
    while slot < at.next_slot:
        for data in fetch(slot, min(WINDOW, at.next_slot - slot)):
            if data is None:
                lowest = read_newest(store, layout, at.boundary).lowest_slot
                raise _missing(layout, layout.entry(slot), is_pruned=slot < lowest)
            entry, found = decode_own_entry(data, layout, slot)
            if entry.prior_crc32 != crc32:
                raise _differs(layout, f"{layout.entry(slot)} does not follow the one before it")
            state = after_entry(machine, state, entry, layout.entry(slot))
            slot, crc32 = slot + 1, found
    if state != at.state:
        raise _differs(layout, "its entries lead to another state than a snapshot of it says")


def _older(
    store: Store,
    layout: JournalLayout,
    machine: Machine[StateT],
    at: Followed[StateT],
    opened_slot: int,
) -> tuple[StateT, int, int]:
    """State, next slot and CRC32 from which to rebuild: the newest snapshot below the opened one,
    else the boundary's, else the beginning."""
    older = [at.boundary.snapshot_slot]
    if opened_slot > older[0]:
        before = layout.snapshot(max(opened_slot - 2 * ENTRIES_APART_MAX, 0))
        for stored in store.list_after(layout.snapshots, before):
            number = parse_number(stored.path)
            if stored.path >= layout.snapshot(opened_slot):
                break
            if number is not None and older[0] < number and stored.path == layout.snapshot(number):
                older.append(number)
    # A damaged one, or one of another journal, is left out, as when a journal is opened.
    for slot in reversed(older[1:]):
        with suppress(CorruptData):
            return _state_of(store, layout, machine, at, slot)
    return _state_of(store, layout, machine, at, older[0])


def _state_of(
    store: Store, layout: JournalLayout, machine: Machine[StateT], at: Followed[StateT], slot: int
) -> tuple[StateT, int, int]:
    if slot < 0:
        return machine.initial(), 0, GENESIS_CRC32
    data = store.get(layout.snapshot(slot))
    if data is None:
        newest = read_newest(store, layout, at.boundary).snapshot_slot
        raise _missing(layout, layout.snapshot(slot), is_pruned=slot < newest)
    head, state = decoded_snapshot(layout, machine, slot, data)
    return state, slot + 1, head.crc32


def _missing(layout: JournalLayout, path: str, *, is_pruned: bool) -> TxlogError:
    if is_pruned:
        return BoundaryMoved(f"{layout.root}: its old entries were removed meanwhile; try again.")
    return _differs(layout, f"{path} is missing")


def _differs(layout: JournalLayout, why: str) -> CorruptData:
    return CorruptData(
        f"{layout.root}: nothing was deleted, because {why}. 'txlog verify' names the damaged "
        "object; restore it from a backup, or remove it if it is a snapshot.",
        path=layout.root,
    )
