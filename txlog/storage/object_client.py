"""The port to a service that keeps objects in a bucket: one request in, an answer or a Failure out.

Whoever implements it repeats nothing by itself where that can be turned off: `retry.py` and
`readback.py` alone decide (I13). It must not know what the objects are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from txlog.storage.byte_spans import Span
from txlog.storage.object_failure import Failure
from txlog.storage.retry import Attempts
from txlog.storage.store import Bytes, StoredObject

PAGE_OBJECTS = 1_000
"""Objects of one page of a listing: what S3 gives at most."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A body that was left where it is, being larger than it may be."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a listing; paths are whole keys."""

    objects: Sequence[StoredObject]
    is_last: bool


class Pages(Protocol):
    """A listing on its way, for one thread."""

    def next(self, attempts: Attempts) -> Page | Failure:
        """The next page; after a failure the same one again."""


class ObjectClient(Protocol):
    """Requests to one bucket, from any thread of one process. Keys are whole, prefix included."""

    def put(self, attempts: Attempts, key: str, body: bytes, *, if_absent: bool) -> Failure | None:
        """Store the object: only if there is none under that name, or over one."""

    def get(self, attempts: Attempts, key: str, bytes_max: int | None) -> bytes | Unread | Failure:
        """The whole object, unless it is larger than that."""

    def get_spans(
        self, attempts: Attempts, key: str, spans: Sequence[Span]
    ) -> Sequence[Bytes | Failure]:
        """Parts of an object, each with a request of its own, at once."""

    def delete(self, attempts: Attempts, key: str) -> Failure | None:
        """Remove the object."""

    def pages(self, prefix: str, after: str) -> Pages:
        """Objects whose keys start with `prefix` and sort after `after` ("": all), in order."""


class Clients(Protocol):
    """The clients of a store, as this process may use them just now."""

    def first(self) -> ObjectClient:
        """The one that does the work. Raises UsageError if this process cannot have one."""

    def second(self) -> ObjectClient | None:
        """Another one, for a listing that the first cannot read."""
