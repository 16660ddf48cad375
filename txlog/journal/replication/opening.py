"""Opening a journal (hint, else the newest boundary's snapshot, else entry 0) and its snapshots.

A hint may be old, wrong or gone, and a snapshot may be damaged or vanish while it is read: each
only costs time (rules R16, R34). A damaged one is never deleted and written again: that DELETE
might be executed late, and take the new one (rule R47). The number of requests does not grow with
the journal's length.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from typing import Generic

from txlog.errors import CorruptData, MissingObject, StoreDenied, UnsupportedFormat
from txlog.journal.boundaries import boundary as boundaries
from txlog.journal.boundaries.boundary import NO_BOUNDARY, Boundary
from txlog.journal.entry import FORMAT_VERSION, GENESIS_CRC32
from txlog.journal.fold import decoded_state
from txlog.journal.machine import Machine, StateT
from txlog.journal.owner import require_own
from txlog.journal.replication.reads_ahead import Reads, expect, sent_now
from txlog.journal.snapshot import SnapshotHead, decode_snapshot, encode_snapshot
from txlog.layout import SLOT_DIGITS, JournalLayout
from txlog.storage.store import ENTRY_BYTES_MAX, ByteRange, Exists, Store

log = logging.getLogger(__name__)

FIRST_ENTRIES = 8
"""Of a journal that may be young: asked for beside its hint, far away."""

ENTRIES_BEHIND_SNAPSHOT = 32
"""Asked for beside a snapshot, far away."""


@dataclass(frozen=True, slots=True)
class Opened(Generic[StateT]):
    """Where a replica starts to read entries."""

    state: StateT
    next_slot: int
    crc32: int
    boundary: Boundary
    damaged: bool = False
    """A snapshot could not be read: write one under another slot."""


def open_journal(
    store: Reads, layout: JournalLayout, machine: Machine[StateT], known: Boundary
) -> Opened[StateT]:
    """The newest state that is available without reading every entry.

    Raises CorruptData if no readable snapshot covers the pruned entries.
    """
    expect(store, [layout.boundary(known.ordinal + 1), layout.hint])
    if known.ordinal < 0:
        expect(store, map(layout.entry, range(FIRST_ENTRIES)))
    hinted = _hinted_slot(store, layout)
    damaged = False
    if hinted is not None and hinted + 1 >= known.lowest_slot:
        try:
            opened = _from_snapshot(store, layout, machine, hinted, known)
            if opened is not None and opened.next_slot >= opened.boundary.lowest_slot:
                return opened
        except (UnsupportedFormat, MissingObject):
            raise
        except CorruptData as error:
            log.warning("%s", error)
            damaged = True
    return _from_boundary(store, layout, machine, known, damaged)


def _from_boundary(
    store: Reads, layout: JournalLayout, machine: Machine[StateT], known: Boundary, damaged: bool
) -> Opened[StateT]:
    newest = boundaries.read_newest(store, layout, known)
    if newest.ordinal < 0:
        return Opened(machine.initial(), 0, GENESIS_CRC32, NO_BOUNDARY, damaged)
    opened = _from_snapshot(store, layout, machine, newest.snapshot_slot, newest)
    if opened is not None:
        return replace(opened, damaged=damaged)
    if boundaries.read_newest(sent_now(store), layout, newest) != newest:
        # The next boundary has its own snapshot, so this one was free to vanish (rule R16).
        return _from_boundary(store, layout, machine, newest, damaged)
    raise CorruptData(
        f"{layout.snapshot(newest.snapshot_slot)} is missing, and the entries below it were "
        "pruned. Restore it from a backup.",
        path=layout.snapshot(newest.snapshot_slot),
    )


def _hinted_slot(store: Reads, layout: JournalLayout) -> int | None:
    """The hint's slot, if valid: a hint may contain anything (rule R16)."""
    try:
        data = store.get(layout.hint)
        slot = None if data is None else json.loads(data)["snapshot"]
    except (CorruptData, StoreDenied, ValueError, KeyError, TypeError, RecursionError):
        return None
    return slot if type(slot) is int and 0 <= slot < 10**SLOT_DIGITS else None


def _from_snapshot(
    store: Reads, layout: JournalLayout, machine: Machine[StateT], slot: int, known: Boundary
) -> Opened[StateT] | None:
    expect(store, [path := layout.snapshot(slot)])
    expect(store, map(layout.entry, range(slot + 1, slot + 1 + ENTRIES_BEHIND_SNAPSHOT)))
    data = store.get(path)
    if data is None:
        return None
    head, sections = decode_snapshot(data, path)
    require_own(head, layout, path)
    if head.slot != slot:
        raise CorruptData(f"{path} says that it covers slot {head.slot}.", path=path)
    state = decoded_state(machine, sections, path, data)
    boundary = _boundary_of(store, layout, head, known)
    return Opened(state, slot + 1, head.crc32, boundary)


def _boundary_of(
    store: Reads, layout: JournalLayout, head: SnapshotHead, known: Boundary
) -> Boundary:
    if head.boundary > known.ordinal:
        expect(store, map(layout.boundary, (head.boundary, head.boundary + 1)))
        found = boundaries.read_boundary(store, layout, head.boundary)
        if found is None:  # It may have come since it was asked for (R34).
            found = boundaries.read_boundary(sent_now(store), layout, head.boundary)
        if found is None:
            path = layout.boundary(head.boundary)
            raise MissingObject(
                f"{path} is missing, and a snapshot names it. Restore it from a backup.", path=path
            )
        known = found
    return boundaries.read_newest(store, layout, known)


def write_snapshot(
    store: Store,
    layout: JournalLayout,
    machine: Machine[StateT],
    state: StateT,
    head: tuple[int, int, int],
    check: bool,
) -> bool:
    """Write the shared chunks, then the snapshot that refers to them, then the hint.

    A crash between two steps leaves objects that a later snapshot refers to, or none.
    With `check` a snapshot that is there already is read: if it is damaged, the answer is False,
    and nothing is written, as this slot cannot have another one (rule R47). `head` is (slot, CRC32,
    boundary ordinal). Raises CorruptData for a damaged chunk.
    """
    slot, crc32, boundary = head
    path = layout.snapshot(slot)
    if check and not _is_readable(store, path):
        log.warning("%s is damaged; another slot has the next snapshot", path)
        return False
    for chunk in machine.unsaved_chunks(state):
        _save_chunk(store, layout.chunk(chunk.first_slot, chunk.last_slot), chunk.data)
    data = encode_snapshot(
        SnapshotHead(FORMAT_VERSION, slot, crc32, boundary, layout.root, layout.log_id),
        machine.encode_state(state),
    )
    _save(store, path, data)
    store.replace(layout.hint, json.dumps({"snapshot": slot}).encode())
    return True


def _is_readable(store: Store, path: str) -> bool:
    """Whether nothing is there, or a snapshot that can be read."""
    data = store.get(path)
    try:
        return data is None or bool(decode_snapshot(data, path))
    except UnsupportedFormat:
        raise
    except CorruptData:
        return False


def _save_chunk(store: Store, path: str, data: bytes) -> None:
    """Snapshots refer to a chunk by its checksum, so what is there must be the very same."""
    found = _save(store, path, data)
    if found is not None and found != data:
        raise CorruptData(
            f"{path} is damaged: it differs from what the journal's entries lead to. Restore it "
            "from a backup.",
            path=path,
        )


def _save(store: Store, path: str, data: bytes) -> bytes | None:
    """What is there already, if it is small enough to tell, or None.

    Another process may have saved the same content first: it is a function of the entries below.
    """
    if len(data) <= ENTRY_BYTES_MAX:
        answer = store.create(path, data)
        return answer.data if isinstance(answer, Exists) else None
    if not exists(store, path):
        store.put_new(path, data)
    return None


def exists(store: Store, path: str) -> bool:
    """Whether an object is there, without reading it."""
    return store.get_ranges(path, [ByteRange(0, 1)]) is not None
