"""An S3 service with scripted answers, to test how a client treats a status or its absence."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

Answer = tuple[int, str]

OK = (200, "")


class ScriptedServer(ThreadingHTTPServer):
    """Answers requests with the statuses and S3 error codes set for each method.

    A 200 with a text in place of a code comes from something before the service: it has that body,
    no ETag, and no effect. The last answer of a method is repeated. PUT bodies that were answered
    with 200 are kept. A listing has the names of `listed`, two a page. The server serves its
    current bucket only, since a client of an earlier test may still repeat its requests.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._scheme = "https" if tls else "http"
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Prepare for the next test: no answers, no objects, and another bucket."""
        self.begin_anew_in(f"bucket-{uuid4().hex}")

    def begin_anew_in(self, bucket: str) -> None:
        """Prepare for the next test with that bucket."""
        self.bucket = bucket
        self.script: dict[str, list[Answer]] = {}
        self.requests: list[str] = []
        self.keys: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.body = b""
        self.listed: list[str] = []

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that hang up because they do not trust the test's certificate."""

    def next_answer(self, method: str) -> Answer:
        answers = self.script.get(method, [OK])
        return answers[min(self.requests.count(method), len(answers)) - 1]


class _Handler(BaseHTTPRequestHandler):
    wbufsize = -1  # Headers and body leave together.
    protocol_version = "HTTP/1.1"
    server: ScriptedServer

    def _answer(self) -> None:
        url = urlsplit(self.path)
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        if bucket != self.server.bucket:
            self.send_error(404)
            return
        self.server.requests.append(self.command)
        self.server.keys.append(key)
        self.server.headers.append({name.title(): value for name, value in self.headers.items()})
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, code = self.server.next_answer(self.command)
        is_foreign = status == 200 and bool(code)
        if self.command == "PUT" and status == 200 and not is_foreign:
            self.server.body = sent
        body = self.server.body if self.command == "GET" and status < 300 else b""
        if "list-type=2" in url.query and status == 200:
            body = _page(self.server.listed, parse_qs(url.query)).encode()
        if status >= 300 and code:
            body = f"<Error><Code>{code}</Code><Message>secret story</Message></Error>".encode()
        if is_foreign:
            body = code.encode()
        first, last = _range(self.headers.get("Range", ""), len(body))
        if self.command == "GET" and status == 200 and "Range" in self.headers:
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(body)}")
            body = body[first : last + 1]
        else:
            self.send_response(status)
        if not is_foreign:
            self.send_header("ETag", '"as-any"')
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

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def _page(names: list[str], query: dict[str, list[str]]) -> str:
    """The next two names after the start, or after the token: the last name of the page before."""
    after = query.get("continuation-token", query.get("start-after", [""]))[0]
    left = sorted(name for name in names if name > after)
    objects = "".join(
        f"<Contents><Key>{name}</Key><Size>1</Size><ETag>x</ETag>"
        "<LastModified>2026-11-24T12:00:00.000Z</LastModified></Contents>"
        for name in left[:2]
    )
    more = f"<NextContinuationToken>{left[1]}</NextContinuationToken>" if left[2:] else ""
    truncated = str(bool(left[2:])).lower()
    return (
        f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{more}"
        f"<KeyCount>{len(left[:2])}</KeyCount>{objects}</ListBucketResult>"
    )


def _range(asked: str, size: int) -> tuple[int, int]:
    first, _, last = asked.removeprefix("bytes=").partition("-")
    return int(first or 0), min(int(last or size), size - 1)


@contextmanager
def scripted_server(tls: ssl.SSLContext | None = None) -> Iterator[ScriptedServer]:
    """A server that runs until the block ends."""
    with ScriptedServer(tls) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
