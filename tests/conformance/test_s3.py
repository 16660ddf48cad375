"""S3 keeps the contract of a store, on two real servers and over a line that breaks."""

import multiprocessing
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count

import pytest

from txlog.clock import Runtime
from txlog.errors import OutcomeUnknown, StoreDenied, StoreUnavailable
from txlog.storage import ByteRange, Created, Exists, Store, open_store
from txlog.storage.s3 import MULTIPART_BYTES_MIN
from txlog.testing.conformance import LostAnswerConformance, SharedStoreConformance
from txlog.testing.s3_server import S3Server, S3ServerKind
from txlog.testing.tcp_proxy import TcpProxy

pytestmark = pytest.mark.s3

# One attempt is longer than a new client takes to make its first request on a busy machine.
SHORT_LIMITS = {"deadline_ms": 4_000, "attempt_timeout_ms": 3_000}
FEW_ATTEMPTS = {"attempts_max": 2, "deadline_ms": 120_000, "attempt_timeout_ms": 60_000}
_prefixes = count()


@pytest.fixture(scope="module")
def ministack() -> Iterator[S3Server]:
    with S3Server.start(S3ServerKind.MINISTACK) as server:
        yield server


@pytest.fixture(scope="module")
def localbucket() -> Iterator[S3Server]:
    with S3Server.start(S3ServerKind.LOCALBUCKET) as server:
        yield server


@pytest.fixture
def proxy(ministack: S3Server) -> Iterator[TcpProxy]:
    with TcpProxy(ministack.endpoint_url) as proxy:
        yield proxy


def _open(server: S3Server, **options: object) -> Store:
    return open_store(
        server.url(f"log-{next(_prefixes)}"), Runtime(), {**server.storage_options, **options}
    )


def create_at_last(store: Store, path: str, data: bytes) -> None:
    """On a busy machine a new client's first answer may come too late: then as the error says."""
    while True:
        with suppress(OutcomeUnknown):
            assert store.create(path, data) == Created()
            return


class TestMinistack(SharedStoreConformance):
    """The first server."""

    @pytest.fixture
    def store_url(self, ministack: S3Server) -> str:
        return ministack.url(f"log-{next(_prefixes)}")

    @pytest.fixture
    def storage_options(self, ministack: S3Server) -> Mapping[str, object]:
        return ministack.storage_options


@pytest.mark.slow
@pytest.mark.extra
class TestLocalbucket(SharedStoreConformance):
    """The second server."""

    @pytest.fixture
    def store_url(self, localbucket: S3Server) -> str:
        return localbucket.url(f"log-{next(_prefixes)}")

    @pytest.fixture
    def storage_options(self, localbucket: S3Server) -> Mapping[str, object]:
        return localbucket.storage_options


class TestS3OverABreakingLine(LostAnswerConformance):
    """A proxy loses answers to requests that the server has carried out."""

    @pytest.fixture
    def losing_store(self, ministack: S3Server, proxy: TcpProxy) -> Store:
        proxy.lose_answers("PUT")
        return _open(ministack, endpoint_url=proxy.endpoint_url)

    @pytest.fixture
    def cut_off_store(self, ministack: S3Server, proxy: TcpProxy) -> Store:
        proxy.lose_answers("PUT", then_refuse=True)
        return _open(ministack, endpoint_url=proxy.endpoint_url, **SHORT_LIMITS)

    def test_I13_a_write_replayed_by_the_http_client_is_still_ones_own(
        self, ministack: S3Server, proxy: TcpProxy
    ) -> None:
        store = _open(ministack, endpoint_url=proxy.endpoint_url)
        store.create("first", b"so that a connection is kept")
        proxy.lose_answers("PUT")
        assert store.create("second", b"mine") == Created()
        assert proxy.lost["PUT"] == 1
        assert proxy.requests["PUT"] == 3, "the client sent the second PUT again, and got a 412"

    def test_I13_the_other_writers_content_is_found_behind_a_lost_answer(
        self, ministack: S3Server, proxy: TcpProxy
    ) -> None:
        store = _open(ministack, endpoint_url=proxy.endpoint_url)
        store.create("a", b"theirs")
        proxy.lose_answers("PUT", count=2)
        assert store.create("a", b"mine") == Exists(b"theirs")

    def test_I13_a_silent_store_leaves_the_outcome_unknown_until_asked_again(
        self, cut_off_store: Store, proxy: TcpProxy
    ) -> None:
        self.test_I13_a_lost_answer_that_cannot_be_read_back_is_unknown(cut_off_store)
        proxy.recover()
        assert cut_off_store.create("a", b"mine") == Created()

    def test_a_lost_answer_to_a_read_is_asked_for_again(
        self, ministack: S3Server, proxy: TcpProxy
    ) -> None:
        store = _open(ministack, endpoint_url=proxy.endpoint_url)
        store.put_new("a", b"0123456789")
        proxy.lose_answers("GET", count=2)
        assert store.get("a") == b"0123456789"
        proxy.lose_answers("GET", count=3)
        assert store.get_ranges("a", [ByteRange(2, 3), ByteRange(500_000, 3)]) == [b"234", b""]
        assert proxy.lost["GET"] == 5

    def test_a_lost_answer_to_an_upload_in_parts_is_read_back(
        self, ministack: S3Server, proxy: TcpProxy
    ) -> None:
        store = _open(ministack, endpoint_url=proxy.endpoint_url)
        body = bytes(range(256)) * (MULTIPART_BYTES_MIN // 256)
        proxy.lose_answers("POST", count=2)
        store.put_new("large", body)
        assert store.get("large") == body

    def test_a_store_that_was_never_reached_stored_nothing(self, ministack: S3Server) -> None:
        # Bound and not listening: refused for as long as the port is held, whoever else runs.
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            nobody_there = f"http://127.0.0.1:{held.getsockname()[1]}"
            store = _open(ministack, endpoint_url=nobody_there, **FEW_ATTEMPTS)
            with pytest.raises(StoreUnavailable, match="was not created"):
                store.create("a", b"mine")

    def test_I13_a_store_that_is_gone_after_it_answered_leaves_the_outcome_unknown(
        self, ministack: S3Server
    ) -> None:
        """The HTTP client sends a write again when a kept connection breaks, so the refusal of the
        second connection says nothing of what the first one carried.
        """
        with TcpProxy(ministack.endpoint_url) as proxy:
            store = _open(ministack, endpoint_url=proxy.endpoint_url, **SHORT_LIMITS)
            create_at_last(store, "first", b"so that a connection is kept")
        with pytest.raises(OutcomeUnknown):
            store.create("second", b"mine")

    def test_I16_a_store_that_says_nothing_is_given_up_at_the_deadline(
        self, ministack: S3Server, proxy: TcpProxy
    ) -> None:
        store = _open(ministack, endpoint_url=proxy.endpoint_url, **SHORT_LIMITS)
        proxy.stall()
        before_ms = Runtime().clock.monotonic_ms()
        with pytest.raises(StoreUnavailable, match="attempts"):
            store.get("a")
        assert Runtime().clock.monotonic_ms() - before_ms < 10_000


def test_a_missing_bucket_is_named(ministack: S3Server) -> None:
    store = open_store("s3://no-such-bucket/log", Runtime(), ministack.storage_options)
    for call in (
        lambda: store.create("a", b"x"),
        lambda: store.put_new("a", b"x"),
        lambda: store.replace("a", b"x"),
        lambda: store.get("a"),
        lambda: store.get_ranges("a", [ByteRange(0, 1)]),
        lambda: list(store.list_after("")),
    ):
        with pytest.raises(StoreDenied, match="no bucket 'no-such-bucket'"):
            call()


def test_wrong_credentials_are_refused_without_showing_them() -> None:
    with S3Server.start(check_credentials=True) as server:
        assert _open(server).create("a", b"x") == Created()
        store = _open(server, key="AKIAWRONGWRONGWRONG1", secret="hush-hush")
        for call in (lambda: store.create("a", b"x"), lambda: store.get("a")):
            with pytest.raises(StoreDenied, match=r"403.*AWS_ACCESS_KEY_ID") as refused:
                call()
            assert "hush" not in str(refused.value)
            assert "AKIAWRONG" not in str(refused.value)


def _create_in_child(store: Store) -> None:
    store.create("child", b"x")


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_process_may_use_its_parents_store(ministack: S3Server) -> None:
    store = _open(ministack)
    store.create("parent", b"x")
    child = multiprocessing.get_context("fork").Process(target=_create_in_child, args=(store,))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert [found.path for found in store.list_after("")] == ["child", "parent"]


def test_the_endpoint_and_credentials_come_from_the_environment(
    ministack: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ministack.env.items():
        monkeypatch.setenv(name, value)
    assert open_store(ministack.url("from-env"), Runtime()).create("a", b"x") == Created()
