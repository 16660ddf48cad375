"""The client of Google Cloud Storage fulfils the contract of a store.

Google's XML interface is that of S3 except for the condition of a create. The test therefore uses
an S3 server and translates that header. It tests our client, not Google's service.
"""

from collections.abc import Iterator, Mapping
from itertools import count

import pytest

from tests.conformance.raw_objects import put_object
from txlog.clock import Runtime
from txlog.errors import StoreDenied
from txlog.storage import Created, ObjectStore, Store, open_store
from txlog.testing.conformance import LostAnswerConformance, SharedStoreConformance
from txlog.testing.s3_server import S3Server
from txlog.testing.tcp_proxy import TcpProxy

pytestmark = pytest.mark.s3

_prefixes = count()


def as_s3(sent: bytes) -> bytes:
    """Translate the condition to S3's header."""
    return sent.replace(b"x-goog-if-generation-match: 0\r\n", b"if-none-match: *\r\n", 1)


@pytest.fixture(scope="module")
def ministack() -> Iterator[S3Server]:
    with S3Server.start() as server:
        yield server


@pytest.fixture
def google(ministack: S3Server) -> Iterator[TcpProxy]:
    with TcpProxy(ministack.endpoint_url, as_s3) as proxy:
        yield proxy


@pytest.fixture
def url(ministack: S3Server) -> str:
    return f"gs://{ministack.bucket}/log-{next(_prefixes)}"


@pytest.mark.slow
@pytest.mark.extra
class TestGoogleCloudStorage(SharedStoreConformance):
    @pytest.fixture
    def store_url(self, url: str) -> str:
        return url

    @pytest.fixture
    def storage_options(self, google: TcpProxy) -> Mapping[str, object]:
        return {"endpoint_url": google.endpoint_url, "token": "anon"}


class TestGoogleCloudStorageOverABreakingLine(LostAnswerConformance):
    """A proxy loses answers to requests that the server has carried out."""

    @pytest.fixture
    def losing_store(self, url: str, google: TcpProxy) -> Store:
        google.lose_answers("PUT")
        return open_store(url, Runtime(), {"endpoint_url": google.endpoint_url, "token": "anon"})

    @pytest.fixture
    def cut_off_store(self, url: str, google: TcpProxy) -> Store:
        google.lose_answers("PUT", then_refuse=True)
        limits = {"deadline_ms": 4_000, "attempt_timeout_ms": 3_000}
        options = {"endpoint_url": google.endpoint_url, "token": "anon", **limits}
        return open_store(url, Runtime(), options)


def test_missing_bucket_is_named_in_the_error(google: TcpProxy) -> None:
    options = {"endpoint_url": google.endpoint_url, "token": "anon"}
    store = open_store("gs://no-such-bucket/log", Runtime(), options)
    assert isinstance(store, ObjectStore)
    assert store.url == "gs://no-such-bucket/log"
    for call in (
        lambda: store.create("a", b"x"),
        lambda: store.get("a"),
        lambda: list(store.list_after("")),
    ):
        with pytest.raises(StoreDenied, match="no bucket 'no-such-bucket'"):
            call()


def test_object_name_with_empty_part_fails_the_listing_with_a_remedy(
    url: str, google: TcpProxy, ministack: S3Server
) -> None:
    store = open_store(url, Runtime(), {"endpoint_url": google.endpoint_url, "token": "anon"})
    store.create("a", b"x")
    put_object(ministack, f"{url.removeprefix('gs://')}/b//c")
    with pytest.raises(StoreDenied, match=r"empty part.*delete it from bucket 'txlog-test'"):
        list(store.list_after(""))
    assert store.get("a") == b"x"


def test_emulator_host_is_read_from_the_environment(
    url: str, google: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", google.endpoint_url.removeprefix("http://"))
    assert open_store(url, Runtime()).create("a", b"x") == Created()
