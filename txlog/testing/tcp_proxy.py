"""A TCP proxy that breaks an HTTP client's connections on purpose, or delays them like a distant
server.

A test uses it to lose the answer to a request that the server has carried out: the fault that makes
a conditional write ambiguous (I13). It listens on the loopback interface only, and parses just
enough HTTP to find the start of a request. Benchmarks run it in a process of its own
(`proxy_process.py`).
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from urllib.parse import urlsplit

from txlog.testing.delayed_stream import DelayedStream
from txlog.testing.request_log import Request

CHUNK_BYTES = 1 << 16
"""The most bytes that are passed on in one piece."""

_REQUEST = re.compile(rb"(GET|PUT|POST|DELETE|HEAD) ([^ ]+) HTTP/1\.")


@dataclass(slots=True)
class HeldRequest:
    """A request that the proxy holds, or the answer to it; `TcpProxy.hold` makes it."""

    is_meant: Callable[[int, bytes], bool]
    is_answer: bool
    reached: Future[int] = field(default_factory=Future)
    """The port of the client's end of the connection, once the proxy has it."""
    answered: Future[bytes] = field(default_factory=Future)
    """The start of the answer, once it is where the client reads it, or the connection is closed:
    empty if the server has not answered."""
    said: bytes = b""
    """The start of the answer, as the proxy has it."""
    _goes_on: Future[bool] = field(default_factory=Future)

    def release(self) -> None:
        """Pass it on, even if the client has gone meanwhile."""
        self._goes_on.set_result(True)

    def drop(self) -> None:
        """Close the connection instead; nothing if it was released."""
        if not self._goes_on.done():
            self._goes_on.set_result(False)

    async def keep(self, port: int) -> None:
        """Wait for either."""
        self.reached.set_result(port)
        if not await asyncio.wrap_future(self._goes_on):
            raise ConnectionError("what was held is dropped")

    def end(self) -> None:
        """Give the test the answer's start, also if none has come."""
        if not self.answered.done():
            self.answered.set_result(self.said)


@dataclass(slots=True)
class _Exchange:
    """One client's connection: whether its next answer is to be lost, and its line in the log."""

    port: int
    lose_answer: bool = False
    request: Request | None = None
    sent: bytes = b""
    """What has come of the request, while the proxy looks for one to hold."""
    held: HeldRequest | None = None


class TcpProxy:
    """Passes connections on to `target_url`, with the faults that a test asks for; use it in a
    `with` block.

    Its methods may be called from any thread and act at once, also on open connections.
    """

    def __init__(
        self, target_url: str, rewrite: Callable[[bytes], bytes] = lambda sent: sent
    ) -> None:
        """`rewrite` is called with the client's data, piece by piece, and returns what to pass
        on."""
        self._rewrite = rewrite
        parts = urlsplit(target_url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tcp-proxy")
        self._writers: set[asyncio.StreamWriter] = set()
        self._to_lose: Counter[str] = Counter()
        self._refuse_after_loss = False
        self._refusing = False
        self._stalling = False
        self._delay_ms = 0.0
        self._port = 0
        self._log: list[Request] | None = None
        self._to_hold: list[HeldRequest] = []
        self._held: list[HeldRequest] = []
        self.requests: Counter[str] = Counter()
        """Requests passed on so far, by method."""
        self.lost: Counter[str] = Counter()
        """Answers lost so far, by method of the request."""

    @property
    def endpoint_url(self) -> str:
        """The URL at which clients reach the proxy."""
        return f"http://127.0.0.1:{self._port}"

    def lose_answers(self, method: str, count: int = 1, then_refuse: bool = False) -> None:
        """Pass on the next `count` requests of that method, but close the connections at their
        answers.

        With `then_refuse`, everything after the first of them is refused.
        """
        self._refuse_after_loss = then_refuse
        self._to_lose[method] = count

    def refuse(self) -> None:
        """Close every connection, and every new one."""
        self._refusing = True
        self._loop.call_soon_threadsafe(self._cut_all)

    def stall(self) -> None:
        """Pass on requests, and withhold their answers for ever."""
        self._stalling = True

    def hold(
        self, is_meant: Callable[[int, bytes], bool], *, is_answer: bool = False
    ) -> HeldRequest:
        """Hold the end of the next request that is meant, or its answer, until a test releases or
        drops it.

        `is_meant` is called in the proxy's thread, for each piece of a request: with the port of
        the client's end of the connection, and all that has come of the request.
        """
        held = HeldRequest(is_meant, is_answer)
        self._to_hold.append(held)
        return held

    def delay(self, round_trip_ms: float) -> None:
        """Pass everything on with this round-trip time, half of it in each direction."""
        self._delay_ms = round_trip_ms / 2

    def logged(self) -> list[Request]:
        """The requests that have begun since the last call; the first call starts the recording."""
        log, self._log = self._log or [], []
        return log

    def recover(self) -> None:
        """Pass everything on again, without delay."""
        self._delay_ms = 0.0
        self._refusing = self._stalling = self._refuse_after_loss = False
        self._to_lose.clear()

    def __enter__(self) -> TcpProxy:
        self._thread.start()
        self._port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _close(self) -> None:
        self._server.close()
        for held in self._held:
            held.drop()
        self._cut_all()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*tasks, return_exceptions=True)

    def _cut_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        up_reader, up_writer = await asyncio.open_connection(*self._target)
        both = {writer, up_writer}
        self._writers |= both
        exchange = _Exchange(writer.get_extra_info("peername")[1])
        try:
            await asyncio.gather(
                self._pass_requests(reader, up_writer, exchange),
                self._pass_answers(up_reader, writer, exchange),
            )
        except OSError:
            pass  # Closed connections are expected here.
        finally:
            if exchange.held is not None:
                exchange.held.end()
            for end in both:
                end.transport.abort()
            self._writers -= both

    async def _pass_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, exchange: _Exchange
    ) -> None:
        line = DelayedStream(writer)
        while data := await reader.read(CHUNK_BYTES):
            begun = _REQUEST.match(data)
            if begun:
                self._note(begun.group(1).decode(), begun.group(2).decode(), exchange)
            self._hold(data, exchange)
            held = exchange.held
            if held is not None and not held.is_answer and not held.reached.done():
                # A server may close a connection on which no request has begun.
                await line.send(self._rewrite(data[:-1]), self._delay_ms / 1e3)
                await held.keep(exchange.port)
                data = data[-1:]
            await line.send(self._rewrite(data), self._delay_ms / 1e3)
        if exchange.held is not None:
            await asyncio.wrap_future(exchange.held.answered)
        raise ConnectionError("the client has gone")

    def _hold(self, data: bytes, exchange: _Exchange) -> None:
        """Find out whether this piece makes the request one to hold."""
        if not self._to_hold:
            return
        exchange.sent += data
        for held in self._to_hold:
            if held.is_meant(exchange.port, exchange.sent):
                exchange.held = held
                self._to_hold.remove(held)
                self._held.append(held)
                return

    def _note(self, method: str, path: str, exchange: _Exchange) -> None:
        self.requests[method] += 1
        exchange.sent, exchange.held = b"", None
        exchange.lose_answer = self._to_lose[method] > 0
        if exchange.lose_answer:
            self._to_lose[method] -= 1
            self.lost[method] += 1
        if self._log is not None:
            now_ms = self._loop.time() * 1e3
            exchange.request = Request(method, path, now_ms, now_ms, exchange.port)
            self._log.append(exchange.request)

    async def _pass_answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, exchange: _Exchange
    ) -> None:
        line = DelayedStream(writer)
        while data := await reader.read(CHUNK_BYTES):
            if exchange.lose_answer and not data.startswith(b"HTTP/1.1 100"):
                self._refusing = self._refusing or self._refuse_after_loss
                if self._refusing:
                    self._cut_all()
                raise ConnectionError("the answer is lost")
            held = exchange.held
            if held is not None and not held.said:
                held.said = data
                if held.is_answer:
                    await held.keep(exchange.port)
            if not self._stalling:
                arrives_s = await line.send(data, self._delay_ms / 1e3)
                if exchange.request is not None:
                    exchange.request.ended_ms = arrives_s * 1e3
            if held is not None:
                await line.all_arrived()
                held.end()
        await line.all_arrived()
        raise ConnectionError("the server has gone")
