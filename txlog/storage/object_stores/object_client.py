"""The port to a bucket of an object service: one request in, an answer or a Failure out.

Implementations repeat nothing by themselves where that can be turned off: only `retry.py` and
`readback.py` decide about repeats (I13). It must not know what the objects are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from txlog.storage.byte_spans import Span
from txlog.storage.object_stores.object_failure import Failure
from txlog.storage.policy.retry import Attempts
from txlog.storage.store import Bytes, StoredObject

PAGE_OBJECTS = 1_000
"""Objects of one page of a listing: S3's maximum."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A body that was not read, because it is larger than it may be."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a listing; paths are whole keys."""

    objects: Sequence[StoredObject]
    is_last: bool


class Pages(Protocol):
    """A listing in progress, for one thread."""

    def next(self, attempts: Attempts) -> Page | Failure:
        """The next page; after a failure the same one again."""


class ObjectClient(Protocol):
    """Requests to one bucket, from any thread of one process. Keys are whole, prefix included."""

    def put(self, attempts: Attempts, key: str, body: bytes, *, if_absent: bool) -> Failure | None:
        """Store the object: only if the name is free, or replacing what is there."""

    def get(self, attempts: Attempts, key: str, bytes_max: int | None) -> bytes | Unread | Failure:
        """The whole object, unless it is larger than that."""

    def get_spans(
        self, attempts: Attempts, key: str, spans: Sequence[Span]
    ) -> Sequence[Bytes | Failure]:
        """Parts of an object, each with its own request, all at once."""

    def delete(self, attempts: Attempts, key: str) -> Failure | None:
        """Remove the object."""

    def pages(self, prefix: str, after: str) -> Pages:
        """Objects whose keys start with `prefix` and sort after `after` ("": all), in order."""
