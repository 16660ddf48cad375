"""What obstore's exceptions say about a request, with the texts of the pinned versions."""

import pytest

from txlog.storage.object_stores.object_client import Failure, Meaning
from txlog.storage.object_stores.obstore_failure import read_failure

ORIGIN = "http://127.0.0.1:9000"


def said(status: str, body: str = "", url: str = f"{ORIGIN}/bucket/a/one", lead: str = "") -> str:
    """An error's text as obstore 0.12 writes it."""
    return (
        f"{lead or 'Generic S3 error: '}Error performing PUT {url} in 8.175698ms - Server returned "
        f'non-2xx status code: {status}: {body}\n\nDebug source:\nGeneric {{\n    store: "S3",'
    )


def broken(kind: str) -> str:
    return (
        f"Generic S3 error: Error performing PUT {ORIGIN}/bucket/a/one in 162.421µs - HTTP error: "
        "error sending request\n\nDebug source:\nGeneric {\n    inner: Http(\n        HttpError {\n"
        f"            kind: {kind},\n            source: reqwest::Error {{"
    )


def read(text: str, key: str = "a/one") -> Failure:
    return read_failure(Exception(text), key, ORIGIN)


@pytest.mark.parametrize(
    ("status", "body", "meaning"),
    [
        ("412 Precondition Failed", "<Error><Code>PreconditionFailed</Code></Error>", "TAKEN"),
        ("409 Conflict", "<Error><Code>ConditionalRequestConflict</Code></Error>", "UNCLEAR"),
        ("409 Conflict", "<Error><Code>BlobAlreadyExists</Code></Error>", "TAKEN"),
        ("304 Not Modified", "", "DENIED"),
        ("404 Not Found", "<Error>\n<Code>NoSuchKey</Code></Error>", "ABSENT"),
        ("404 Not Found", "<Error><Code>NoSuchBucket</Code></Error>", "NO_BUCKET"),
        ("404 Not Found", "<Error><Code>ContainerNotFound</Code></Error>", "NO_BUCKET"),
        ("503 Service Unavailable", "<Error>\n<Code>SlowDown</Code></Error>", "UNCLEAR"),
        ("416 Range Not Satisfiable", "", "BEYOND_END"),
        ("507 Insufficient Storage", "", "FULL"),
    ],
)
def test_I13_status_is_read_from_first_line_and_code_from_body(
    status: str, body: str, meaning: str
) -> None:
    failure = read(said(status, body))
    assert failure.meaning is Meaning[meaning]
    assert failure.answered
    assert failure.reason.startswith(f"HTTP {status[:3]}")


@pytest.mark.parametrize(
    "lead",
    [
        "Object at location a/one already exists: Request precondition failure for path a/one: ",
        "Object at location a/one not found: ",
        "The operation lacked the necessary privileges to complete for path a/one: ",
        "Generic GCS error: Error performing list request: ",
    ],
)
def test_status_is_read_after_any_known_prefix(lead: str) -> None:
    assert read(said("404 Not Found", lead=lead)).meaning is Meaning.ABSENT


def test_status_of_one_object_in_a_bulk_delete_is_read() -> None:
    text = "Object at location a/one not found: Bulk delete request failed for key a/one: The "
    text += "specified blob does not exist. (code: 404)\n\nDebug source:\nNotFound {"
    assert read(text) == Failure(Meaning.ABSENT, "HTTP 404", answered=True)
    assert read(text, key="Bulk delete").meaning is Meaning.UNCLEAR


def test_name_that_cannot_be_listed_is_recognised_by_exception_class() -> None:
    strange = type("InvalidPathError", (Exception,), {})
    failure = read_failure(strange('Path "a//b" contained empty path segment'), "", ORIGIN)
    assert failure == Failure(Meaning.STRANGE_NAME, "InvalidPathError")


def test_redirect_counts_as_an_answer_that_denies() -> None:
    text = f"Generic S3 error: Error performing PUT {ORIGIN}/b/a in 2ms - Received redirect "
    text += "without LOCATION, this normally indicates an incorrectly configured region"
    assert read(text) == Failure(Meaning.DENIED, "a redirect to another region", answered=True)


def test_reason_of_400_includes_the_buckets_region() -> None:
    """s3fs switches to the right region automatically."""
    body = "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>"
    failure = read(said("400 Bad Request", body))
    reason = "HTTP 400 AuthorizationHeaderMalformed, the bucket's region being eu-west-1"
    assert failure == Failure(Meaning.DENIED, reason, answered=True)
    assert read(said("500 Internal", body)).reason == "HTTP 500 AuthorizationHeaderMalformed"
    evil = body.replace("eu-west-1", "hush hush")
    assert read(said("400 Bad Request", evil)).reason == "HTTP 400 AuthorizationHeaderMalformed"
    url = f"{ORIGIN}/<Region>eu-west-1</Region>"
    assert read(said("400 Bad Request", url=url)).reason == "HTTP 400"


def test_error_code_is_read_only_from_the_body() -> None:
    named = "<Code>NoSuchBucket</Code>"
    lead = f"Object at location {named} not found: "
    absent = said("404 Not Found", "<Error><Code>NoSuchKey</Code></Error>", lead=lead)
    assert read(absent, key=named).reason == "HTTP 404 NoSuchKey"
    ended = said("404 Not Found", f"no XML\n\nDebug source:\n{named}")
    assert read(ended).reason == "HTTP 404"


def test_status_of_listing_request_without_path_is_read() -> None:
    url = f"{ORIGIN}?list-type=2&prefix=a%2F"
    assert read(said("403 Forbidden", url=url)).reason == "HTTP 403"
    assert read(said("403 Forbidden", url=ORIGIN)).reason == "HTTP 403"


def test_I13_forged_status_in_body_or_name_is_ignored() -> None:
    forged = "Error performing PUT http://127.0.0.1:9000/b in 1ms - Server returned non-2xx "
    forged += "status code: 412"
    assert read(said("503 Service Unavailable", forged)).reason == "HTTP 503"
    assert read(f"Generic S3 error: no luck\n{forged}").meaning is Meaning.UNCLEAR
    named = said("503 Service Unavailable", lead=f"Object at location {forged} already exists: ")
    assert read(named, key=forged) == Failure(Meaning.UNCLEAR, "no answer (Exception)")


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/iam/security-credentials/",
        f"{ORIGIN}0/bucket/a",
        f"{ORIGIN}.example.org/bucket/a",
        "https://oauth2.googleapis.com/token",
    ],
)
def test_I13_status_of_credential_service_is_not_the_buckets(
    url: str,
) -> None:
    """A 404 of that service would look like an absent object."""
    failure = read(said("404 Not Found", url=url))
    assert failure == Failure(Meaning.UNCLEAR, "no answer (HTTP 404 of another service)")


@pytest.mark.parametrize("text", ["", "no such text", "Server returned non-2xx status code: 412"])
def test_I13_unrecognised_error_text_is_unclear(text: str) -> None:
    assert read(text) == Failure(Meaning.UNCLEAR, "no answer (Exception)")


def test_I13_only_failed_connect_counts_as_not_reached() -> None:
    assert read(broken("Connect")) == Failure(Meaning.NOT_REACHED, "no answer (Connect)")
    for kind in ("Interrupted", "Request", "Timeout", "Unknown", "Decode"):
        assert read(broken(kind)) == Failure(Meaning.UNCLEAR, f"no answer ({kind})")


def test_I13_name_that_imitates_connect_error_details_is_ignored() -> None:
    text = said("503 X", "x").replace('"S3"', '"HttpError {\\n kind: Connect,\\n"')
    assert read(text).meaning is Meaning.UNCLEAR
