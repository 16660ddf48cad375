"""HTTP servers that are not S3 services, or faulty ones, as found at a mistyped endpoint."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

PAGE = b"<!doctype html><html><body>Welcome to our web site.</body></html>"


class NonCompliantServer(ThreadingHTTPServer):
    """With `keeps_objects`, a bucket without conditions. Otherwise every answer is a page of a web
    site, with `status`; a `silent` server never answers."""

    def __init__(self, status: int, *, keeps_objects: bool, silent: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = status
        self.keeps_objects = keeps_objects
        self.silent = silent
        self.objects: dict[str, bytes] = {}
        self.asked = threading.Event()
        self.ended = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that close the connection."""


class _Handler(BaseHTTPRequestHandler):
    wbufsize = -1
    protocol_version = "HTTP/1.1"
    server: NonCompliantServer

    def _answer(self) -> None:
        self.server.asked.set()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.server.silent:
            self.server.ended.wait()
            return
        if self.server.keeps_objects:
            self._answer_of_a_bucket(body)
        else:
            self._send(self.server.status, PAGE)

    def _answer_of_a_bucket(self, body: bytes) -> None:
        place = urlsplit(self.path)
        key = unquote(place.path)
        objects = self.server.objects
        if self.command == "PUT":
            objects[key] = body
            self._send(200, b"")
        elif self.command == "DELETE":
            objects.pop(key, None)
            self._send(204, b"")
        elif "list-type" in parse_qs(place.query):
            self._send(
                200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
            )
        elif key in objects:
            self._send(200, objects[key])
        else:
            self._send(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("ETag", '"etag"')
        self.send_header("Last-Modified", "Tue, 24 Nov 2026 12:00:00 GMT")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def non_compliant_server(
    status: int = 200, *, keeps_objects: bool = False, silent: bool = False
) -> Iterator[NonCompliantServer]:
    """A server that runs until the block ends."""
    with NonCompliantServer(status, keeps_objects=keeps_objects, silent=silent) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.ended.set()
            server.shutdown()
            thread.join()
