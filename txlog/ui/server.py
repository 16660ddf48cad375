"""The server of `txlog ui`: who may ask, and each view as JSON, once or live.

Every request needs the token, which is in the first URL and then in a cookie, and a Host that no
other site can have made up. Answers allow nothing from elsewhere. There is no route that writes.
"""

from __future__ import annotations

import asyncio
import hmac
import importlib.util
import ipaddress
import logging
import socket
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from txlog.client.admin.watched_log import WatchedLog
from txlog.errors import RetriableError, StoreDenied, TxlogError, UsageError
from txlog.metrics.listening import is_loopback, parsed_listen
from txlog.redaction import redact
from txlog.ui.records import json_bytes
from txlog.ui.views import FAR_LIVE_MS, LIVE_MS, VIEWS

log = logging.getLogger(__name__)

KEPT_ANSWERS_MAX = 30
"""Answers that are kept until the next look, so that two pages cost the log as much as one."""
GOODBYE_S = 1
"""How long live streams may take to end at Ctrl-C; they never end by themselves."""

_STATIC = Path(__file__).parent / "static"
_HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "form-action 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
Scope = Any
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


class Answers:
    """The views of one log as JSON, for any number of threads and pages."""

    def __init__(self, log: WatchedLog) -> None:
        self._log = log
        self.live_ms = FAR_LIVE_MS if log.connection.cluster.is_far else LIVE_MS
        """Between two looks for one view."""
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[object, ...], _KeptAnswer] = OrderedDict()

    def of(self, path: str, params: Mapping[str, str]) -> tuple[int, bytes]:
        """Status and body of a view; an answer may be `live_ms` old."""
        key = (path, *sorted(params.items()))
        with self._lock:
            kept = self._kept.setdefault(key, _KeptAnswer())
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT_ANSWERS_MAX:
                self._kept.popitem(last=False)
        with kept.lock:  # Pages that want the same wait for one of them.
            clock = self._log.connection.runtime.clock
            now_ms = clock.monotonic_ms()
            if kept.at_ms is None or now_ms - kept.at_ms >= self.live_ms:
                kept.answer = self._answer(path, params)
                kept.at_ms = clock.monotonic_ms()
            return kept.answer

    def _answer(self, path: str, params: Mapping[str, str]) -> tuple[int, bytes]:
        try:
            return 200, json_bytes(self._log.ask(lambda admin: VIEWS[path](admin, params)))
        except TxlogError as error:
            document = {"code": error.code, "message": redact(error.message)}
            return _status(error), json_bytes({"error": document})


class _KeptAnswer:
    """One answer, and when it was made."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.at_ms: float | None = None
        self.answer: tuple[int, bytes] = (500, b"")


def _status(error: TxlogError) -> int:
    """The status of HTTP for an error, by how to react to it."""
    if isinstance(error, RetriableError | StoreDenied):
        return 503
    if isinstance(error, LookupError):
        return 404
    return 400 if isinstance(error, UsageError) else 500


class Guard:
    """Refuses requests without the token or for another host, and adds the headers."""

    def __init__(self, app: Any, token: str, host: str, port: int) -> None:
        self._app = app
        self._token = token
        self._host = host
        self.cookie = f"txlog-{port}"
        """Cookies are those of a host, not of a port: two pages at once need two names."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = QueryParams(scope["query_string"]).get("token", "")

        async def send_guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                found = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    found[name] = value
                if self._is_token(given) and scope["path"] == "/":
                    cookie = f"{self.cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict"
                    found.append("set-cookie", cookie)
            await send(message)

        answer = self._app
        if not self._is_own_host(headers.get("host", "")):
            text = "This host name is not the page's: open it by its address.\n"
            answer = PlainTextResponse(text, 421)
        elif scope["path"] != "/healthz" and not self._may_ask(scope["path"], headers, given):
            text = "The token is missing or wrong: open the URL that 'txlog ui' has printed.\n"
            answer = PlainTextResponse(text, 403)
        await answer(scope, receive, send_guarded)

    def _may_ask(self, path: str, headers: Headers, given: str) -> bool:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(bearer.strip()):
            return True
        return self._is_token(_cookie(headers, self.cookie)) or (
            path == "/" and self._is_token(given)
        )

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self._token.encode())

    def _is_own_host(self, host: str) -> bool:
        """A page elsewhere can let its own name lead here (DNS rebinding), but not an address."""
        name, _, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
        name = (name if name and port.isdigit() else host).removeprefix("[").removesuffix("]")
        if name.lower() in ("localhost", self._host.lower()):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _cookie(headers: Headers, name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value


def application(watched: WatchedLog, token: str, host: str, port: int) -> Guard:
    """The page and its API over one log, for anyone with the token."""
    answers = Answers(watched)

    def view(path: str) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            params = dict(request.query_params)
            if "text/event-stream" in request.headers.get("accept", ""):
                events = _events(answers, path, params)
                return StreamingResponse(events, media_type="text/event-stream")
            status, body = await run_in_threadpool(answers.of, path, params)
            return Response(body, status, media_type="application/json")

        return answer

    async def page(request: Request) -> Response:
        return FileResponse(_STATIC / "index.html")

    async def health(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    routes = [Route("/", page), Route("/healthz", health)]
    routes += [Route(path, view(path)) for path in VIEWS]
    if importlib.util.find_spec("prometheus_client") is not None:
        routes.append(Route("/metrics", _metrics(watched)))
    static = Mount("/static", StaticFiles(directory=_STATIC))
    return Guard(Starlette(routes=[*routes, static]), token, host, port)


async def _events(answers: Answers, path: str, params: Mapping[str, str]) -> AsyncIterator[bytes]:
    """The view as server-sent events, one now and one for each change; errors, too."""
    before: tuple[int, bytes] | None = None
    while True:
        found = await run_in_threadpool(answers.of, path, params)
        if found == before:
            yield b": as before\n\n"
        else:
            name = b"view" if found[0] == 200 else b"failure"
            yield b"event: " + name + b"\ndata: " + found[1] + b"\n\n"
        before = found
        await asyncio.sleep(answers.live_ms / 1000)


def _metrics(watched: WatchedLog) -> Callable[[Request], Awaitable[Response]]:
    """What `txlog exporter` serves."""
    from prometheus_client import CollectorRegistry, generate_latest

    from txlog.metrics.collector import LogCollector

    registry = CollectorRegistry()
    registry.register(LogCollector(watched))

    async def metrics(request: Request) -> Response:
        text = await run_in_threadpool(generate_latest, registry)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    return metrics


class PageServer:
    """The page at an address that it has already; serves once it is run."""

    def __init__(self, watched: WatchedLog, listen: str) -> None:
        """Raises UsageError if the address cannot be had."""
        host, port = parsed_listen(listen)
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self._socket = socket.create_server(address[:2], family=family)
        except OSError as error:
            raise UsageError(
                f"{listen} cannot be listened to: {error.strerror or error}. Choose another port, "
                "or an address of this machine."
            ) from error
        port = self._socket.getsockname()[1]
        token = watched.connection.runtime.entropy.token()
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{port}/?token={token}"
        """With the token: a secret."""
        config = uvicorn.Config(
            application(watched, token, host, port),
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GOODBYE_S,
        )
        self._server = uvicorn.Server(config)
        if not is_loopback(host):
            log.warning(
                "%s: other machines reach the page; its token and all records cross the network "
                "unencrypted.",
                listen,
            )

    def run(self) -> None:
        """Serve until Ctrl-C, or until `stop`."""
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """End `run`, from another thread."""
        self._server.should_exit = True
