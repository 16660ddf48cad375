"""The proxy of the system test's network faults: each fault, and its end."""

import asyncio
import http.client
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.system_test.network_faults import NetworkFaults
from txlog.testing.tcp_proxy import CHUNK_BYTES, TcpProxy

DELAY_MS = 150.0
PIECES = 40


class _Answering(BaseHTTPRequestHandler):
    """Answers every request with success."""

    def do_GET(self) -> None:
        body = b"yes" if self.path == "/" else bytes(PIECES * CHUNK_BYTES)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write nothing to stderr."""


@pytest.fixture
def proxy() -> Iterator[TcpProxy]:
    with served(_Answering) as proxy:
        yield proxy


@contextmanager
def served(handler: type[_Answering]) -> Iterator[TcpProxy]:
    """A proxy before a server that answers with `handler`."""
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with TcpProxy(f"http://127.0.0.1:{server.server_port}") as proxy:
            yield proxy
        server.shutdown()
        thread.join()


def _asked(proxy: TcpProxy, path: str = "/") -> bytes:
    connection = http.client.HTTPConnection(proxy.endpoint_url.removeprefix("http://"), timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()


def test_answers_are_delayed_until_the_proxy_recovers(proxy: TcpProxy) -> None:
    proxy.delay(DELAY_MS)
    begun = time.monotonic()
    assert _asked(proxy) == b"yes"
    assert (time.monotonic() - begun) * 1e3 >= DELAY_MS
    proxy.recover()
    assert _asked(proxy) == b"yes"


def test_lost_answer_breaks_the_connection_once(proxy: TcpProxy) -> None:
    proxy.lose_answers("GET")
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        _asked(proxy)
    assert proxy.lost["GET"] == proxy.requests["GET"] == 1
    assert _asked(proxy) == b"yes"


@pytest.mark.parametrize("is_answer", [False, True])
def test_held_request_arrives_after_its_sender_has_gone(
    proxy: TcpProxy, *, is_answer: bool
) -> None:
    held = proxy.hold(lambda _, sent: b"/late" in sent, is_answer=is_answer)
    assert _asked(proxy) == b"yes"
    with socket.create_connection(("127.0.0.1", int(proxy.endpoint_url.split(":")[2]))) as sender:
        sender.sendall(b"GET /late HTTP/1.1\r\n\r\n")
        assert held.reached.result(10) == sender.getsockname()[1]
    held.release()
    assert held.answered.result(10).startswith(b"HTTP/1.0 200 ")


def test_dropped_request_never_arrives(proxy: TcpProxy) -> None:
    held = proxy.hold(lambda _, sent: sent.startswith(b"GET "))
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(_asked, proxy)
        held.reached.result(10)
        held.drop()
        with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
            asked.result(10)
    assert held.answered.result(10) == b""
    assert _asked(proxy) == b"yes"


@pytest.mark.slow
def test_proxy_works_normally_after_injected_faults(proxy: TcpProxy) -> None:
    faults = NetworkFaults(proxy, "1")
    with faults.injected():
        while faults.counts.total() < 2:
            time.sleep(0.01)
    assert _asked(proxy) == b"yes"


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock advances only by the delays that it waits for, and at once."""

    def __init__(self) -> None:
        super().__init__(_ImpatientSelector(self))
        self.now_s = 1_000.0

    def time(self) -> float:
        return self.now_s


class _ImpatientSelector(selectors.SelectSelector):
    """Waits for connections only; a delay is over as soon as no connection has data."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(timeout and 0)
        if timeout and not ready:
            self._loop.now_s += timeout
        return ready


def test_half_of_the_delay_is_applied_in_each_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = VirtualLoop()
    monkeypatch.setattr(asyncio, "new_event_loop", lambda: loop)
    arrived_ms: list[float] = []

    class Noting(_Answering):
        def do_GET(self) -> None:
            arrived_ms.append(loop.now_s * 1e3)
            # In one piece: the loop's clock may advance between two.
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes")

    with served(Noting) as proxy:
        proxy.delay(DELAY_MS)
        proxy.logged()
        assert _asked(proxy) == b"yes"
        (request,) = proxy.logged()
    assert arrived_ms[0] - request.begun_ms == pytest.approx(DELAY_MS / 2, abs=1)
    assert request.ended_ms - arrived_ms[0] == pytest.approx(DELAY_MS / 2, abs=1)


def test_delayed_request_is_logged_once_with_its_duration(proxy: TcpProxy) -> None:
    proxy.delay(DELAY_MS)
    assert proxy.logged() == []
    _asked(proxy)
    (request,) = proxy.logged()
    assert (request.verb, request.path) == ("GET", "/")
    assert request.duration_ms >= DELAY_MS
    assert proxy.logged() == []


def test_delay_does_not_add_up_over_the_pieces_of_an_answer(proxy: TcpProxy) -> None:
    """The line has a long delay, but is not slow: pieces of an answer do not wait for others."""
    proxy.delay(DELAY_MS)
    begun = time.monotonic()
    assert len(_asked(proxy, "/large")) == PIECES * CHUNK_BYTES
    assert (time.monotonic() - begun) * 1e3 < PIECES * DELAY_MS / 4
