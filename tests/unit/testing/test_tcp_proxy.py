"""The proxy that the system test's weather works on: what it does to a line, and undoes."""

import http.client
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from txlog.testing.system_test.weather import Weather
from txlog.testing.tcp_proxy import TcpProxy

DELAY_MS = 150.0


class _Answering(BaseHTTPRequestHandler):
    """Says yes to everything."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"yes")

    def log_message(self, *_: object) -> None:
        """Nothing is written to stderr."""


@pytest.fixture
def proxy() -> Iterator[TcpProxy]:
    with HTTPServer(("127.0.0.1", 0), _Answering) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with TcpProxy(f"http://127.0.0.1:{server.server_port}") as proxy:
            yield proxy
        server.shutdown()
        thread.join()


def _asked(proxy: TcpProxy) -> bytes:
    connection = http.client.HTTPConnection(proxy.endpoint_url.removeprefix("http://"), timeout=10)
    try:
        connection.request("GET", "/")
        return connection.getresponse().read()
    finally:
        connection.close()


def test_answers_come_later_by_the_delay_until_it_recovers(proxy: TcpProxy) -> None:
    proxy.delay(DELAY_MS)
    begun = time.monotonic()
    assert _asked(proxy) == b"yes"
    assert (time.monotonic() - begun) * 1e3 >= DELAY_MS
    proxy.recover()
    assert _asked(proxy) == b"yes"


def test_an_answer_is_lost_though_the_server_has_given_it(proxy: TcpProxy) -> None:
    proxy.lose_answers("GET")
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        _asked(proxy)
    assert proxy.lost["GET"] == proxy.requests["GET"] == 1
    assert _asked(proxy) == b"yes"


@pytest.mark.slow
def test_the_line_is_as_good_as_new_when_the_weather_is_over(proxy: TcpProxy) -> None:
    weather = Weather(proxy, "1")
    with weather.blowing():
        while weather.spells.total() < 2:
            time.sleep(0.01)
    assert _asked(proxy) == b"yes"
