"""Which gateways serve a log now, and which of them serves a client.

Every gateway names the same ones in Metadata: a client drops the connections to brokers that are
not named, with the requests that wait there (librdkafka 2.10 and newer). Each has a position of a
group of their own, which it moves while it has clients. Who has not seen a position move for
LEASE_MS takes that gateway for dead. No clocks are compared.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b

from txlog.checksum import crc32_of
from txlog.engine.connection import Connection
from txlog.errors import CommitFailed
from txlog.groups.state import CommittedOffset, PendingOffset
from txlog.model import TopicPartition

GATEWAYS = "__gateways"
"""The group; each gateway has a topic, and its kind and address as metadata. Users' topics have
other names."""
LEASE_MS = 10_000.0
"""A gateway that is not heard of for so long is taken for dead."""
RENEW_S = 3.0
"""Between two signs of a gateway."""


class Gateways:
    """The gateways of a log, as this one sees them. Safe to use from threads."""

    def __init__(
        self, connection: Connection, own_address: Callable[[], str], kind: str = "plain"
    ) -> None:
        """`kind` is a word for what clients have to know of a gateway besides its address."""
        self._connection = connection
        self.own_address = own_address
        self._kind = kind
        self._seen: dict[TopicPartition, tuple[CommittedOffset, float]] = {}
        """Each position, and when it was first seen there."""
        self._living: dict[TopicPartition, tuple[str, str]] = {}
        """Kind and address of each that lived when the positions were last read."""
        self._told_ms: float | None = None
        """When the last sign of this gateway was begun; None if it is not listed."""
        self._lock = threading.Lock()

    def live(self) -> list[str]:
        """The addresses of this gateway, which is listed from now on, and of those that are heard
        of. Raises TxlogError."""
        if self._told_ms is None:
            self.renew()
        return self.heard_of()

    def heard_of(self) -> list[str]:
        """The same, and nothing is written. Raises TxlogError."""
        self._read()
        return sorted({self.own_address(), *(address for _, address in self._living.values())})

    def peers(self) -> list[str]:
        """Those of this gateway's kind, as of the last reading, which is not older than the last
        sign: a client of one can be served by each."""
        living = self._living.values()
        alike = {address for kind, address in living if kind == self._kind}
        return sorted({self.own_address(), *alike})

    def _read(self) -> None:
        positions = self._connection.offsets.group(GATEWAYS).committed
        now_ms = self._now_ms()
        with self._lock:
            known = self._seen
            self._seen = {
                where: known[where] if where in known and known[where][0] == at else (at, now_ms)
                for where, at in positions.items()
            }
            self._living = {
                where: (at.metadata.partition(" ")[0], at.metadata.partition(" ")[2])
                for where, (at, since) in self._seen.items()
                if now_ms - since <= LEASE_MS
            }

    def renew(self) -> bool:
        """Give a sign. Returns whether the last one was so long ago that others may have taken this
        gateway for dead. Raises TxlogError."""
        begun_ms = self._now_ms()
        own = _position_of(self.own_address())
        self._read()
        at = self._seen.get(own)
        offset = 0 if at is None else at[0].offset
        what = f"{self._kind} {self.own_address()}"
        move = PendingOffset(own.topic, "", 0, offset, offset + 1, what)
        with suppress(CommitFailed):  # Another process with this address gave one.
            self._connection.offsets.commit(GATEWAYS, (move,))
        last_ms, self._told_ms = self._told_ms, begun_ms
        return last_ms is not None and self._now_ms() - last_ms > LEASE_MS

    def release(self) -> None:
        """Be listed no longer, and forget the dead. Raises TxlogError."""
        if self._told_ms is None:
            return
        self._told_ms = None
        self._read()
        own = _position_of(self.own_address())
        gone = {own, *(where for where in self._seen if where not in self._living)}
        self._connection.offsets.delete_offsets(GATEWAYS, tuple(gone))

    def _now_ms(self) -> float:
        return self._connection.runtime.clock.monotonic_ms()


def home_of(client: str, addresses: list[str]) -> str:
    """The address of the gateway that leads all partitions, and the transactions, of a client: the
    same one whichever gateway is asked, so that a transaction stays where its records are."""
    return max(addresses, key=lambda address: blake2b(f"{address} {client}".encode()).digest())


def _position_of(address: str) -> TopicPartition:
    return TopicPartition(f"__gateway-{node_id_of(address)}", 0)


def node_id_of(address: str) -> int:
    """The broker's number of a gateway: clients keep connections by it."""
    return crc32_of(address.encode()) >> 2
