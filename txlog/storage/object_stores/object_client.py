"""The port to a bucket of an object service: one request in, an answer or a Failure out.

Implementations repeat nothing by themselves where that can be turned off: only `retry.py` and
`readback.py` decide about repeats. Keeps I13: only an HTTP status that proves that nothing was
stored is taken as such; after any other, the request may have been executed. Messages are built
here from status and error code alone, so that no secret that a server or a library printed gets
into one. This module must not know what the objects are, nor a client of a service.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Protocol

from txlog.errors import StoreDenied, StoreFull, StoreNotAtomic, StoreUnavailable, TxlogError
from txlog.storage.policy.retry import Attempts
from txlog.storage.store import ByteRange, Bytes, StoredObject

PAGE_OBJECTS = 1_000
"""Objects of one page of a listing: S3's maximum."""


class Meaning(Enum):
    """The meaning of a failure for the operation."""

    ABSENT = "the object is absent"
    TAKEN = "the condition failed: an object is there"
    BEYOND_END = "the range starts beyond the end"
    DENIED = "refused; a repeat would be refused, too"
    NO_BUCKET = "the bucket is absent"
    FULL = "no room"
    UNSUPPORTED = "the service lacks the operation"
    STRANGE_NAME = "a listing has a name that the client cannot represent"
    NOT_REACHED = "no connection was made, so nothing was sent"
    UNCLEAR = "no answer, or a server failure: the request may have been executed"


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that did not succeed. `reason` is safe to print."""

    meaning: Meaning
    reason: str
    answered: bool = False
    """Whether the service answered, rather than a part of the network before it."""


FOREIGN = Failure(Meaning.UNCLEAR, "HTTP 200 without an ETag, which every such service sends")
"""A PUT or GET that something before the service has answered, such as a proxy with its login page.
The service may or may not have executed the request, and the answer's body is not the object's."""


@dataclass(frozen=True, slots=True)
class Service:
    """A bucket, as messages describe it."""

    bucket: str
    endpoint: str
    """The service's address, without secrets."""
    scheme: str = "s3"
    bucket_word: str = "bucket"
    endpoint_settings: str = "AWS_ENDPOINT_URL"
    credential_settings: str = "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, the region"
    permissions: str = "GetObject, PutObject, DeleteObject, ListBucket"


@dataclass(frozen=True, slots=True)
class Unread:
    """A body that was not read, because it is larger than the limit."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a listing; paths are whole keys."""

    objects: Sequence[StoredObject]
    is_last: bool


class Pages(Protocol):
    """A listing in progress, for one thread."""

    def next(self, attempts: Attempts) -> Page | Failure:
        """The next page. After a failure, the next call returns the page that failed."""


class ObjectClient(Protocol):
    """Requests to one bucket, from any thread of one process. Keys are whole, prefix included."""

    def put(self, attempts: Attempts, key: str, body: bytes, *, if_absent: bool) -> Failure | None:
        """Store the object. With `if_absent`, only if the name is free; otherwise overwrite it."""

    def get(self, attempts: Attempts, key: str, bytes_max: int | None) -> bytes | Unread | Failure:
        """The whole object, unless it is larger than that."""

    def get_ranges(
        self, attempts: Attempts, key: str, ranges: Sequence[ByteRange]
    ) -> Sequence[Bytes | Failure]:
        """Parts of an object, each with its own request, all at once."""

    def delete(self, attempts: Attempts, key: str) -> Failure | None:
        """Remove the object."""

    def pages(self, prefix: str, after: str) -> Pages:
        """Objects whose keys start with `prefix` and sort after `after` ("": all), in order."""


# What a failed request means, by its HTTP status, and the error for the user.

_BY_CODE = {
    # Their status is 404, as for an absent object. Readers act on the absence of an object, and a
    # bucket that is gone does not prove it.
    "NoSuchBucket": Meaning.NO_BUCKET,
    "ContainerNotFound": Meaning.NO_BUCKET,
    "NoSuchKey": Meaning.ABSENT,
    # s3fs aborts a failed upload in parts, and gets this answer if the upload was completed.
    "NoSuchUpload": Meaning.UNCLEAR,
    # Some of these come with 403 or 500, by which they would be a refusal or no answer.
    "QuotaExceeded": Meaning.FULL,
    "XMinioStorageFull": Meaning.FULL,
    "InsufficientStorage": Meaning.FULL,
    # Their status is 400, but a repeat may succeed: the body arrived late, cut off or damaged.
    "RequestTimeout": Meaning.UNCLEAR,
    "BadDigest": Meaning.UNCLEAR,
    "IncompleteBody": Meaning.UNCLEAR,
    "XAmzContentSHA256Mismatch": Meaning.UNCLEAR,
    # Azure's code for a name in use; its status means a conflict in flight on S3.
    "BlobAlreadyExists": Meaning.TAKEN,
}
_BY_STATUS = {
    404: Meaning.ABSENT,
    408: Meaning.UNCLEAR,
    # A conflict in flight, perhaps with this very request, which a lower layer sent twice.
    409: Meaning.UNCLEAR,
    412: Meaning.TAKEN,
    416: Meaning.BEYOND_END,
    425: Meaning.UNCLEAR,
    429: Meaning.UNCLEAR,
    501: Meaning.UNSUPPORTED,
    507: Meaning.FULL,
}

_REMEDIES = {
    "RequestTimeTooSkewed": "Set this machine's clock",
    "ExpiredToken": "Renew the credentials",
}
"""For refusals whose code names the cause."""


@lru_cache(256)
def read_status(number: int, code: str) -> Failure:
    """The failure for an answer with this status (0: none) and error code."""
    reason = f"HTTP {number} {code}".rstrip() if code != str(number) else f"HTTP {number}"
    # Without an entry, 3xx and 4xx are final; others, and 200 with an error, prove nothing (I13).
    default = Meaning.DENIED if 300 <= number < 500 else Meaning.UNCLEAR
    meaning = _BY_CODE.get(code) or _BY_STATUS.get(number, default)
    return Failure(meaning, reason, answered=True)


def as_error(failure: Failure, action: str, place: str, service: Service) -> TxlogError:
    """The error for a failure that is not a regular result of the operation."""
    failed = f"cannot {action} {place} at {service.endpoint}: {failure.reason}"
    named = f"{service.bucket_word} {service.bucket!r}"
    facts = {"place": place, "bucket": service.bucket, "reason": failure.reason}
    match failure.meaning:
        # A PUT or a listing asks for no object, so 404 without a code means the bucket, too.
        case Meaning.NO_BUCKET | Meaning.ABSENT:
            return StoreDenied(
                f"{failed} (there is no {named} there). Create it, or correct its name and the "
                f"endpoint ({service.endpoint_settings}).",
                **facts,
            )
        case Meaning.FULL:
            return StoreFull(
                f"{failed}. There is no room left. Nothing was written in part: free some room or "
                "raise the quota, then call again.",
                **facts,
            )
        case Meaning.UNSUPPORTED:
            return StoreNotAtomic(
                f"{failed}. The service lacks that kind of request, and a log needs conditional "
                "PUTs. Use an S3 service that honours If-None-Match.",
                **facts,
            )
        case Meaning.DENIED:
            code = failure.reason.rpartition(" ")[2]
            if code in _REMEDIES:
                return StoreDenied(f"{failed}. {_REMEDIES[code]}, then call again.", **facts)
            return StoreDenied(
                f"{failed}. Check {service.credential_settings} and the permissions on {named} "
                f"({service.permissions}).",
                **facts,
            )
        case Meaning.STRANGE_NAME:
            return StoreDenied(
                f"cannot {action} {place}: an object below it has a name with an empty part, "
                "'.', '..' or a control character, and the client cannot list it. The log has not "
                f"written it: delete it from {named}.",
                **facts,
            )
        case _:
            return StoreUnavailable(
                f"{failed}. Call again; check that the store can be reached.", **facts
            )
