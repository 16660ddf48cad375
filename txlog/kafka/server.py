"""The server of `txlog kafka`: connections, frames, and which request goes where.

A connection's requests are answered in their order, one after the other, as a broker does. It must
not know what a request means: `requests.py` has one function for each.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

from kafka.protocol.metadata import ApiVersionsResponse

from txlog.client.admin import Admin
from txlog.errors import UsageError
from txlog.kafka.group_leases import RENEW_S, GroupLeases, node_id_of
from txlog.kafka.groups import Groups
from txlog.kafka.producers import Producers
from txlog.kafka.requests import API_VERSIONS, REQUESTS
from txlog.metrics.listening import is_loopback, parsed_listen

log = logging.getLogger(__name__)

T = TypeVar("T")

FRAME_BYTES_MAX = 100 << 20
"""Kafka's socket.request.max.bytes."""
CONNECTIONS_MAX = 2_000
"""Each takes a file descriptor, and up to a frame of memory."""
IDLE_S = 600.0
"""Kafka's connections.max.idle.ms."""
THREADS_MAX = 64
"""Requests to the log under way; others wait their turn."""
_UNSUPPORTED_VERSION = 35
_HEAD = struct.Struct(">hhi")


class Refused(Exception):
    """The connection is closed, as a broker closes it."""


class KafkaServer:
    """One gateway. What it keeps is of clients that are connected; the log has everything else."""

    def __init__(
        self, admin: Admin, listen: str, advertised: str = "", *, creates_topics: bool = True
    ) -> None:
        """`advertised`: the address that clients are told. Raises UsageError."""
        self.admin = admin
        self.connection = admin.connection
        self.creates_topics = creates_topics
        host, port = parsed_listen(listen)
        if not is_loopback(host):
            raise UsageError(
                f"{host} is not this machine alone, and who reaches it could read and "
                "write; listen on 127.0.0.1."
            )
        self._listen = (host, port)
        self.advertised = parsed_listen(advertised) if advertised else self._listen
        self.pool = ThreadPoolExecutor(THREADS_MAX, "kafka")
        self.producers = Producers(self.connection)
        self.leases = GroupLeases(self.connection, lambda: self.url)
        self.groups = Groups(self.connection.runtime.entropy.token, self.leases.leads)
        self._finding: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By group: one call at a time takes it."""
        self.appended = asyncio.Condition()
        """Notified when this gateway has written records."""
        self._clients: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where clients find it."""
        return "{}:{}".format(*self.advertised)

    async def run(self, on_ready: Callable[[str], None] = lambda _: None) -> None:
        """Serve until it is cancelled. Raises UsageError if the port is taken."""
        host, port = self._listen
        try:
            server = await asyncio.start_server(self._serve, host, port)
        except OSError as error:
            raise UsageError(
                f"cannot listen on {host}:{port} ({error.strerror}); is another server there? "
                "Give another port."
            ) from error
        if not self.advertised[1]:
            self.advertised = (self.advertised[0], server.sockets[0].getsockname()[1])
        on_ready(self.url)
        renewal = asyncio.create_task(self._keep_groups())
        try:
            await server.serve_forever()
        finally:
            server.close()
            renewal.cancel()
            await self.call(self.leases.release)
            # A request that is under way in the log is not known to its client: it asks again.
            for task in self._clients:
                task.cancel()
            await asyncio.gather(*self._clients, return_exceptions=True)
            self.pool.shutdown(cancel_futures=True)

    @property
    def node_id(self) -> int:
        """This gateway's number among brokers."""
        return node_id_of(self.url)

    async def leader_of(self, group: str) -> str:
        """The address of the gateway that leads the group; this one takes a group without a leader.
        Raises TxlogError, BrokerResponseError."""
        async with self._finding.setdefault(group, asyncio.Lock()):
            if self.leases.leads(group):
                return self.url
            address, term = await self.call(self.leases.find, group)
            if term is not None:
                self.groups.drop(group)
                self.leases.hold(group, term)
            return address

    async def _keep_groups(self) -> None:
        """Stay the leader of groups with members, and forget the members of others."""
        while True:
            await asyncio.sleep(RENEW_S)
            names = [group.group_id for group in self.groups.groups()]
            await self.call(self.leases.renew, names)
            for name in names:
                if not self.leases.leads(name):
                    self.groups.drop(name)

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call the log in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, partial(function, *args))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._clients.add(task)
        try:
            if len(self._clients) > CONNECTIONS_MAX:
                raise Refused(f"{CONNECTIONS_MAX} connections are open")
            while True:
                frame = await asyncio.wait_for(_frame(reader), IDLE_S)
                answer = await self._answer(frame)
                if answer is not None:
                    writer.write(answer)
                    await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError, TimeoutError):
            pass  # The client has gone, or is silent, or the server ends.
        except (Refused, ssl.SSLError) as error:
            log.warning("closed the connection from %s: %s", peer, error)
        except Exception:
            log.exception("closed the connection from %s", peer)
        finally:
            self._clients.discard(task)
            writer.close()

    async def _answer(self, frame: bytes) -> bytes | None:
        key, version, correlation_id = _HEAD.unpack_from(frame)
        known = REQUESTS.get(key)
        if known is None:
            raise Refused(f"request {key} is not known")
        kind, versions, handler = known
        if not versions[0] <= version <= versions[1]:
            if key == kind.API_KEY == 18:  # The client then asks with a version that it is told.
                refusal = ApiVersionsResponse(
                    error_code=_UNSUPPORTED_VERSION, api_keys=API_VERSIONS
                )
                return _encoded(refusal, 0, correlation_id)
            raise Refused(f"{kind.__name__} in version {version} is not known")
        try:
            request = kind.decode(frame, version=version, header=True)
        except Exception as error:
            raise Refused(f"a {kind.__name__} that cannot be decoded: {error!r:.200}") from error
        response = await handler(self, request)
        return None if response is None else _encoded(response, version, correlation_id)


def _encoded(response: Any, version: int, correlation_id: int) -> bytes:
    response.API_VERSION = version  # First: with a header, only a request may change it.
    response.with_header(correlation_id)
    return bytes(response.encode(header=True, framed=True))


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    if not _HEAD.size <= size <= FRAME_BYTES_MAX:
        raise Refused(f"a frame of {size} bytes; this is no Kafka client")
    return await reader.readexactly(size)
