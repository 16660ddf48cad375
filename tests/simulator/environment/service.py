"""An S3 service of the simulated world: its objects, and its answer to each request.

The product's `S3Store` runs on it, with its read-backs, its retries and its reading of HTTP
statuses: the service takes the place of s3fs and the network. A conditional PUT is exclusive and
atomic, as the conformance suite demands of a service; `network.py` adds the faults.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tests.simulator.environment.archive import Stored
from txlog.clock import Runtime
from txlog.storage.memory import MemoryStore

PAGE_OBJECTS = 5
"""Objects of one page of a listing: few, so that listings have several."""

BUCKET = "simulated"

_ARCHIVED = ("/entries/", "/segments/", "/manifests/", "/chunks/")


class S3Request(NamedTuple):
    """One request."""

    method: str
    """The operation, as s3fs names it: put_object, get_object, delete_object, list_objects_v2."""
    path: str
    body: bytes = b""
    if_absent: bool = False
    first: int = 0
    """Byte range of a GET."""
    last: int | None = None
    after: str = ""
    """Start of a listing."""
    is_later_page: bool = False
    """Whether it asks for a page of a listing after the first."""

    @property
    def changes(self) -> bool:
        """Whether the request writes."""
        return self.method in ("put_object", "delete_object")

    @classmethod
    def of(cls, method: str, parameters: Mapping[str, object]) -> S3Request:
        """The request for these parameters of s3fs."""
        path = parameters.get("Key") or parameters.get("Prefix", "")
        if method == "get_object" and "Range" not in parameters:
            return cls(method, str(path))  # Nearly all requests.
        span = str(parameters.get("Range", "bytes=0-")).removeprefix("bytes=").partition("-")
        after = parameters.get("ContinuationToken") or parameters.get("StartAfter") or ""
        return cls(
            method,
            str(path),
            bytes(parameters.get("Body", b"")),  # type: ignore[call-overload]
            "IfNoneMatch" in parameters,
            int(span[0]),
            int(span[2]) if span[2] else None,
            str(after),
            "ContinuationToken" in parameters,
        )


class S3Response(NamedTuple):
    """Status, S3's error code, and content."""

    status: int
    code: str = ""
    body: bytes = b""
    listed: tuple[tuple[str, int, int], ...] = ()
    """Path, size and time of each object of a page."""
    goes_on: bool = False

    @property
    def is_success(self) -> bool:
        """Whether s3fs returns it; otherwise it raises."""
        return self.status < 300


class SimulatedS3:
    """The objects of the service."""

    def __init__(self, runtime: Runtime, objects: Mapping[str, bytes]) -> None:
        self.store = MemoryStore(runtime)
        """The stored objects, for checkers, whose reads are not part of the history."""
        self.archive: dict[str, Stored] = {}
        """Every entry, segment and index chunk that was ever stored, in its first version."""
        for path, data in objects.items():
            self._store(path, data, 0.0, 0)
        self.full_until_ms = -1.0
        self.deleted: dict[str, int] = {}
        """Path -> size of what a stale listing may still show."""

    def carry_out(self, request: S3Request, now_ms: float, step: int) -> S3Response:
        """Carry the request out atomically. `step`: the number of requests before it."""
        match request.method:
            case "put_object":
                return self._put(request, now_ms, step)
            case "get_object":
                return self._get(request)
            case "delete_object":
                found = self.store.get(request.path)
                if found is not None:
                    self.deleted[request.path] = len(found)
                self.store.delete(request.path)
                return S3Response(204)
            case _:
                return self.page(self._listed(request), request)

    def _put(self, request: S3Request, now_ms: float, step: int) -> S3Response:
        if request.if_absent and self.store.get(request.path) is not None:
            return S3Response(412, "PreconditionFailed")
        if now_ms < self.full_until_ms:
            return S3Response(507, "InsufficientStorage")
        self._store(request.path, request.body, now_ms, step)
        self.deleted.pop(request.path, None)
        return S3Response(200)

    def _store(self, path: str, data: bytes, now_ms: float, step: int) -> None:
        self.store.replace(path, data)
        if any(kind in path for kind in _ARCHIVED):
            self.archive.setdefault(path, Stored(len(self.archive), step, now_ms, data))

    def _get(self, request: S3Request) -> S3Response:
        data = self.store.get(request.path)
        if data is None:
            return S3Response(404, "NoSuchKey")
        if request.first >= len(data) > 0:
            return S3Response(416, "InvalidRange")
        end = len(data) if request.last is None else request.last + 1
        return S3Response(200, body=data[request.first : end])

    def _listed(self, request: S3Request) -> Iterator[tuple[str, int, int]]:
        for found in self.store.list_after(request.path, request.after):
            yield found.path, found.size_bytes, found.modified_ms

    def page(self, listed: Iterator[tuple[str, int, int]], request: S3Request) -> S3Response:
        """The first page of a listing of these objects."""
        found = sorted(item for item in listed if item[0] > request.after)
        return S3Response(
            200, listed=tuple(found[:PAGE_OBJECTS]), goes_on=len(found) > PAGE_OBJECTS
        )

    def stale_page(self, request: S3Request, hidden: frozenset[int]) -> S3Response:
        """A page that lacks objects (by their number) and has deleted ones."""
        listed = [item for n, item in enumerate(self._listed(request)) if n not in hidden]
        gone = [(path, size, 0) for path, size in self.deleted.items()]
        return self.page(
            iter([*listed, *(item for item in gone if item[0].startswith(request.path))]), request
        )


def as_s3(answer: S3Response) -> dict[str, object]:
    """A page of a listing in the form that botocore gives."""
    contents = [
        {
            "Key": path,
            "Size": size_bytes,
            "LastModified": datetime.datetime.fromtimestamp(modified_ms / 1000, datetime.UTC),
        }
        for path, size_bytes, modified_ms in answer.listed
    ]
    page: dict[str, object] = {"Contents": contents, "IsTruncated": answer.goes_on}
    if answer.goes_on:
        page["NextContinuationToken"] = answer.listed[-1][0]
    return page
