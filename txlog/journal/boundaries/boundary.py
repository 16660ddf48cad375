"""The durable boundary: below it, numbered entries may be gone.

Deleting an entry frees its number, and a stalled writer could fill it again as if it had won the
slot. So a boundary is created before anything is deleted, and no process believes an entry, or its
absence, before it has read the boundary afterwards (rules R14, R15; invariant I1). Boundary objects
are numbered, created if absent and never deleted, so the newest one that a reader has seen only
rises.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from txlog.errors import CorruptData, UnsupportedFormat
from txlog.journal.codec import decode, encode, parsed
from txlog.journal.entry import checked_body, not_understood, require_own, seal, written_by
from txlog.layout import JournalLayout, parse_number
from txlog.model import Slot, SlotOrNone
from txlog.storage.store import Created, Reads, Store
from txlog.stored import stored


@stored(
    "boundary",
    ordinal="ordinal",
    lowest_slot="lowest_slot",
    snapshot_slot="snapshot_slot",
    token="token",
    closed="closed",
    journal="journal",
    log_id="log_id",
)
@dataclass(frozen=True, slots=True)
class Boundary:
    """One boundary object."""

    ordinal: SlotOrNone
    lowest_slot: Slot
    """Entries below it may have been deleted; nothing may be written there."""
    snapshot_slot: SlotOrNone
    """A snapshot that covers everything below `lowest_slot`, kept until the next boundary."""
    token: str
    """Unique to this attempt to create it, as `Store.create` requires."""
    closed: bool = False
    """The journal has ended (its topic was deleted); this is its last boundary."""
    journal: str = field(default="", compare=False)
    """The journal that the boundary belongs to, set by `create`: see `require_own`."""
    log_id: str = field(default="", compare=False)


NO_BOUNDARY = Boundary(ordinal=-1, lowest_slot=0, snapshot_slot=-1, token="")


def read_newest(store: Reads, layout: JournalLayout, known: Boundary) -> Boundary:
    """Probe upward from a known boundary. Raises CorruptData."""
    newest = known
    while (data := store.get(path := layout.boundary(newest.ordinal + 1))) is not None:
        newest = decode_own_boundary(data, layout, path)
    return newest


def read_boundary(store: Reads, layout: JournalLayout, ordinal: int) -> Boundary | None:
    """The boundary of that ordinal, if it exists. Raises CorruptData."""
    data = store.get(path := layout.boundary(ordinal))
    return None if data is None else decode_own_boundary(data, layout, path)


def create(store: Store, layout: JournalLayout, boundary: Boundary) -> bool:
    """True if this call created the boundary; False if another process was first."""
    own = replace(boundary, journal=layout.root, log_id=layout.log_id)
    body = json.dumps(encode(own), separators=(",", ":")).encode()
    return isinstance(store.create(layout.boundary(boundary.ordinal), seal(body)), Created)


def decode_boundary(data: bytes, path: str) -> Boundary:
    """The boundary in `data`. Raises CorruptData or UnsupportedFormat naming `path`."""
    body, _ = checked_body(data, path)
    try:
        boundary: Boundary = decode(Boundary, parsed(body))
    except UnsupportedFormat as error:
        raise not_understood(path, "a boundary", error.message, written_by(data)) from error
    except (ValueError, RecursionError, CorruptData) as error:
        raise _damaged(path, f"{error!s:.100}") from error
    # Readers probe from one number to the next: a boundary with a false number would lead them in
    # a circle.
    if boundary.ordinal != parse_number(path):
        raise _damaged(path, f"it says that it is number {boundary.ordinal}")
    # Otherwise the slots between the two would be neither in the snapshot nor stored as entries.
    if not 0 <= boundary.lowest_slot <= boundary.snapshot_slot + 1:
        text = f"snapshot {boundary.snapshot_slot} does not cover all below {boundary.lowest_slot}"
        raise _damaged(path, text)
    return boundary


def decode_own_boundary(data: bytes, layout: JournalLayout, path: str) -> Boundary:
    """The same for a boundary of this journal; CorruptData if it is another journal's."""
    boundary = decode_boundary(data, path)
    require_own(boundary, layout, path)
    return boundary


def _damaged(path: str, why: str) -> CorruptData:
    return CorruptData(
        f"{path} is not a boundary of a journal ({why}). Restore it from a backup.", path=path
    )
