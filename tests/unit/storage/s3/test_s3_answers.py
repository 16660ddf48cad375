"""Every HTTP status of an S3 service keeps its meaning with each client library."""

import socket
from itertools import groupby
from typing import Any

import pytest

from tests.unit.storage.scripted_s3 import OK, Answer, ScriptedServer
from txlog.clock import Runtime
from txlog.errors import (
    CorruptData,
    InternalError,
    OutcomeUnknown,
    StoreDenied,
    StoreFull,
    StoreNotAtomic,
    StoreUnavailable,
    TxlogError,
)
from txlog.layout import SMALL_BYTES_MAX, LogLayout
from txlog.storage import ByteRange, Created, Exists, Store, open_store
from txlog.storage.object_stores import s3fs_client
from txlog.storage.object_stores.object_client import Failure, Meaning
from txlog.storage.policy.retry import Attempts, RetrySettings
from txlog.storage.s3 import s3_client

OWN_412 = (412, "PreconditionFailed")


@pytest.fixture(params=["obstore", "s3fs"])
def client(request: pytest.FixtureRequest) -> str:
    """The library that makes the requests."""
    name: str = request.param
    return name


@pytest.fixture
def store(server: ScriptedServer, client: str) -> Store:
    options = {
        "client": client,
        "endpoint_url": server.url,
        "key": "AKIAEXAMPLE",
        "secret": "hush-hush",
        "client_kwargs": {"region_name": "us-east-1"},
        "attempts_max": 3,
        "attempt_timeout_ms": 60_000,  # A busy machine must not look like a silent server.
        "deadline_ms": 120_000,
        "pause_min_ms": 1,
    }
    return open_store(f"s3://{server.bucket}/log", Runtime(), options)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((400, "InvalidBucketName"), StoreDenied),
        ((400, "AuthorizationHeaderMalformed"), StoreDenied),
        ((400, "ExpiredToken"), StoreDenied),
        ((301, "PermanentRedirect"), StoreDenied),
        ((403, "AccessDenied"), StoreDenied),
        ((403, ""), StoreDenied),
        ((404, "NoSuchBucket"), StoreDenied),
        ((404, ""), StoreDenied),
        ((405, "MethodNotAllowed"), StoreDenied),
        ((403, "QuotaExceeded"), StoreFull),
        ((507, "XMinioStorageFull"), StoreFull),
        ((507, ""), StoreFull),
        ((501, "NotImplemented"), StoreNotAtomic),
    ],
)
def test_refusal_is_final_and_not_retried(
    server: ScriptedServer, store: Store, answer: Answer, error: type[TxlogError]
) -> None:
    server.script = {"PUT": [answer]}
    # obstore reports a redirect without its status.
    with pytest.raises(error, match=f"{answer[0]}|redirect") as refused:
        store.create("a", b"mine")
    assert server.requests == ["PUT"]
    for secret in ("hush", "AKIA", "secret story"):
        assert secret not in str(refused.value)


@pytest.mark.parametrize(
    "answer",
    [
        (409, "ConditionalRequestConflict"),
        (409, "OperationAborted"),
        (500, "InternalError"),
        (502, ""),
        (503, "SlowDown"),
        (503, ""),
        (504, ""),
        (429, "TooManyRequests"),
        (400, "RequestTimeout"),
    ],
)
def test_I13_unclear_answer_is_read_back_and_same_bytes_are_resent(
    server: ScriptedServer, store: Store, answer: Answer
) -> None:
    server.script = {"PUT": [answer, OK], "GET": [(404, "NoSuchKey")]}
    assert store.create("a", b"mine") == Created()
    # The HTTP client may repeat a request whose connection was closed under it.
    assert [verb for verb, _ in groupby(server.requests)] == ["PUT", "GET", "PUT"]
    assert server.body == b"mine"


@pytest.mark.parametrize("answer", [(409, "ConditionalRequestConflict"), (500, ""), OWN_412])
def test_I13_answer_that_stays_unclear_raises_OutcomeUnknown(
    server: ScriptedServer, store: Store, answer: Answer
) -> None:
    server.script = {"PUT": [answer], "GET": [(404, "NoSuchKey")]}
    with pytest.raises(OutcomeUnknown, match=f"3 attempts .* HTTP {answer[0]}"):
        store.create("a", b"mine")
    assert server.requests == ["PUT", "GET"] * 3


@pytest.mark.parametrize(("held", "result"), [(b"mine", Created()), (b"x", Exists(b"x"))])
def test_I1_create_resolves_a_412_by_reading_back(
    server: ScriptedServer, store: Store, held: bytes, result: object
) -> None:
    server.body = held
    server.script = {"PUT": [OWN_412]}
    assert store.create("a", b"mine") == result
    assert server.requests == ["PUT", "GET"]


def test_I1_create_and_put_new_send_If_None_Match(server: ScriptedServer, store: Store) -> None:
    store.create("a", b"mine")
    store.put_new("b", b"")
    store.replace("c", b"hint")
    assert [headers.get("If-None-Match") for headers in server.headers] == ["*", "*", None]


def test_read_of_a_range_requests_only_its_bytes(server: ScriptedServer, store: Store) -> None:
    server.body = b"0123456789"
    assert store.get_ranges("a", [ByteRange(2, 3)]) == [b"234"]
    assert server.headers[-1]["Range"] == "bytes=2-4"
    assert store.get("a") == server.body
    assert "Range" not in server.headers[-1]


@pytest.mark.parametrize("client", ["s3fs"], indirect=True)
def test_I1_large_object_is_uploaded_to_its_name_and_only_if_it_is_free(
    server: ScriptedServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3fs_client, "MULTIPART_BYTES_MIN", 10)
    for size, path in ((9, "a"), (10, "b"), (11, "c")):
        store.put_new(path, b"x" * size)
        assert (server.keys[-1], server.body) == (f"log/{path}", b"x" * size)
        assert server.headers[-1]["If-None-Match"] == "*"
    server.body = b"y" * 11
    server.script = {"PUT": [OWN_412]}
    with pytest.raises(InternalError, match="exists already with other content"):
        store.put_new("c", b"x" * 11)


def test_writes_send_no_Expect_header(server: ScriptedServer, store: Store) -> None:
    store.create("entries/0.json", b"first")
    store.put_new("segments/a.arrow", b"second")

    assert [headers.get("Expect") for headers in server.headers] == [None, None]


@pytest.mark.parametrize("answer", [(500, ""), (503, "SlowDown"), (409, "OperationAborted")])
def test_reads_and_deletes_are_retried_until_answered(
    server: ScriptedServer, store: Store, answer: Answer
) -> None:
    server.body = b"0123456789"
    server.script = {"GET": [answer, OK], "DELETE": [answer, answer, (204, "")]}
    assert store.get("a") == b"0123456789"
    server.requests.clear()
    assert store.get_ranges("a", [ByteRange(0, 10)]) == [b"0123456789"]
    store.delete("a")
    assert server.requests == ["GET", "GET", "DELETE", "DELETE", "DELETE"]


def test_read_that_fails_in_every_attempt_is_unavailable(
    server: ScriptedServer, store: Store
) -> None:
    server.script = {"GET": [(503, "SlowDown")]}
    with pytest.raises(StoreUnavailable, match="HTTP 503 SlowDown"):
        store.get("a")
    assert server.requests == ["GET"] * 3


@pytest.mark.parametrize("failed", [1, 2, 3])
def test_listing_whose_page_fails_once_has_every_name(
    store: Store, server: ScriptedServer, failed: int
) -> None:
    """A checkpoint, pruning, the vacuum and the audit see what a listing has (I14)."""
    server.listed = [f"log/{name}" for name in "abcdef"]
    server.script["GET"] = [OK] * (failed - 1) + [(500, "InternalError"), OK]
    assert [stored.path for stored in store.list_after("")] == list("abcdef")


def test_read_of_absent_object_costs_one_request(server: ScriptedServer, store: Store) -> None:
    server.script = {"GET": [(404, "NoSuchKey")]}
    assert store.get("a") is None
    assert store.get_ranges("a", [ByteRange(0, 1), ByteRange(5, 1)]) is None
    assert server.requests == ["GET", "GET"]


def test_missing_credentials_are_refused_before_any_request(
    server: ScriptedServer, client: str, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, f"{tmp_path}/absent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    options = {"endpoint_url": server.url, "client": client}
    store = open_store(f"s3://{server.bucket}/log", Runtime(), options)
    with pytest.raises(StoreDenied, match=r"NoCredentialsError.*AWS_ACCESS_KEY_ID"):
        store.create("a", b"mine")
    assert server.requests == []


def test_calls_to_a_deleted_bucket_are_refused(server: ScriptedServer, store: Store) -> None:
    """Objects of a deleted bucket are not absent: a reader must not act on their absence."""
    assert store.create("a", b"x") == Created()
    server.script = {"GET": [(404, "NoSuchBucket")], "DELETE": [(404, "NoSuchBucket")]}
    reads = (store.get, lambda path: store.get_ranges(path, [ByteRange(0, 1)]), store.delete)
    for call in reads:
        with pytest.raises(StoreDenied, match="there is no bucket"):
            call("a")


def test_object_above_the_limit_of_its_kind_is_corrupt_data(
    server: ScriptedServer, store: Store
) -> None:
    entry = LogLayout("10" * 16).transactions(3).entry(7)
    server.body = b"x" * SMALL_BYTES_MAX
    assert store.get(entry) == server.body
    server.body += b"x"
    with pytest.raises(CorruptData, match=f"{entry} has {SMALL_BYTES_MAX + 1} bytes"):
        store.get(entry)
    assert server.requests == ["GET", "GET"]


def test_client_cache_evicts_the_oldest_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new client takes 150 ms to make."""
    monkeypatch.setattr(s3_client, "_clients", {})
    monkeypatch.setattr(s3_client, "CLIENTS_MAX", 6)
    options = [{"endpoint_url": f"http://127.0.0.1:{port}"} for port in range(1, 8)]
    clients = [s3_client.shared_client(each) for each in options[:6]]
    assert [s3_client.shared_client(each) for each in options[:6]] == clients
    s3_client.shared_client(options[6])
    assert list(s3_client._clients.values())[:5] == clients[1:]


def test_client_cache_depends_on_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_client, "_clients", {})
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAFIRST")
    first = s3_client.shared_client({"anon": True})
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIASECOND")
    monkeypatch.setenv("OF_NO_INTEREST", "x")
    second = s3_client.shared_client({"anon": True})
    assert second is not first
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAFIRST")
    assert s3_client.shared_client({"anon": True}) is first


def test_I13_refused_connection_proves_nothing_after_an_answer() -> None:
    """aiohttp repeats a request whose kept connection broke, so the first may have arrived."""

    async def list_a_bucket(files: Any) -> object:
        return await files._call_s3("list_objects_v2", Bucket="lake")

    async def be_answered(files: Any) -> str:
        return "answer"

    limits = RetrySettings()
    with socket.socket() as held:  # Bound, but not listening.
        held.bind(("127.0.0.1", 0))
        given = {"key": "AKIA", "secret": "hush"}
        given["endpoint_url"] = f"http://127.0.0.1:{held.getsockname()[1]}"
        client = s3_client.S3Client(s3_client.client_options(given, limits))
        for answer, meaning in ((None, Meaning.NOT_REACHED), ("answer", Meaning.UNCLEAR)):
            if answer is not None:
                assert client.ask(Attempts(limits, Runtime()), be_answered) == answer
            failure = client.ask(Attempts(limits, Runtime()), list_a_bucket)
            assert isinstance(failure, Failure)
            assert failure.meaning is meaning


# Answers of something else before the service, such as a gateway or a proxy that asks for a login.

FOREIGN = pytest.mark.parametrize("page", [" ", "<html>Log in.</html>", "<Error></Error>"])


@FOREIGN
def test_read_is_repeated_after_an_answer_that_is_not_of_the_service(
    store: Store, server: ScriptedServer, page: str
) -> None:
    server.body = b"stored"
    server.script["GET"] = [(200, page), OK]
    assert store.get("a") == b"stored"
    server.requests.clear()
    assert store.get_ranges("a", [ByteRange(0, 3)]) == [b"sto"]


@FOREIGN
def test_read_that_only_others_answer_is_unavailable(
    store: Store, server: ScriptedServer, page: str
) -> None:
    """Regression: the object was reported as damaged, to be restored from a backup."""
    server.script["GET"] = [(200, page)]
    for read in (lambda: store.get("a"), lambda: store.get_ranges("a", [ByteRange(0, 3)])):
        with pytest.raises(StoreUnavailable, match="HTTP 200 without an ETag"):
            read()


@FOREIGN
def test_I13_create_that_another_answered_is_sent_again(
    store: Store, server: ScriptedServer, page: str
) -> None:
    server.script = {"PUT": [(200, page), OK], "GET": [(404, "NoSuchKey")]}
    assert store.create("a", b"mine") == Created()
    assert server.body == b"mine"
