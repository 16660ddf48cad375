"""The storage port: what a log needs of a place that keeps objects.

- `Store`: the few calls of every store. One of them, `create`, keeps I1 (a slot is won at most
  once): every store must keep its contract, which `txlog/testing/conformance.py` checks.
- Capabilities: what some stores can do besides, and what holds for the others. A store has these
  methods or lacks them. A wrapper of a store passes on `is_near`, `hold` and `turn` only: through
  it, new objects are kept in memory until they are finished, and nothing is swept.
- The rules for objects that every store checks: their paths and their sizes. `txlog/layout.py`
  makes only names below the root, and `check_path` refuses any other. The limits of sizes keep I16
  in a store that other users can write to: a sparse file of 100 GB costs its author nothing, and
  would cost every reader its memory.

This module must not know what the objects mean: paths are opaque relative keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol, TypeAlias

from txlog.errors import CorruptData, InternalError, StoreUnavailable, UsageError
from txlog.layout import SMALL_BYTES_MAX, bytes_max

ENTRY_BYTES_MAX = SMALL_BYTES_MAX
"""The largest body that `create` takes: one conditional PUT, never a multipart upload."""

Bytes: TypeAlias = bytes | memoryview
"""The result of a read: any read-only buffer; pyarrow reads it without a copy."""

Body: TypeAlias = bytes | memoryview | tuple[Bytes, ...]
"""The body of an object: a buffer, or several consecutive ones, so that a large object need not be
copied together first."""


def whole(body: Body) -> bytes:
    """A body in one piece."""
    return b"".join(body) if isinstance(body, tuple) else bytes(body)


@dataclass(frozen=True, slots=True)
class Created:
    """The object is durable under this name, with exactly the given bytes."""


@dataclass(frozen=True, slots=True)
class Exists:
    """Another writer's object holds the name; `data` is its content."""

    data: bytes


CreateResult: TypeAlias = Created | Exists


@dataclass(frozen=True, slots=True)
class ByteRange:
    """`length` bytes from `start`."""

    start: int
    length: int

    @property
    def end(self) -> int:
        """First byte after it."""
        return self.start + self.length

    @property
    def last(self) -> int:
        """Last byte to request. HTTP has no empty range: then one byte is read, and cut off."""
        return max(self.end - 1, self.start)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object of a listing: its path below the root, its size, its age according to the
    store."""

    path: str
    size_bytes: int
    modified_ms: int


class Reads(Protocol):
    """The part of a store that opening a journal needs."""

    def get(self, path: str) -> bytes | None:
        """See Store.get."""


class Store(Protocol):
    """A folder or bucket prefix.

    Every method raises StoreUnavailable (no answer within the deadline), StoreFull or StoreDenied;
    `create` may also raise OutcomeUnknown. Paths use '/' and never start with it.
    """

    @property
    def url(self) -> str:
        """The store's address, without secrets: for messages."""

    def create(self, path: str, data: bytes) -> CreateResult:
        """Create `path` if it is absent; whole, durable and visible at once on return.

        `data` must be unique to the caller (entries carry a random token): after anything but a
        clean answer the object is read back, and equal bytes mean that this call created it. Raises
        OutcomeUnknown if neither can be established: the write may still land later, so the caller
        must not use another name before it has seen this one filled; otherwise both may land.
        """

    def get(self, path: str) -> bytes | None:
        """The object's bytes, or None if it is absent at present."""

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Bytes] | None:
        """The ranges, in order, or None if the object is absent.

        A range beyond the end is returned short: the caller checks lengths (I15).
        """

    def put_new(self, path: str, data: Body) -> None:
        """Store an object under a unique name; durable on return. Any size."""

    def replace(self, path: str, data: bytes) -> None:
        """Overwrite atomically. For hints only: nothing may depend on the content."""

    def list_after(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        """Objects below `prefix` whose path sorts after `after`, in order of path.

        For collection and repair only: may be stale, never used for a decision (I14).
        """

    def delete(self, path: str) -> None:
        """Remove the object. An absent object is not an error."""


# Capabilities.


def is_near(store: Store) -> bool:
    """Whether a request costs no round trip, because the store is on this machine; such a store can
    hold an object. There the safe way of rule R15, a boundary check after each answer, costs
    nothing, and no clock need be trusted. Any store that does not say so counts as far away."""
    return getattr(store, "is_near", False)


@dataclass(slots=True)
class Requests:
    """The requests that one process has sent to a bucket, by operation. Safe to use from threads; a
    library's own repeats are not counted."""

    since_ms: int
    """Since when, in milliseconds since 1970."""
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("GET", "PUT", "LIST", "DELETE"), 0)
    )

    def add(self, operation: str, count: int = 1) -> None:
        """Some more. Of two threads at the same time one may go uncounted."""
        self.counts[operation] += count


def requests_of(store: Store) -> Requests | None:
    """What this process has sent to the store; None if a request to it costs nothing."""
    found: Requests | None = getattr(store, "requests", None)
    return found


def can_hold(store: Store) -> bool:
    """Whether `store` can hold an object, as a disk and this process's memory can."""
    return hasattr(store, "hold")


def hold(store: Store, path: str) -> bool:
    """Whether `store` is bound to the object at `path` from now on. Raises NotATxlog if there is
    none, or if it is not the one that is already held.

    Once that object is gone or replaced, every write raises NotATxlog and writes nothing, and so
    does the read of an absent object; a write in progress raises OutcomeUnknown. So an
    acknowledgement counts only for the log that was opened: another process may remove it, or put
    another one in its place. A disk can check this for free at each write; `LogPresence` does it
    for the other stores.
    """
    is_held: bool = can_hold(store) and getattr(store, "hold")(path)  # noqa: B009 - not the port's
    return is_held


def turn(store: Store, folder: str, prepare: Callable[[], object]) -> AbstractContextManager[bool]:
    """A turn in that folder; at once where the store has no turns. Raises nothing.

    It is entered when no other writer has its turn, or after a bounded time. Its value is whether
    other writers had a turn before: then they have written. A writer that waits calls `prepare`,
    which raises nothing, once it is the next.

    Writers of one machine that want the same names go one after the other. Of sixteen processes
    that write below one folder of a disk, fifteen would write and sync in vain, again and again.
    Safety does not depend on turns: `create` alone decides which writer gets a name, and a writer
    that cannot wait, or has waited long enough, proceeds without its turn.
    """
    take = getattr(store, "turn", None)
    return nullcontext(False) if take is None else take(folder, prepare)


class NewObjects(Protocol):
    """See `watched`."""

    def wait(self, timeout_ms: float) -> bool:
        """Whether an object was added since the last call that said so, or is within this time."""


def watched(store: Store, folders: Sequence[str]) -> NewObjects | None:
    """What wakes when an object is added to one of these folders; None where the store cannot tell.

    It may miss what other machines add, so a wait must end by itself. Raises nothing.
    """
    watch = getattr(store, "watched", None)
    return None if watch is None else watch(folders)


def open_new(store: Store, path: str) -> NewObject:
    """Begin an object under a unique name, in any store. Raises the store's errors.

    It is written piece by piece, so that a large one does not need memory of its size. A disk takes
    the pieces as they come; for other stores they are kept and stored at the end. Readers find the
    object only after `finish`, so that they never see a part of one.
    """
    begin = getattr(store, "open_new", None)
    return BufferedObject(store, path) if begin is None else begin(path)


class NewObject(Protocol):
    """An object being written, for one thread at a time. It must be finished or discarded."""

    @property
    def is_kept_in_memory(self) -> bool:
        """Whether pieces are kept in memory until the end."""

    def write(self, pieces: Body) -> None:
        """Append these bytes. Raises the store's errors; then only `discard` may be called."""

    def finish(self) -> None:
        """Make it durable and visible under its name. On an error it is discarded."""

    def discard(self) -> None:
        """Remove it completely; also allowed after `finish` or twice."""


class BufferedObject:
    """See NewObject. Pieces are kept in memory until the end and must not change meanwhile."""

    is_kept_in_memory = True

    def __init__(self, store: Store, path: str) -> None:
        self._store = store
        self._path = path
        self._pieces: list[Bytes] = []

    def write(self, pieces: Body) -> None:
        self._pieces.extend(pieces if isinstance(pieces, tuple) else (pieces,))

    def finish(self) -> None:
        pieces, self._pieces = tuple(self._pieces), []
        self._store.put_new(self._path, pieces)

    def discard(self) -> None:
        self._pieces = []


def sweep_unfinished(store: Store, age_min_ms: int) -> int:
    """Delete unfinished files older than `age_min_ms`, left by writers that died; returns how many.
    Listings do not show them."""
    sweep = getattr(store, "sweep_temporaries", None)
    return 0 if sweep is None else sweep(age_min_ms)


# The rules for the paths and sizes of objects, and the errors of an object whose name is taken.

PATH_BYTES_MAX = 800
"""UTF-8 bytes of a path; S3 takes 1,024 with the root's prefix."""

PART_BYTES_MAX = 255
"""UTF-8 bytes between two slashes: the limit of every common file system."""

TEMPORARY_PREFIX = ".tmp-"
"""Names reserved for files that a store is still writing."""

_FORBIDDEN_PARTS = frozenset(("", ".", ".."))


@lru_cache(1_024)  # A waiting reader requests the same object repeatedly.
def check_path(path: str) -> None:
    """Refuse a path that does not consist of plain parts between slashes. Raises InternalError."""
    if fault := _fault(path):
        raise _refusal(path, fault)


def check_prefix(prefix: str) -> None:
    """Refuse a listing prefix that no path could start with. Raises InternalError."""
    folder, _, start = prefix.rpartition("/")
    if folder or prefix.startswith("/"):
        check_path(folder)
    if start in (".", "..") or not prefix.isprintable():
        raise _refusal(prefix, "no object can start with it")


def check_root(prefix: str) -> None:
    """Refuse a prefix below which no object can be. Raises UsageError."""
    if fault := _fault(prefix):
        raise UsageError(
            f"{prefix!r} cannot be the prefix of a log in a bucket: {fault}. Choose another.",
            prefix=prefix,
        )


def _fault(path: str) -> str:
    """Why no object can be at `path`; empty if one can."""
    parts = path.split("/")
    if not _FORBIDDEN_PARTS.isdisjoint(parts):
        return "it has an empty, '.' or '..' part"
    # The first test is cheap, and false for all names of a log.
    if TEMPORARY_PREFIX in path and any(part.startswith(TEMPORARY_PREFIX) for part in parts):
        return f"names that begin with {TEMPORARY_PREFIX!r} are reserved for the store"
    if not path.isprintable():  # A lone surrogate, too, which could not be encoded below.
        return "it has characters that cannot be printed"
    if len(path) <= PART_BYTES_MAX and path.isascii():  # Within both limits.
        return ""
    if len(path.encode()) <= PATH_BYTES_MAX and all(
        len(part.encode()) <= PART_BYTES_MAX for part in parts
    ):
        return ""
    return f"it is longer than {PATH_BYTES_MAX} bytes, or a part is longer than {PART_BYTES_MAX}"


def _refusal(path: str, reason: str) -> InternalError:
    return InternalError(
        f"{path[:100]!r} is not a name for an object: {reason}. Nothing was written; please report "
        "this.",
        path=path,
    )


def check_entry_body(path: str, data: bytes) -> None:
    """Refuse a body that one conditional write cannot carry. Raises InternalError."""
    if not 0 < len(data) <= ENTRY_BYTES_MAX:
        raise InternalError(
            f"the body of {path} has {len(data)} bytes; create takes 1 to {ENTRY_BYTES_MAX}. "
            "Nothing was written; please report this.",
            path=path,
            size_bytes=len(data),
        )


def name_in_use(place: str, path: str) -> InternalError:
    """The error for an object under a unique name that has other content."""
    return InternalError(
        f"{place} exists already with other content, but its name should be unique. Nothing was "
        "overwritten; please report this.",
        path=path,
    )


def kept_in_part(place: str, found_bytes: int, size_bytes: int) -> StoreUnavailable:
    """The error for an object under a unique name that is only the beginning of what was sent."""
    return StoreUnavailable(
        f"{place} has only the first {found_bytes} of {size_bytes} bytes: an upload broke, and the "
        "store kept the part that had arrived. A log needs a store that keeps whole objects only. "
        "Nothing refers to this object, and txlog vacuum deletes it. Call again, which uses "
        "another name, and move the log to another store.",
        place=place,
        size_bytes=found_bytes,
    )


def require_size(path: str, size_bytes: int, place: str) -> None:
    """Raises CorruptData, naming `place`, if an object at `path` cannot be so large."""
    limit = bytes_max(path)
    if limit is not None and size_bytes > limit:
        raise CorruptData(
            f"{place} has {size_bytes} bytes, and an object of its kind has {limit} at most: the "
            "log has not written it. It was not read; restore it from a backup.",
            path=place,
            size_bytes=size_bytes,
        )
