"""Behaviour of the installed obstore on which the store relies without a promise.

setup.cfg allows a new version of obstore when these tests pass with it.
"""

import contextlib
import multiprocessing
import socket
import struct
import threading
from functools import partial
from multiprocessing.connection import Connection

import pytest

from tests.unit.storage.scripted_s3 import Answer, ScriptedServer
from txlog.clock import Runtime
from txlog.storage.object_stores import azure, gcs, obstore_client
from txlog.storage.object_stores.object_client import Failure, Meaning, Unread
from txlog.storage.object_stores.obstore_client import (
    BucketSettings,
    ObstoreBucket,
    ObstoreClient,
    may_be_used,
    shared_bucket,
)
from txlog.storage.policy.retry import Attempts, RetrySettings
from txlog.storage.s3.s3_bucket import GivenKeys
from txlog.storage.store import ByteRange

LIMITS = RetrySettings(attempt_timeout_ms=1_500)


def client_of(url: str, bucket: str = "bucket", limits: RetrySettings = LIMITS) -> ObstoreClient:
    config = {
        "endpoint": url,
        "region": "us-east-1",
        "conditional_put": "etag",
        "disable_bulk_delete": True,
        "skip_signature": False,
    }
    keys = GivenKeys("AKIAEXAMPLE", "hush-hush", "")
    opened = ObstoreBucket(BucketSettings("S3Store", bucket, url, config, {}, keys), limits)
    return ObstoreClient(lambda: opened, Runtime().fan_out)


@pytest.fixture
def client(server: ScriptedServer) -> ObstoreClient:
    return client_of(server.url, server.bucket)


def attempts() -> Attempts:
    return Attempts(LIMITS, Runtime())


@pytest.mark.parametrize(
    ("answer", "meaning"),
    [
        ((412, "PreconditionFailed"), Meaning.TAKEN),
        ((409, "ConditionalRequestConflict"), Meaning.UNCLEAR),
        ((404, "NoSuchBucket"), Meaning.NO_BUCKET),
        ((403, "AccessDenied"), Meaning.DENIED),
        ((401, ""), Meaning.DENIED),
        ((400, "RequestTimeout"), Meaning.UNCLEAR),
        ((408, ""), Meaning.UNCLEAR),
        ((429, ""), Meaning.UNCLEAR),
        ((500, "InternalError"), Meaning.UNCLEAR),
        ((501, "NotImplemented"), Meaning.UNSUPPORTED),
        ((503, "SlowDown"), Meaning.UNCLEAR),
        ((507, ""), Meaning.FULL),
    ],
)
def test_I13_each_status_is_recognised_and_its_request_sent_once(
    server: ScriptedServer, client: ObstoreClient, answer: Answer, meaning: Meaning
) -> None:
    server.script = {"PUT": [answer], "GET": [answer], "DELETE": [answer]}
    said = Failure(meaning, f"HTTP {answer[0]} {answer[1]}".rstrip(), answered=True)
    assert client.put(attempts(), "a/one", b"x", if_absent=True) == said
    assert client.put(attempts(), "a/one", b"x", if_absent=False) == said
    assert client.get(attempts(), "a/one", None) == said
    assert client.get_ranges(attempts(), "a/one", [ByteRange(0, 1)]) == [said]
    assert client.delete(attempts(), "a/one") == said
    assert server.requests == ["PUT", "PUT", "GET", "GET", "DELETE"]


@pytest.mark.parametrize("status", [301, 307])
def test_redirect_is_reported_and_not_followed(
    server: ScriptedServer, client: ObstoreClient, status: int
) -> None:
    server.script = {"PUT": [(status, "PermanentRedirect")]}
    failure = client.put(attempts(), "a/one", b"x", if_absent=True)
    assert failure == Failure(Meaning.DENIED, "a redirect to another region", answered=True)
    assert server.requests == ["PUT"]


def test_I1_condition_is_sent_regardless_of_environment(
    server: ScriptedServer, client: ObstoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    for size in (0, 1, 6 << 20):  # obstore would send an overwrite of the last in parts.
        assert client.put(attempts(), "a", bytes(size), if_absent=True) is None
    assert client.put(attempts(), "a", bytes(6 << 20), if_absent=False) is None
    sent = [headers.get("If-None-Match") for headers in server.headers]
    assert sent == ["*", "*", "*", None]
    assert all("Credential=AKIAEXAMPLE/" in sent["Authorization"] for sent in server.headers)
    assert not any("Expect" in sent for sent in server.headers)


def test_object_names_are_sent_unchanged(server: ScriptedServer, client: ObstoreClient) -> None:
    for key in ("a b", "a%20b", "ä/漢", "a+b&c=d#e?f", "dots..inside/..."):
        assert client.put(attempts(), key, b"x", if_absent=True) is None
    assert server.keys == ["a b", "a%20b", "ä/漢", "a+b&c=d#e?f", "dots..inside/..."]


def test_object_above_the_size_limit_is_not_read(
    server: ScriptedServer, client: ObstoreClient
) -> None:
    server.body = b"0123456789"
    assert client.get(attempts(), "a", 9) == Unread(10)
    assert client.get(attempts(), "a", 10) == b"0123456789"


def test_each_range_is_requested_with_a_range_header(
    server: ScriptedServer, client: ObstoreClient
) -> None:
    server.body = b"0123456789"
    found = client.get_ranges(attempts(), "a", [ByteRange(2, 3), ByteRange(8, 5), ByteRange(4, 0)])
    assert [part if isinstance(part, Failure) else bytes(part) for part in found] == [
        b"234",
        b"89",
        b"4",
    ]
    assert sorted(headers["Range"] for headers in server.headers) == [
        "bytes=2-4",
        "bytes=4-4",
        "bytes=8-12",
    ]


def test_I1_gcs_and_azure_use_service_specific_create_conditions(server: ScriptedServer) -> None:
    account = {"account_name": "lake", "account_key": "aHVzaA==", "endpoint": server.url}
    google = gcs.bucket_settings(server.bucket, {"token": "anon", "endpoint_url": server.url})
    blobs = azure.bucket_settings(server.bucket, account)
    for settings, header, taken in (
        (google, ("X-Goog-If-Generation-Match", "0"), (412, "PreconditionFailed")),
        (blobs, ("If-None-Match", "*"), (409, "BlobAlreadyExists")),
    ):
        server.begin_anew_in(settings.bucket)
        bucket = ObstoreBucket(settings, LIMITS)
        client = ObstoreClient(partial(_itself, bucket), Runtime().fan_out)
        assert client.put(attempts(), "a/one", b"x", if_absent=True) is None
        assert server.headers[-1].get(header[0]) == header[1]
        server.script = {"PUT": [taken, (409, "ContainerBeingDeleted")]}
        server.requests.clear()
        said = client.put(attempts(), "a/one", b"x", if_absent=True)
        assert said == Failure(Meaning.TAKEN, f"HTTP {taken[0]} {taken[1]}", answered=True)
        said = client.put(attempts(), "a/one", b"x", if_absent=True)
        assert said == Failure(Meaning.UNCLEAR, "HTTP 409 ContainerBeingDeleted", answered=True)
        assert client.put(attempts(), "a/one", b"x", if_absent=False) is not None
        assert header[0] not in server.headers[-1]


def _itself(bucket: ObstoreBucket) -> ObstoreBucket:
    return bucket


class BrokenServer:
    """Reads a request, breaks the answer as scripted, and accepts the next connection."""

    def __init__(self, ending: str) -> None:
        self.ending = ending
        self.requests = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._kept: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for kept in (*self._kept, self._socket):
            kept.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self.requests += connection.recv(1 << 16).count(b" HTTP/1.1\r\n")
                self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        answer = b'HTTP/1.1 200 OK\r\nETag: "x"\r\nLast-Modified: Tue, 24 Nov 2026 12:00:00 GMT\r\n'
        match self.ending:
            case "silence":
                self._kept.append(connection)
                return
            case "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            case "garbage":
                connection.sendall(b"what?\r\n\r\n")
            case "half a header":
                connection.sendall(answer[:30])
            case "half a body":
                connection.sendall(answer + b"Content-Length: 100\r\n\r\nonly")
        connection.close()


@pytest.mark.parametrize(
    "ending", ["reset", "end", "garbage", "half a header", "half a body", "silence"]
)
def test_I13_broken_answer_is_unclear_and_request_is_not_repeated(ending: str) -> None:
    server = BrokenServer(ending)
    try:
        client = client_of(server.url)
        failure = client.get(attempts(), "a", None)
        assert isinstance(failure, Failure)
        assert failure.meaning is Meaning.UNCLEAR
        assert server.requests == 1
        if ending != "half a body":  # The body of a PUT's answer is not read.
            failed = client.put(attempts(), "a", b"x", if_absent=True)
            assert failed is not None
            assert failed.meaning is Meaning.UNCLEAR
            assert server.requests == 2
    finally:
        server.close()


def test_I16_call_ends_at_deadline_despite_longer_attempt_timeout() -> None:
    server = BrokenServer("silence")
    limits = RetrySettings(attempt_timeout_ms=60_000, deadline_ms=1_000)
    try:
        client = client_of(server.url, limits=limits)
        clock = Runtime().clock
        begun_ms = clock.monotonic_ms()
        failure = client.get(Attempts(limits, Runtime()), "a", None)
        assert isinstance(failure, Failure)
        assert clock.monotonic_ms() - begun_ms < 10_000
    finally:
        server.close()


def test_bucket_cache_evicts_the_oldest_and_depends_on_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(obstore_client, "_buckets", {})
    monkeypatch.setattr(obstore_client, "BUCKETS_MAX", 3)
    monkeypatch.delenv("AWS_REGION", raising=False)
    settings = gcs.bucket_settings("lake", {})
    opened = [shared_bucket((number,), lambda: settings, LIMITS) for number in range(4)]
    assert shared_bucket((1,), lambda: settings, LIMITS) is opened[1]
    newest = shared_bucket((0,), lambda: settings, LIMITS)
    assert newest is not opened[0]
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert shared_bucket((0,), lambda: settings, LIMITS) is not newest
    monkeypatch.delenv("AWS_REGION")
    assert shared_bucket((0,), lambda: settings, LIMITS) is newest


def test_I13_refused_connection_is_not_reached() -> None:
    with socket.socket() as held:  # Bound, but not listening.
        held.bind(("127.0.0.1", 0))
        client = client_of(f"http://127.0.0.1:{held.getsockname()[1]}")
        failure = client.put(attempts(), "a", b"x", if_absent=True)
    assert failure == Failure(Meaning.NOT_REACHED, "no answer (Connect)")


def test_obstore_panic_becomes_an_unclear_failure(server: ScriptedServer) -> None:
    """obstore's own panic is not an Exception; a bucket name with a space causes one."""
    client = client_of(server.url, "no bucket")
    failure = client.put(attempts(), "a", b"x", if_absent=True)
    assert failure is not None
    assert failure.meaning is Meaning.UNCLEAR


def _report(send: Connection) -> None:
    send.send(may_be_used())


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_obstore_may_not_be_used_in_a_forked_process(client: ObstoreClient) -> None:
    """A request there would wait forever, and so would the parent's next one."""
    assert client.put(attempts(), "a", b"x", if_absent=True) is None
    receive, send = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_report, args=(send,))
    child.start()
    assert receive.poll(60)
    assert receive.recv() is False
    child.join(60)
    assert may_be_used()
