"""What a failed S3 request means, read from its HTTP status, never from the exception's type.

It guards I13: only a status that proves that nothing was stored is taken as such (storage rule 4).
Messages are built here from status and error code alone, so that nothing secret that a server or a
library printed can get into one. It must not make requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from txlog.errors import StoreDenied, StoreFull, StoreNotAtomic, StoreUnavailable, TxlogError


class Meaning(Enum):
    """What follows from a failure."""

    ABSENT = "the object is absent"
    TAKEN = "the condition failed: an object is there"
    BEYOND_END = "the range starts beyond the end"
    DENIED = "refused, and will be refused again"
    NO_BUCKET = "the bucket is absent"
    FULL = "no room"
    UNSUPPORTED = "the service lacks the operation"
    NOT_REACHED = "no connection was made, so nothing was sent"
    UNCLEAR = "no answer, or a failure of the server's: anything may have happened"


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that did not succeed. `reason` is safe to print."""

    meaning: Meaning
    reason: str
    answered: bool = False
    """Whether the service said it, and not the way to it."""


_BY_CODE = {
    "NoSuchBucket": Meaning.NO_BUCKET,
    "NoSuchKey": Meaning.ABSENT,
    "NoSuchUpload": Meaning.UNCLEAR,
    "QuotaExceeded": Meaning.FULL,
    "XMinioStorageFull": Meaning.FULL,
    "InsufficientStorage": Meaning.FULL,
    "RequestTimeout": Meaning.UNCLEAR,
    "BadDigest": Meaning.UNCLEAR,
    "IncompleteBody": Meaning.UNCLEAR,
    "XAmzContentSHA256Mismatch": Meaning.UNCLEAR,
}
_BY_STATUS = {
    404: Meaning.ABSENT,
    408: Meaning.UNCLEAR,
    # A conflict in flight, which may be with this very request, sent twice below us.
    409: Meaning.UNCLEAR,
    412: Meaning.TAKEN,
    416: Meaning.BEYOND_END,
    425: Meaning.UNCLEAR,
    429: Meaning.UNCLEAR,
    501: Meaning.UNSUPPORTED,
    507: Meaning.FULL,
}
_NEVER_SENT = frozenset(
    (
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialRetrievalError",
        "TokenRetrievalError",
        "ProfileNotFound",
        "ConfigNotFound",
        "ConfigParseError",
        "InvalidConfigError",
        "ParamValidationError",
        "NoRegionError",
        "UnknownServiceError",
        "TypeError",
        "ValueError",
    )
)
"""Names of exceptions of botocore's that are raised before anything is sent; it is not imported."""


def read_failure(error: BaseException, *, answered_before: bool) -> Failure:
    """What `error`, raised by s3fs, botocore or aiohttp, says of the request.

    `answered_before`: whether any request of this client has had an answer. If so, a refused
    connection proves nothing, because aiohttp replays a request whose kept connection broke.
    """
    response = _response(error)
    if response is not None:
        return _read_status(response)
    names = {kind.__name__ for kind in type(error).__mro__}
    reason = type(error).__name__
    if names & _NEVER_SENT:
        return Failure(Meaning.DENIED, reason)
    if not answered_before and _failed_to_connect(error, names):
        return Failure(Meaning.NOT_REACHED, reason)
    return Failure(Meaning.UNCLEAR, reason)


def as_error(failure: Failure, action: str, place: str, bucket: str, endpoint: str) -> TxlogError:
    """The error that tells the user; `failure` is one that the operation cannot answer with."""
    said = f"cannot {action} {place}: {endpoint} said {failure.reason}"
    facts = {"place": place, "bucket": bucket, "reason": failure.reason}
    match failure.meaning:
        case Meaning.NO_BUCKET | Meaning.ABSENT:
            return StoreDenied(
                f"{said}: there is no bucket {bucket!r} there. Create it, or correct its name and "
                "the endpoint (AWS_ENDPOINT_URL).",
                **facts,
            )
        case Meaning.FULL:
            return StoreFull(
                f"{said}: no room. Nothing was half written: free some room or raise the quota, "
                "then call again.",
                **facts,
            )
        case Meaning.UNSUPPORTED:
            return StoreNotAtomic(
                f"{said}: it lacks that kind of request, and a log needs conditional PUTs. Use an "
                "S3 service that honours If-None-Match.",
                **facts,
            )
        case Meaning.DENIED:
            return StoreDenied(
                f"{said}. Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, the region and the "
                f"permissions on bucket {bucket!r} (GetObject, PutObject, DeleteObject, "
                "ListBucket).",
                **facts,
            )
        case _:
            return StoreUnavailable(
                f"{said}. Call again; check that the store can be reached.", **facts
            )


def _response(error: BaseException) -> dict[str, dict[str, object]] | None:
    """botocore's parsed answer: on the error itself, or on what s3fs translated it from."""
    for candidate in (error, error.__cause__):
        response = getattr(candidate, "response", None)
        if isinstance(response, dict):
            return response
    return None


def _read_status(response: dict[str, dict[str, object]]) -> Failure:
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    code = str(response.get("Error", {}).get("Code", ""))
    number = status if isinstance(status, int) else 0
    reason = f"HTTP {number} {code}".rstrip() if code != str(number) else f"HTTP {number}"
    default = Meaning.DENIED if 300 <= number < 500 else Meaning.UNCLEAR
    meaning = _BY_CODE.get(code) or _BY_STATUS.get(number, default)
    return Failure(meaning, reason, answered=True)


def _failed_to_connect(error: BaseException, names: set[str]) -> bool:
    """botocore keeps aiohttp's error in `kwargs`; its own kinds also mean broken connections."""
    if "ConnectTimeoutError" in names:
        return True
    details = getattr(error, "kwargs", None)
    inner = details.get("error") if isinstance(details, dict) else None
    inner_names = {kind.__name__ for kind in type(inner).__mro__}
    return bool(inner_names & {"ClientConnectorError", "gaierror"})
