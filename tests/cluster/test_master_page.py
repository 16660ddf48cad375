"""What the test's cluster makes of the answers of a master that starts."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.cluster.cluster import HOST, Cluster

FIRST_PAGE, HALF, WHOLE = b"<!DOCTYPE html><html></html>", b'{"workers": [', b'{"workers": []}'


@pytest.fixture
def answers() -> Iterator[tuple[Cluster, list[tuple[bytes, int]]]]:
    """A cluster whose master gives these answers of that length, one after the other."""
    left: list[tuple[bytes, int]] = []

    class Master(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body, length = left.pop(0)
            self.send_response(200)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer((HOST, 0), Master) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield Cluster(Path(), {}, ui_port=server.server_port), left
        server.shutdown()
        thread.join()


def test_master_that_cannot_answer_yet_has_no_state(
    answers: tuple[Cluster, list[tuple[bytes, int]]],
) -> None:
    cluster, left = answers
    left += [(body, len(body)) for body in (FIRST_PAGE, HALF)] + [(HALF, len(WHOLE))]
    left += [(WHOLE, len(WHOLE))]
    assert [cluster.state() for _ in range(4)] == [None, None, None, {"workers": []}]
    left.append((FIRST_PAGE, len(FIRST_PAGE)))
    assert cluster.alive() == []
