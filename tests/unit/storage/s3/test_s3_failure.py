"""What a failed S3 request means: by its status and code, or by whether it was sent."""

import socket
from json import JSONDecodeError
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import ClientConnectorError, InvalidURL
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    ReadTimeoutError,
)

from txlog.errors import StoreDenied, StoreFull, StoreNotAtomic, StoreUnavailable, TxlogError
from txlog.storage.object_stores.object_client import Failure, Meaning, Service, as_error
from txlog.storage.s3.s3_failure import read_failure

URL = "http://127.0.0.1:9"


def answer(status: Any, code: str = "") -> ClientError:
    """An error as botocore raises it."""
    parsed: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(parsed, "PutObject")


@pytest.mark.parametrize(
    ("status", "code", "meaning"),
    [
        (404, "NoSuchKey", Meaning.ABSENT),
        (404, "", Meaning.ABSENT),
        (404, "NoSuchBucket", Meaning.NO_BUCKET),
        (404, "NoSuchUpload", Meaning.UNCLEAR),
        (412, "PreconditionFailed", Meaning.TAKEN),
        (409, "ConditionalRequestConflict", Meaning.UNCLEAR),
        (416, "InvalidRange", Meaning.BEYOND_END),
        (400, "BadDigest", Meaning.UNCLEAR),
        (400, "IncompleteBody", Meaning.UNCLEAR),
        (400, "XAmzContentSHA256Mismatch", Meaning.UNCLEAR),
        (400, "RequestTimeout", Meaning.UNCLEAR),
        (400, "InvalidRequest", Meaning.DENIED),
        (403, "AccessDenied", Meaning.DENIED),
        (403, "QuotaExceeded", Meaning.FULL),
        (507, "XMinioStorageFull", Meaning.FULL),
        (507, "", Meaning.FULL),
        (500, "InsufficientStorage", Meaning.FULL),
        (300, "", Meaning.DENIED),
        (301, "PermanentRedirect", Meaning.DENIED),
        (499, "", Meaning.DENIED),
        (408, "", Meaning.UNCLEAR),
        (425, "", Meaning.UNCLEAR),
        (429, "SlowDown", Meaning.UNCLEAR),
        (500, "InternalError", Meaning.UNCLEAR),
        (501, "NotImplemented", Meaning.UNSUPPORTED),
        (503, "SlowDown", Meaning.UNCLEAR),
        (200, "InternalError", Meaning.UNCLEAR),
    ],
)
@pytest.mark.parametrize("answered_before", [True, False])
def test_I13_answer_is_interpreted_by_status_and_code(
    status: int, code: str, meaning: Meaning, answered_before: bool
) -> None:
    failure = read_failure(answer(status, code), answered_before=answered_before)
    assert failure == Failure(meaning, f"HTTP {status} {code}".rstrip(), answered=True)


def test_code_equal_to_the_status_is_not_repeated_in_the_reason() -> None:
    assert read_failure(answer(404, "404"), answered_before=True).reason == "HTTP 404"


@pytest.mark.parametrize("response", [{}, {"Error": {}}, {"ResponseMetadata": {}}])
def test_I13_answer_without_status_is_unclear(response: dict[str, Any]) -> None:
    error = OSError("translated")
    error.response = response  # type: ignore[attr-defined]
    failure = read_failure(error, answered_before=False)
    assert failure == Failure(Meaning.UNCLEAR, "HTTP 0", answered=True)


def test_I13_non_numeric_status_is_unclear() -> None:
    assert read_failure(answer("404"), answered_before=True).meaning is Meaning.UNCLEAR


def test_answer_is_read_from_the_cause_of_a_translated_error() -> None:
    error = FileNotFoundError("bucket")
    error.__cause__ = answer(412, "PreconditionFailed")
    assert read_failure(error, answered_before=True).meaning is Meaning.TAKEN


def refused(inner: Exception) -> EndpointConnectionError:
    """An error as aiobotocore raises it: with aiohttp's error among its arguments."""
    return EndpointConnectionError(endpoint_url=URL, error=inner)


def no_route() -> ClientConnectorError:
    key = SimpleNamespace(host="127.0.0.1", port=9, is_ssl=False, ssl=True)
    return ClientConnectorError(key, OSError(111, "refused"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (ConnectTimeoutError(endpoint_url=URL), "ConnectTimeoutError"),
        (refused(no_route()), "EndpointConnectionError"),
        (refused(socket.gaierror(-2, "unknown name")), "EndpointConnectionError"),
    ],
)
def test_I13_failed_connect_is_not_reached_only_if_nothing_was_answered_before(
    error: Exception, name: str
) -> None:
    assert read_failure(error, answered_before=False) == Failure(Meaning.NOT_REACHED, name)
    assert read_failure(error, answered_before=True) == Failure(Meaning.UNCLEAR, name)


@pytest.mark.parametrize(
    "error",
    [
        ReadTimeoutError(endpoint_url=URL),
        refused(ConnectionResetError("broken")),
        HTTPClientError(error=ValueError("half an answer")),
        OSError("translated"),
        TimeoutError(),
        JSONDecodeError("the answer", "", 0),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("answered_before", [True, False])
def test_I13_other_errors_without_an_answer_are_unclear(
    error: Exception, answered_before: bool
) -> None:
    failure = read_failure(error, answered_before=answered_before)
    assert failure == Failure(Meaning.UNCLEAR, type(error).__name__)


@pytest.mark.parametrize("error", [NoCredentialsError(), InvalidURL("http://a b")])
@pytest.mark.parametrize("answered_before", [True, False])
def test_request_refused_before_sending_is_denied(error: Exception, answered_before: bool) -> None:
    failure = read_failure(error, answered_before=answered_before)
    assert failure == Failure(Meaning.DENIED, type(error).__name__)


@pytest.mark.parametrize("error", [TypeError("x"), ValueError("x")])
def test_I13_bare_error_is_denied_only_if_nothing_was_answered_before(error: Exception) -> None:
    name = type(error).__name__
    assert read_failure(error, answered_before=False) == Failure(Meaning.DENIED, name)
    assert read_failure(error, answered_before=True) == Failure(Meaning.UNCLEAR, name)


@pytest.mark.parametrize(
    ("meaning", "kind", "remedy"),
    [
        (Meaning.NO_BUCKET, StoreDenied, "there is no bucket 'b' there"),
        (Meaning.ABSENT, StoreDenied, "there is no bucket 'b' there"),
        (Meaning.DENIED, StoreDenied, "permissions on bucket 'b'"),
        (Meaning.FULL, StoreFull, "free some room"),
        (Meaning.UNSUPPORTED, StoreNotAtomic, "honours If-None-Match"),
        (Meaning.UNCLEAR, StoreUnavailable, "Call again"),
        (Meaning.NOT_REACHED, StoreUnavailable, "Call again"),
        (Meaning.TAKEN, StoreUnavailable, "Call again"),
    ],
)
def test_error_names_operation_place_and_remedy(
    meaning: Meaning, kind: type[TxlogError], remedy: str
) -> None:
    error = as_error(Failure(meaning, "HTTP 1"), "write", "s3://b/log/x", Service("b", "http://s3"))
    assert type(error) is kind
    assert error.message.startswith("cannot write s3://b/log/x at http://s3: HTTP 1")
    assert remedy in error.message
    assert error.facts == {"place": "s3://b/log/x", "bucket": "b", "reason": "HTTP 1"}


def test_error_for_unlistable_name_advises_deletion() -> None:
    failure = Failure(Meaning.STRANGE_NAME, "InvalidPathError")
    error = as_error(failure, "list", "s3://b/log/", Service("b", "http://s3"))
    assert type(error) is StoreDenied
    assert error.message.startswith("cannot list s3://b/log/: an object below it has a name")
    assert "delete it from bucket 'b'" in error.message
    assert error.facts["place"] == "s3://b/log/"
