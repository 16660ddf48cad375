"""The server of `txlog kafka`: connections, frames, and which request goes where.

A connection's requests are answered in their order, as a broker does. It must not know what a
request means: `apis.py` has the function for each.
"""

from __future__ import annotations

import asyncio
import logging
import math
import resource
import ssl
import struct
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast
from weakref import WeakValueDictionary

from kafka.protocol.metadata import ApiVersionsResponse
from kafka.protocol.producer import ProduceRequest

from txlog.client.admin import Admin
from txlog.errors import UsageError
from txlog.kafka.apis import (
    API_VERSIONS,
    API_VERSIONS_KEY,
    OPEN_TO_ALL,
    PRODUCE_KEY,
    REQUESTS,
)
from txlog.kafka.error_codes import tried
from txlog.kafka.gateways import RENEW_S, Gateways, home_of, node_id_of
from txlog.kafka.group_leases import GroupLeases
from txlog.kafka.groups import Groups
from txlog.kafka.producers import Producers
from txlog.kafka.requests import produced_to
from txlog.kafka.security import CLIENT, Client, Users
from txlog.metrics.listening import is_loopback, parsed_listen
from txlog.model import TopicPartition

log = logging.getLogger(__name__)

T = TypeVar("T")

FRAME_BYTES_MAX = 100 << 20
"""Kafka's socket.request.max.bytes; only Produce needs more than the next."""
PLAIN_FRAME_BYTES_MAX = 2 << 20
"""Of requests without records, which grow a hundredfold when they are decoded: some 50,000
partitions."""
UNTRUSTED_FRAME_BYTES_MAX = 64 << 10
"""Of a client that has not proved who it is."""
ROOM_BYTES = 256 << 20
"""Memory of all large frames; more wait their turn."""
_LARGE_FRAME_BYTES = 12 << 10
"""A frame above this size is large: smaller ones, six of each connection, take 140 MB together."""
CONNECTIONS_MAX = 2_000
"""Each takes a file descriptor, and up to a frame of memory."""
BACKLOG = 1_024
"""Connections that wait to be accepted; the system lets a client wait a second if there are more,
as when a gateway is started again."""
_OTHER_FILES = 128
"""Files and connections of the log itself."""
IDLE_S = 600.0
"""Kafka's connections.max.idle.ms; also the longest time to read an answer."""
FRAME_S, HANDSHAKE_S = 60.0, 10.0
"""The longest times in which a frame arrives that has begun, and a handshake of TLS ends."""
THREADS_MAX = 32
"""Requests to the log under way, a third of a megabyte each; others wait their turn."""
PRODUCES_MAX = 5
"""Produce requests of a connection under way at once: as many as a client with idempotence sends
before it waits for the first one."""
_UNSUPPORTED_VERSION = 35
_HEAD = struct.Struct(">hhi")
_TLS_HANDSHAKE = b"\x16\x03"
"""How a client of TLS begins."""
_EVERY_ADDRESS = ("0.0.0.0", "::")


Call: TypeAlias = Callable[[], Coroutine[Any, Any, bytes | None]]
"""Serves a request; returns the answer, if it has one."""


class Refused(Exception):
    """The connection is closed, as a broker closes it."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a gateway listens, and who may connect. Raises UsageError."""

    listen: str
    advertise: str | None = None
    """The address that clients are told, if it is another one."""
    tls: ssl.SSLContext | None = None
    users: Users | None = None

    def __post_init__(self) -> None:
        host, _ = parsed_listen(self.listen)
        parsed_listen(self.advertise or self.listen)
        if not is_loopback(host) and (self.tls is None or self.users is None):
            raise UsageError(
                f"{host} is not this machine alone, and who reaches it could read and write; give "
                "a certificate (--tls-cert, --tls-key) and users (--users), or listen on 127.0.0.1."
            )
        if host in _EVERY_ADDRESS and not self.advertise:
            raise UsageError(
                f"no client can connect to {host}; give --advertise HOST:PORT, where they find it."
            )


class KafkaServer:
    """One gateway. What it keeps is of clients that are connected; the log has everything else."""

    def __init__(
        self,
        admin: Admin,
        endpoint: Endpoint,
        *,
        creates_topics: bool = True,
        arrow_values: bool = False,
    ) -> None:
        self.admin = admin
        self.connection = admin.connection
        self.creates_topics = creates_topics
        self.arrow_values = arrow_values
        self.users = endpoint.users
        self._tls = endpoint.tls
        self._listen = parsed_listen(endpoint.listen)
        self.advertised = parsed_listen(endpoint.advertise or endpoint.listen)
        self.pool = ThreadPoolExecutor(THREADS_MAX, "kafka")
        self.producers = Producers(self.connection, self.wake_readers)
        kind = "-".join(
            name
            for name, has in (
                ("tls", endpoint.tls is not None),
                ("users", endpoint.users is not None),
                ("arrow" if arrow_values else "json", True),
            )
            if has
        )
        self.gateways = Gateways(self.connection, lambda: self.url, kind)
        self.leases = GroupLeases(self.connection, self.gateways)
        self.groups = Groups(self.connection.runtime.entropy.token, self.leases.leads)
        self._taking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By group: one call at a time takes it."""
        self.appended = asyncio.Event()
        """Set, and replaced, when this gateway has written records, if a fetch is under way."""
        self.fetches = 0
        """Fetches under way. One is counted before it looks for records."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._room = Room(ROOM_BYTES)
        self._clients: set[asyncio.Task[None]] = set()
        self._connections_max = CONNECTIONS_MAX
        self._was_full = False

    @property
    def url(self) -> str:
        """Where clients find it."""
        return "{}:{}".format(*self.advertised)

    def wake_readers(self) -> None:
        """Let fetches that wait look again. May be called by any thread."""

        def wake() -> None:
            self.appended.set()
            self.appended = asyncio.Event()

        if self._loop is not None and self.fetches:
            self._loop.call_soon_threadsafe(wake)

    async def run(self, on_ready: Callable[[str], None] = lambda _: None) -> None:
        """Serve until it is cancelled. Raises UsageError if the port is taken."""
        self._loop = asyncio.get_running_loop()
        host, port = self._listen
        try:
            server = await asyncio.start_server(self._serve, host, port, backlog=BACKLOG)
        except OSError as error:
            raise UsageError(
                f"cannot listen on {host}:{port} ({error.strerror}); is another server there? "
                "Give another port."
            ) from error
        self._connections_max = min(CONNECTIONS_MAX, _files_max() - _OTHER_FILES)
        if not self.advertised[1]:
            self.advertised = (self.advertised[0], server.sockets[0].getsockname()[1])
        on_ready(self.url)
        renewal = asyncio.create_task(self._keep_listed())
        try:
            await server.serve_forever()
        finally:
            server.close()
            renewal.cancel()
            await self.call(tried, self.gateways.release)
            # A request that is under way in the log is not known to its client: it asks again.
            for task in self._clients:
                task.cancel()
            await asyncio.gather(*self._clients, return_exceptions=True)
            self.pool.shutdown(cancel_futures=True)
            self._loop = None
            self.producers.close()

    @property
    def node_id(self) -> int:
        """This gateway's number among brokers."""
        return node_id_of(self.url)

    async def leader_of(self, group: str) -> str:
        """The address of the gateway that leads the group, or of this one, which may take it.
        Nothing is written. Raises TxlogError."""
        return self.url if self.leases.leads(group) else await self.call(self.leases.leader, group)

    async def lead(self, group: str) -> None:
        """Lead the group, unless another gateway does. Raises TxlogError, BrokerResponseError."""
        async with self._taking.setdefault(group, asyncio.Lock()):
            if not self.leases.leads(group):
                term = await self.call(self.leases.take, group)
                if term is not None:
                    self.groups.drop(group)
                    self.leases.hold(group, term)

    async def cluster(self, client_id: str | None) -> tuple[list[tuple[int, str, int]], int]:
        """Number, host and port of each gateway, and the number of the one that serves the client.
        As of the last reading if they cannot be read now: Metadata is answered nevertheless."""
        await self.call(tried, self.gateways.live)
        addresses = [(node_id_of(one), *parsed_listen(one)) for one in self.gateways.peers()]
        return addresses, node_id_of(self._home(client_id))

    def serves(self, client_id: str | None) -> bool:
        """Whether this is the gateway that serves the client, as far as was read lately."""
        return self._home(client_id) == self.url

    def lists(self, name: str) -> bool:
        """Whether this gateway, of those that clients ask for all, lists that one thing."""
        return home_of(name, self.gateways.peers()) == self.url

    def _home(self, client_id: str | None) -> str:
        return home_of(f"{client_id} {CLIENT.get().host}", self.gateways.peers())

    async def _keep_listed(self) -> None:
        """Be named to clients of other gateways while this one has clients; and finish what a
        gateway that was killed has left."""
        said = left = None
        peers = set(self.gateways.peers())
        while True:
            await asyncio.sleep(RENEW_S)
            act = self.gateways.renew if self._clients else self.gateways.release
            _, message, may_be_replaced = await self.call(tried, act)
            if message is not None and message != said:
                log.warning("other gateways may take this one for dead: %s", message)
            said = message
            peers, before = set(self.gateways.peers()), peers
            if before - peers or self.producers.must_finish:
                _, unfinished, _ = await self.call(tried, self.producers.finish_decided)
                if unfinished is not None and unfinished != left:
                    log.warning("committed, but not visible yet: %s", unfinished)
                left = unfinished
            if may_be_replaced or not self._clients:
                self.leases.lose_all()
            for group in self.groups.groups():
                if not self.leases.leads(group.group_id):
                    self.groups.drop(group.group_id)

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call the log in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, partial(function, *args))

    async def commit(self, group: str, function: Callable[..., T], *args: Any) -> T:
        """The same for a commit of a group's offsets, which has just been checked."""
        commit = self.pool.submit(function, *args)
        self.groups.note_commit(group, commit)
        return await asyncio.wrap_future(commit)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername") or ("", 0)  # It may be gone already.
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._clients.add(task)

        in_flight = InFlight(writer.write, reader.set_exception)
        share, stream = self._room.share(), PatientStream(reader, writer)
        try:
            if self._is_full(peer):
                return
            if self._tls is not None:  # Before anything is awaited, which would read its bytes.
                await writer.start_tls(self._tls, ssl_handshake_timeout=HANDSHAKE_S)
            client = Client(f"/{peer[0]}", is_trusted=self.users is None, is_gone=reader.at_eof)
            CLIENT.set(client)
            while not client.failure:
                frame = await in_flight.received(self._next_frame(stream, client, share))
                await self._answer(frame, client, in_flight, share)
            raise Refused(client.failure)
        except (asyncio.CancelledError, ConnectionError, TimeoutError):
            pass  # The client has gone, or is silent, or the server ends.
        except asyncio.IncompleteReadError as error:
            if error.partial:
                log.warning("closed the connection from %s: it ended within a request", peer)
        except (Refused, ssl.SSLError) as error:
            log.warning("closed the connection from %s: %s", peer, error)
        except Exception:
            log.exception("closed the connection from %s", peer)
        finally:
            self._clients.discard(task)
            stream.close()
            writer.close()
            await in_flight.close()
            share.give_all()

    def _is_full(self, peer: object) -> bool:
        """Whether this connection is one too many. The first of them is logged, and the next after
        there was room."""
        was_full, self._was_full = self._was_full, len(self._clients) > self._connections_max
        if self._was_full and not was_full:
            log.warning(
                "closed the connection from %s, and will close others: %d are open, the most that "
                "this gateway takes", peer, self._connections_max,
            )  # fmt: skip
        return self._was_full

    async def _next_frame(self, stream: PatientStream, client: Client, share: Share) -> bytes:
        head = await stream.read(4, IDLE_S)
        (size,) = struct.unpack(">i", head)
        if head.startswith(_TLS_HANDSHAKE):
            raise Refused("it speaks TLS, and this gateway has no --tls-cert")
        limit = FRAME_BYTES_MAX if client.is_trusted else UNTRUSTED_FRAME_BYTES_MAX
        if not _HEAD.size <= size <= limit:
            raise Refused(f"a frame of {size} bytes; this is no Kafka client")
        await share.take(size)
        try:
            if size <= PLAIN_FRAME_BYTES_MAX:
                return await stream.read(size, FRAME_S)
            frame = await stream.read(_HEAD.size, FRAME_S)
            if _HEAD.unpack(frame)[0] != PRODUCE_KEY:
                raise Refused(f"a frame of {size} bytes without records")
            return frame + await stream.read(size - _HEAD.size, FRAME_S)
        except TimeoutError:
            raise Refused(f"a request did not arrive within {FRAME_S:.0f} s") from None
        except asyncio.IncompleteReadError:
            raise Refused("it ended within a request") from None

    async def _answer(
        self, frame: bytes, client: Client, in_flight: InFlight, share: Share
    ) -> None:
        """Serve a request. Raises Refused."""
        key, version, correlation_id = _HEAD.unpack_from(frame)
        known = REQUESTS.get(key)
        if known is None:
            raise Refused(f"request {key} is not known")
        if not client.is_trusted and key not in OPEN_TO_ALL:
            raise Refused("it has not said who it is; configure SASL in the client")
        kind, versions, handler = known
        is_known = versions[0] <= version <= versions[1]
        if not (is_known or key == API_VERSIONS_KEY):
            raise Refused(f"{kind.__name__} in version {version} is not known")
        request = await self._decoded(kind, frame, version) if is_known else None

        async def serve() -> bytes | None:
            try:
                if request is None:  # The client then asks with a version that it is told.
                    refusal = ApiVersionsResponse(
                        error_code=_UNSUPPORTED_VERSION, api_keys=API_VERSIONS
                    )
                    return _encoded(refusal, 0, correlation_id)
                response = await handler(self, request)
                return None if response is None else _encoded(response, version, correlation_id)
            finally:
                share.give(len(frame))

        places = produced_to(request) if key == PRODUCE_KEY else set()
        await in_flight.serve(places, serve)

    async def _decoded(self, kind: Any, frame: bytes, version: int) -> Any:
        try:
            decode = partial(kind.decode, frame, version=version, header=True)
            # Of many small items decoding takes seconds, in which others are answered.
            is_long = len(frame) > _LARGE_FRAME_BYTES and kind is not ProduceRequest
            request = await self.call(decode) if is_long else decode()
        except Exception as error:
            raise Refused(f"a {kind.__name__} that cannot be decoded") from error
        if misses_a_value(kind.fields, request, version):
            raise Refused(f"a {kind.__name__} that lacks a value")
        return request


def misses_a_value(fields: Mapping[str, Any], data: Any, version: int) -> bool:
    """Whether a null is where Kafka's schema of the request allows none; its decoder lets it pass.
    The schemas are some three levels deep."""
    for name, field in fields.items():
        if not field.for_version_q(version):
            continue
        value = getattr(data, name)
        if value is None:
            if field.tag is None and not field.nullable_for_version_q(version):
                return True
        elif field.is_struct_array() and any(
            misses_a_value(field.fields, item, version) for item in value
        ):
            return True
    return False


class PatientStream:
    """Reads from a client, and gives up one that is silent for too long, or does not read what it
    is sent. The moment moves with each read, and its timer once in FRAME_S, because a timer costs
    as much as a small request."""

    __slots__ = ("_ends_s", "_loop", "_reader", "_timer", "_writer")

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._loop = asyncio.get_running_loop()
        self._ends_s = math.inf
        self._look()

    async def read(self, size: int, patience_s: float) -> bytes:
        """So many bytes; before, the client has to read most of its answers. `patience_s` is
        FRAME_S at least. Raises TimeoutError, and what StreamReader raises."""
        self._ends_s = self._loop.time() + patience_s
        if self._writer.transport.get_write_buffer_size():
            await self._writer.drain()
        found = await self._reader.readexactly(size)
        self._ends_s = math.inf
        return found

    def _look(self) -> None:
        now_s = self._loop.time()
        if now_s < self._ends_s:
            self._timer = self._loop.call_at(min(self._ends_s, now_s + FRAME_S), self._look)
            return
        self._reader.set_exception(TimeoutError())
        if self._writer.transport.get_write_buffer_size():
            self._writer.transport.abort()

    def close(self) -> None:
        """The connection has ended."""
        self._timer.cancel()


class InFlight:
    """Requests of one connection that are under way at once, for the connection's own task.

    Clients send several Produce requests without waiting for answers. Those for different
    partitions overlap; those for one partition are stored one after the other, as each begins with
    the sequence that the one before ends with. Every other request waits for all before it, as at a
    broker, and answers keep the order of the requests.
    """

    __slots__ = ("_fail", "_running", "_send")

    def __init__(
        self, send: Callable[[bytes], object], fail: Callable[[Exception], object]
    ) -> None:
        """`send` sends an answer. `fail` is told the error of a request, and raises it where the
        next one is read."""
        self._send, self._fail = send, fail
        self._running: list[tuple[set[TopicPartition], asyncio.Task[bytes | None]]] = []

    async def received(self, read: Coroutine[Any, Any, T]) -> T:
        """The next request, which `read` reads. Before an error of `read` is raised, those under
        way are answered."""
        try:
            return await read
        except Exception:
            while self._running:
                await self._first_answered()
            raise

    async def serve(self, places: set[TopicPartition], call: Call) -> None:
        """Serve a request that produces to these partitions once those that it waits for are
        answered; if there are no partitions, answer this one."""
        while self._running and (
            not places
            or len(self._running) >= PRODUCES_MAX
            or any(places & others for others, _ in self._running)
        ):
            await self._first_answered()
        if places:
            task = asyncio.create_task(call())
            self._running.append((places, task))
            task.add_done_callback(self._answer)
        elif (answer := await call()) is not None:
            self._send(answer)

    async def _first_answered(self) -> None:
        first = self._running[0][1]
        await asyncio.wait({first})
        self._answer(first)
        first.result()

    def _answer(self, _: object) -> None:
        """Answer those that are done, in their order, up to one that has failed."""
        while self._running and (first := self._running[0][1]).done():
            if first.cancelled():
                return
            if (error := first.exception()) is not None:
                self._fail(cast("Exception", error))
                return
            del self._running[0]
            if (answer := first.result()) is not None:
                self._send(answer)

    async def close(self) -> None:
        """Wait for none of them any longer."""
        tasks = [task for _, task in self._running]
        self._running.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Room:
    """Memory that large frames take in turn."""

    def __init__(self, size: int) -> None:
        self.free = size
        self.changed = asyncio.Event()

    def share(self) -> Share:
        """What one connection takes of it; nothing yet."""
        return Share(self)


class Share:
    """What frames of one connection take of the room."""

    __slots__ = ("_held", "_room")

    def __init__(self, room: Room) -> None:
        self._room, self._held = room, 0

    async def take(self, size: int) -> None:
        """Hold a frame of so many bytes; if it is large, once they are free."""
        if size > _LARGE_FRAME_BYTES:
            while self._room.free < size:
                await self._room.changed.wait()
            self._room.free -= size
            self._held += size

    def give(self, size: int) -> None:
        """Release the bytes of a frame of that size."""
        if size > _LARGE_FRAME_BYTES:
            self._return(size)

    def give_all(self) -> None:
        """Release all that this connection holds."""
        if self._held:
            self._return(self._held)

    def _return(self, size: int) -> None:
        self._held -= size
        self._room.free += size
        self._room.changed.set()
        self._room.changed = asyncio.Event()


def _files_max() -> int:
    """How many files this process may have open: as many as the system allows it, up to what a
    full gateway needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_MAX + _OTHER_FILES
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


def _encoded(response: Any, version: int, correlation_id: int) -> bytes:
    response.API_VERSION = version  # First: with a header, only a request may change it.
    response.with_header(correlation_id)
    return bytes(response.encode(header=True, framed=True))
