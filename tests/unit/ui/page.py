"""The page's real server over a log, and requests to it."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.processes.command_line import PROCESS_TIMEOUT_S
from txlog import Admin
from txlog.client.admin.watched_log import WatchedLog
from txlog.ui.server import PageServer


@dataclass(frozen=True)
class Reply:
    """What the server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def json(self) -> Any:
        """The document in the body."""
        return json.loads(self.body)


@dataclass(frozen=True)
class OpenPage:
    """A server that runs in a thread of this process."""

    url: str

    @property
    def token(self) -> str:
        return self.url.partition("token=")[2]

    def get(self, path: str, method: str = "GET", **headers: str) -> Reply:
        """Ask without a token, unless the headers have one."""
        connection = self.connection()
        connection.request(
            method, path, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )
        answer = connection.getresponse()
        reply = Reply(answer.status, dict(answer.getheaders()), answer.read())
        connection.close()
        return reply

    def api(self, view: str, **params: object) -> Reply:
        """Ask for a view, as `txlog top` does."""
        return self.get(f"/api/{view}?{urlencode(params)}", Authorization=f"Bearer {self.token}")

    def connection(self) -> http.client.HTTPConnection:
        address = urlsplit(self.url)
        return http.client.HTTPConnection(
            address.hostname or "", address.port, timeout=PROCESS_TIMEOUT_S
        )

    @contextmanager
    def events(self, view: str, **params: object) -> Iterator[Iterator[tuple[str, Any]]]:
        """The live stream of a view: (event, document)."""
        connection = self.connection()
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "text/event-stream"}
        connection.request("GET", f"/api/{view}?{urlencode(params)}", headers=headers)
        answer = connection.getresponse()
        assert answer.headers["content-type"].startswith("text/event-stream")

        def found() -> Iterator[tuple[str, Any]]:
            name = ""
            while line := answer.readline().decode():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ").strip()
                elif line.startswith("data: "):
                    yield name, json.loads(line.removeprefix("data: "))

        try:
            yield found()
        finally:
            answer.close()
            connection.close()


@contextmanager
def page_of(log: Admin | str) -> Iterator[OpenPage]:
    """The page of a log, while the block runs."""
    watched = WatchedLog(lambda: Admin(log) if isinstance(log, str) else log)
    server = PageServer(watched, "127.0.0.1:0")
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield OpenPage(server.url)
    finally:
        server.stop()
        thread.join()
