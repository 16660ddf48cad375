"""The S3 store fulfils its contract on the simulated service, in memory and without a server."""

import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import pytest

from tests.simulator.environment.network import Network, _Files, _finished
from tests.simulator.environment.service import S3Request, S3Response, SimulatedS3
from txlog.clock import Runtime
from txlog.errors import InternalError, StoreDenied, StoreFull, StoreUnavailable
from txlog.storage import ByteRange, Created, Store
from txlog.storage.object_stores.object_client import Failure
from txlog.storage.object_stores.s3fs_client import MULTIPART_BYTES_MIN
from txlog.storage.policy.retry import Attempts, RetrySettings
from txlog.storage.s3.s3 import S3Store
from txlog.storage.s3.s3_failure import read_failure
from txlog.testing.clock import ManualClock
from txlog.testing.conformance import StoreConformance

T = TypeVar("T")
ABSENT, REFUSED = S3Response(404, "NoSuchBucket"), S3Response(403, "AccessDenied")


class Line(Network):
    """A connection to the service without faults, except for answers that a test injects."""

    def __init__(self) -> None:
        self.clock = ManualClock(time.time() * 1000)
        self.service = SimulatedS3(Runtime(self.clock), {})
        self.sent: list[S3Request] = []
        self.answers: list[S3Response] = []
        """Each replaces the service's answer to one request."""
        self._lock = threading.Lock()

    def ask(self, attempts: Attempts, call: Callable[[Any], Awaitable[T]]) -> T | Failure:
        try:
            return _finished(call(Files(self, attempts.timeout_ms())))
        except Exception as error:  # noqa: BLE001 - the product reads what it means
            return read_failure(error, answered_before=True)

    def send(self, request: S3Request, timeout_ms: float) -> S3Response:
        with self._lock:  # The probe's writers send at once, and a service has one order.
            self.sent.append(request)
            if self.answers:
                return self.answers.pop(0)
            return self.service.carry_out(request, self.clock.now_ms, len(self.sent))


class Files(_Files):
    """Supports multipart uploads, which end in one PUT."""

    async def _pipe_file(self, where: str, data: bytes, **options: object) -> None:
        assert options["mode"] == "create"
        assert isinstance(options["chunksize"], int)
        assert options["chunksize"] < len(data) or len(data) < 2 * options["chunksize"]
        assert isinstance(options["max_concurrency"], int)
        bucket, _, key = where.partition("/")
        await self._call_s3("put_object", Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture(params=["log/a", ""])
def store(line: Line, request: pytest.FixtureRequest) -> S3Store:
    """A store below a prefix, in a bucket of its own."""
    retries = RetrySettings(deadline_ms=15_000, attempts_max=3, pause_max_ms=500)
    return S3Store("bucket", request.param, Runtime(line.clock), settings=retries, requests=line)


class TestSimulatedS3(StoreConformance):
    @pytest.fixture
    def store(self, line: Line) -> Store:
        retries = RetrySettings(deadline_ms=15_000, attempts_max=3, pause_max_ms=500)
        return S3Store("bucket", "log", Runtime(line.clock), settings=retries, requests=line)


def test_store_url_contains_bucket_and_prefix() -> None:
    line = Line()
    named = [S3Store("b", prefix, Runtime(line.clock), requests=line).url for prefix in ("", "a/c")]
    assert named == ["s3://b", "s3://b/a/c"]


@pytest.mark.parametrize("size", [MULTIPART_BYTES_MIN - 1, MULTIPART_BYTES_MIN])
def test_I1_put_new_never_overwrites_in_one_piece_or_in_parts(store: S3Store, size: int) -> None:
    first, second = bytes(size), b"x" * size
    store.put_new("a", first)
    store.put_new("a", first)
    with pytest.raises(InternalError, match="Nothing was overwritten"):
        store.put_new("a", second)
    assert store.get("a") == first


def test_nearby_ranges_are_coalesced_into_one_request(store: S3Store, line: Line) -> None:
    store.put_new("a", bytes(range(256)) * 8000)
    line.sent.clear()
    found = store.get_ranges("a", [ByteRange(0, 5), ByteRange(10, 5), ByteRange(2_000_000, 3)])
    assert [bytes(part) for part in found or []] == [
        bytes(range(5)),
        bytes(range(10, 15)),
        (bytes(range(256)) * 8000)[2_000_000:2_000_003],
    ]
    assert [(sent.first, sent.last) for sent in line.sent] == [(0, 14), (2_000_000, 2_000_002)]


def test_listing_spans_several_pages(store: S3Store, line: Line) -> None:
    paths = [f"a/{number:05}" for number in range(23)]
    for path in paths:
        store.put_new(path, b"xy")
    store.put_new("b", b"x")
    line.sent.clear()
    found = list(store.list_after("a/"))
    assert [one.path for one in found] == paths
    assert {one.size_bytes for one in found} == {2}
    assert [sent.is_later_page for sent in line.sent] == [False, *[True] * (len(line.sent) - 1)]
    assert 2 < len(line.sent) < 23, "this service's pages are small"
    assert [one.path for one in store.list_after("a/", paths[12])] == paths[13:]


def test_listing_fetches_pages_lazily(store: S3Store, line: Line) -> None:
    for number in range(23):
        store.put_new(f"a/{number:05}", b"x")
    line.sent.clear()
    next(store.list_after("a/"))
    assert len(line.sent) == 1


CALLS: Mapping[str, Callable[[Store], object]] = {
    "create": lambda s: s.create("new", b"x"),
    "put_new": lambda s: s.put_new("new", b"x"),
    "get": lambda s: s.get("a"),
    "get_ranges": lambda s: s.get_ranges("a", [ByteRange(0, 1)]),
    "replace": lambda s: s.replace("a", b"y"),
    "delete": lambda s: s.delete("a"),
    "list": lambda s: list(s.list_after("a")),
}
ACTIONS = {"put_new": "create", "get": "read", "get_ranges": "read"}


@pytest.mark.parametrize("call", CALLS)
def test_denied_call_names_the_action_and_is_not_retried(
    store: S3Store, line: Line, call: str
) -> None:
    store.put_new("a", b"x")
    line.sent.clear()
    line.answers = [REFUSED]
    with pytest.raises(
        StoreDenied, match=f"cannot {ACTIONS.get(call, call)} {store.url}/"
    ) as caught:
        CALLS[call](store)
    assert caught.value.facts["bucket"] == "bucket"
    assert len(line.sent) == 1


@pytest.mark.parametrize("call", CALLS)
def test_call_answered_with_503_is_retried(store: S3Store, line: Line, call: str) -> None:
    store.put_new("a", b"x")
    line.answers = [S3Response(503, "SlowDown")]
    CALLS[call](store)
    assert line.answers == []


@pytest.mark.parametrize("call", ["get", "get_ranges", "replace", "delete", "list"])
def test_persistent_503_raises_store_unavailable(store: S3Store, line: Line, call: str) -> None:
    store.put_new("a", b"x")
    line.sent.clear()
    line.answers = [S3Response(503, "SlowDown")] * 9
    with pytest.raises(StoreUnavailable):
        CALLS[call](store)
    assert len(line.sent) == 3, "as often as the settings say"


def test_missing_bucket_raises_store_denied(store: S3Store, line: Line) -> None:
    for call in ("create", "list"):
        line.answers = [ABSENT]
        with pytest.raises(StoreDenied, match="there is no bucket 'bucket' there"):
            CALLS[call](store)


def test_full_store_raises_store_full(store: S3Store, line: Line) -> None:
    for call in ("create", "replace"):
        line.answers = [S3Response(507, "InsufficientStorage")]
        with pytest.raises(StoreFull):
            CALLS[call](store)


def test_delete_of_absent_object_succeeds(store: S3Store, line: Line) -> None:
    line.answers = [S3Response(404, "NoSuchKey")]
    store.delete("a")
    store.delete("a")


def test_I4_create_answered_with_500_is_read_back(store: S3Store, line: Line) -> None:
    path = f"{store.url.removeprefix('s3://bucket').lstrip('/')}/a".lstrip("/")
    line.service.carry_out(S3Request("put_object", path, b"mine", if_absent=True), 0.0, 0)
    line.answers = [S3Response(500, "InternalError")]
    assert store.create("a", b"mine") == Created()
    assert [sent.method for sent in line.sent] == ["put_object", "get_object"]
