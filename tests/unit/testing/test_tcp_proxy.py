"""The proxy of the system test's network faults: each fault, and its end."""

import http.client
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from txlog.testing.system_test.network_faults import NetworkFaults
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
    with HTTPServer(("127.0.0.1", 0), _Answering) as server:
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


@pytest.mark.slow
def test_proxy_works_normally_after_injected_faults(proxy: TcpProxy) -> None:
    faults = NetworkFaults(proxy, "1")
    with faults.injected():
        while faults.counts.total() < 2:
            time.sleep(0.01)
    assert _asked(proxy) == b"yes"


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
