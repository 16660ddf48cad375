"""Opening a journal (hint, else the newest boundary's snapshot, else entry 0) and its snapshots.

A hint may be old, wrong or gone, and a snapshot may be damaged or vanish while it is read: each
only costs time (rules R16, R34). A damaged snapshot is never deleted and written again: that DELETE
might be executed late, and remove the new one (rule R47). The number of requests does not grow with
the journal's length. Far away, where each request takes a round trip, the objects that opening
needs next are prefetched in parallel.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Generic

from txlog.errors import CorruptData, InternalError, MissingObject, StoreDenied, UnsupportedFormat
from txlog.fan_out import FanOut, in_background
from txlog.journal.boundaries import boundary as boundaries
from txlog.journal.boundaries.boundary import NO_BOUNDARY, Boundary
from txlog.journal.entry import FORMAT_VERSION, GENESIS_CRC32, crc32_of_body
from txlog.journal.machine import Machine, StateT, decoded_snapshot
from txlog.journal.snapshot import SnapshotHead, encode_snapshot
from txlog.layout import SLOT_DIGITS, JournalLayout, bytes_max
from txlog.storage.store import ENTRY_BYTES_MAX, ByteRange, Exists, Reads, Store

log = logging.getLogger(__name__)

FIRST_ENTRIES = 8
"""The first entries of a journal that may be young; far away they are requested with its hint. A
journal with fewer entries is then open after one round trip; for an older one they are eight
requests in vain, once a process."""

# Half of the entries between two snapshots: all 64 would double the requests of an opening, and
# save a round trip in every second one only (design note 0026).
ENTRIES_BEHIND_SNAPSHOT = 32
"""The entries that are requested with a snapshot, far away: its last one, and those after it."""


LARGE_SNAPSHOT_BYTES = 512 << 10
"""For each so many bytes of a snapshot the next one is written later by `journal.snapshot.entries`:
half as many bytes would halve what each entry pays for them, and double what an opening reads."""

ENTRIES_APART_MAX = 1920
"""Entries between two large snapshots at most. They are from 15 MB on, which take longer to decode
than so many entries to read."""


@lru_cache  # Each entry that is won asks it, and a snapshot changes the answer.
def entries_apart(entries: int, snapshot_bytes: int) -> int:
    """How many entries are between two snapshots: `entries`, the log's `journal.snapshot.entries`,
    or more if they are large, so that they do not make each entry cost more. A process that opens
    the journal then reads more entries, which takes less time than the snapshot itself."""
    times = 1 + snapshot_bytes // LARGE_SNAPSHOT_BYTES
    return entries * max(min(times, ENTRIES_APART_MAX // entries), 1)


class Prefetch:
    """Reads of `store`, some of which are requested before they are needed. For one opening and one
    thread. Each prefetched answer is returned once: a second read sends a new request, because an
    absence must be judged by a request that is sent then (R34)."""

    def __init__(self, store: Reads, fan_out: FanOut) -> None:
        self.store = store
        self._fan_out = fan_out
        self._answers: dict[str, Callable[[], bytes | None]] = {}

    def request(self, paths: Iterable[str]) -> None:
        """Request these objects now, unless they were requested before."""
        for path in paths:
            if path not in self._answers:
                self._answers[path] = in_background(self._fan_out, partial(self.store.get, path))

    def has(self, path: str) -> bool:
        """Whether the object was requested and its answer is not returned yet."""
        return path in self._answers

    def get(self, path: str) -> bytes | None:
        """See Store.get. Raises what the store raises."""
        answer = self._answers.pop(path, None)
        return self.store.get(path) if answer is None else answer()


def prefetch(store: Reads, paths: Iterable[str]) -> None:
    """Request objects that may be needed next. Does nothing for a store that is near."""
    if isinstance(store, Prefetch):
        store.request(paths)


def unprefetched(store: Reads) -> Reads:
    """The store itself, for reads whose request must not have been sent before this call."""
    return store.store if isinstance(store, Prefetch) else store


@dataclass(frozen=True, slots=True)
class Followed(Generic[StateT]):
    """How far a process has followed a journal: at first as far as it was opened."""

    state: StateT
    next_slot: int
    crc32: int
    boundary: Boundary
    damaged: bool = False
    """Whether a snapshot could not be read, so that one must be written for another slot."""
    snapshot_bytes: int = 0
    """Size of the last snapshot that this process has read or written."""


def open_journal(
    store: Reads, layout: JournalLayout, machine: Machine[StateT], known: Boundary
) -> Followed[StateT]:
    """The newest state that is available without reading every entry.

    Raises CorruptData if no readable snapshot covers the pruned entries.
    """
    prefetch(store, [layout.boundary(known.ordinal + 1), layout.hint])
    if known.ordinal < 0:
        prefetch(store, map(layout.entry, range(FIRST_ENTRIES)))
    hinted = hinted_slot(store, layout)
    damaged = False
    # An older snapshot is useless: entries between it and the boundary may be deleted (R16). The
    # boundary that is read with the snapshot may be newer than `known`, so it is compared again.
    if hinted is not None and hinted + 1 >= known.lowest_slot:
        try:
            opened = _from_snapshot(store, layout, machine, hinted, known)
            if opened is not None and opened.next_slot >= opened.boundary.lowest_slot:
                return opened
        except (UnsupportedFormat, MissingObject):
            # An older snapshot does not help: a newer release wrote this one, and its content must
            # not be ignored; or the boundary that it names is lost.
            raise
        except (CorruptData, StoreDenied) as error:
            log.warning("%s", error)
            damaged = True
    return _from_boundary(store, layout, machine, known, damaged)


def _from_boundary(
    store: Reads, layout: JournalLayout, machine: Machine[StateT], known: Boundary, damaged: bool
) -> Followed[StateT]:
    newest = boundaries.read_newest(store, layout, known)
    if newest.ordinal < 0:
        return Followed(machine.initial(), 0, GENESIS_CRC32, NO_BOUNDARY, damaged)
    opened = _from_snapshot(store, layout, machine, newest.snapshot_slot, newest)
    if opened is not None:
        return replace(opened, damaged=damaged)
    if boundaries.read_newest(unprefetched(store), layout, newest) != newest:
        # The next boundary has its own snapshot, so this one was free to vanish (rule R16).
        return _from_boundary(store, layout, machine, newest, damaged)
    raise CorruptData(
        f"{layout.snapshot(newest.snapshot_slot)} is missing, and the entries below it were "
        "pruned. Restore it from a backup.",
        path=layout.snapshot(newest.snapshot_slot),
    )


def hinted_slot(store: Reads, layout: JournalLayout) -> int | None:
    """The slot in the hint, or None: a hint may contain anything (rule R16)."""
    try:
        data = store.get(layout.hint)
        slot = None if data is None else json.loads(data)["snapshot"]
    except (CorruptData, StoreDenied, ValueError, KeyError, TypeError, RecursionError):
        return None
    # By its exact type, because `true` is an int too; no object's name has a larger number.
    return slot if type(slot) is int and 0 <= slot < 10**SLOT_DIGITS else None


def _from_snapshot(
    store: Reads, layout: JournalLayout, machine: Machine[StateT], slot: int, known: Boundary
) -> Followed[StateT] | None:
    prefetch(store, [path := layout.snapshot(slot)])
    prefetch(store, map(layout.entry, range(slot, slot + ENTRIES_BEHIND_SNAPSHOT)))
    data = store.get(path)
    if data is None:
        return None
    head, state = decoded_snapshot(layout, machine, slot, data)
    boundary = _boundary_of(store, layout, head, known)
    _require_last_entry(store, layout, head, boundary)
    return Followed(state, slot + 1, head.crc32, boundary, snapshot_bytes=len(data))


def _require_last_entry(
    store: Reads, layout: JournalLayout, head: SnapshotHead, boundary: Boundary
) -> None:
    """Raises CorruptData if the snapshot covers an entry that the journal does not have (R63).

    Its entries may be lost, and then a process would go on above a hole. Or an older backup was put
    in the place of the log, and a writer that had not noticed it wrote the snapshot.
    """
    path = layout.entry(head.slot)
    data = store.get(path)
    if data is None:  # It may have been created, with its snapshot, since the request (R34).
        data = unprefetched(store).get(path)
    if data is not None and crc32_of_body(data) == head.crc32:
        return
    # Only below a boundary may an entry be gone, or a freed number be filled again.
    if boundaries.read_newest(unprefetched(store), layout, boundary).snapshot_slot >= head.slot:
        return
    snapshot = layout.snapshot(head.slot)
    if data is None:
        raise MissingObject(
            f"{path} is missing, and {snapshot} covers it. Restore it from a backup. If an older "
            "backup of the log was put in its place, remove that snapshot, which is newer.",
            path=path,
        )
    raise CorruptData(
        f"{snapshot} is not one of this journal's entries: {path} has another checksum. It is not "
        "used.",
        path=snapshot,
    )


def _boundary_of(
    store: Reads, layout: JournalLayout, head: SnapshotHead, known: Boundary
) -> Boundary:
    # The snapshot only says where to begin: its boundary is as old as its writer's last read, which
    # is not a check, so the newest one is read from there (R31).
    if head.boundary > known.ordinal:
        prefetch(store, map(layout.boundary, (head.boundary, head.boundary + 1)))
        found = boundaries.read_boundary(store, layout, head.boundary)
        if found is None:  # It may have been created since the request (R34).
            found = boundaries.read_boundary(unprefetched(store), layout, head.boundary)
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
) -> int:
    """Write the shared chunks, then the snapshot that refers to them, then the hint. Returns the
    snapshot's size.

    A crash between two steps leaves objects that a later snapshot refers to, or none.
    With `check`, a snapshot that exists already is read first: if it is damaged, this returns 0
    and writes nothing, because this slot cannot have another one (rule R47). `head` is (slot,
    CRC32, boundary ordinal). Raises CorruptData for a damaged chunk.
    """
    slot, crc32, boundary = head
    path = layout.snapshot(slot)
    if check and not _is_sound(store, layout, machine, slot, crc32):
        log.warning("%s is damaged; the next snapshot is written for another slot", path)
        return 0
    for chunk in machine.unsaved_chunks(state):
        _save_chunk(store, layout.chunk(chunk.first_slot, chunk.last_slot), chunk.data)
    data = encode_snapshot(
        SnapshotHead(FORMAT_VERSION, slot, crc32, boundary, layout.root, layout.log_id),
        machine.encode_state(state),
    )
    _save(store, path, data)
    store.replace(layout.hint, json.dumps({"snapshot": slot}).encode())
    return len(data)


def _is_sound(
    store: Store, layout: JournalLayout, machine: Machine[StateT], slot: int, crc32: int
) -> bool:
    """True for an absent snapshot, and for one from which a journal with that last entry opens."""
    data = store.get(layout.snapshot(slot))
    try:
        return data is None or decoded_snapshot(layout, machine, slot, data)[0].crc32 == crc32
    except UnsupportedFormat:
        # A newer release wrote it: it is not damaged, and no other snapshot may replace it.
        raise
    except CorruptData:
        return False


def _save_chunk(store: Store, path: str, data: bytes) -> None:
    """Snapshots refer to a chunk by its checksum, so an existing one must have the same bytes."""
    found = _save(store, path, data)
    if found is not None and found != data:
        raise CorruptData(
            f"{path} is damaged: it differs from what the journal's entries lead to. Restore it "
            "from a backup.",
            path=path,
        )


def _save(store: Store, path: str, data: bytes) -> bytes | None:
    """The object that existed before, if it is small enough for `create`; None otherwise.

    Another process may have saved the same content first: it is a function of the entries below.
    Raises InternalError for an object that no process would read: entries that only it holds would
    be lost when they are pruned.
    """
    limit = bytes_max(path)
    if limit is not None and len(data) > limit:
        raise InternalError(
            f"{path} would have {len(data)} bytes, and a reader takes at most {limit}. Nothing was "
            "written or pruned; end transactions that are open for long, and please report this.",
            path=path,
        )
    if len(data) <= ENTRY_BYTES_MAX:
        answer = store.create(path, data)
        return answer.data if isinstance(answer, Exists) else None
    # Too large for `create`; and `put_new` refuses a name that is taken, which stays (R47).
    if not exists(store, path):
        store.put_new(path, data)
    return None


def exists(store: Store, path: str) -> bool:
    """Whether an object is there, without reading it."""
    return store.get_ranges(path, [ByteRange(0, 1)]) is not None
