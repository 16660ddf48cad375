"""The storage port: the few operations that a log needs of a place that keeps objects.

It guards I1 (a slot is won at most once) by one operation, `create`, whose contract every store
must keep; `txlog/testing/conformance.py` checks it. It must not know what the objects mean: paths
are opaque relative keys, whose names come from `txlog/layout.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

ENTRY_BYTES_MAX = 1_000_000
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
