"""Which gateway leads a consumer group: the one whose address is in a position of the group's own.

The position is in a topic that cannot exist. A gateway takes a group by moving it, compare-and-set,
to a new term. Each commit of the group's offsets repeats the position in its entry, and is refused
once another gateway has moved it (I6): so two gateways that both believe that they lead cost time
only. The leader repeats it while the group has members; another one takes the group when it has not
seen the position change for LEASE_MS. No clocks are compared.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial

from kafka.errors import CoordinatorNotAvailableError, NotCoordinatorError

from txlog.checksum import crc32_of
from txlog.engine.connection import Connection
from txlog.errors import CommitFailed, TxlogError
from txlog.groups.state import CommittedOffset, OffsetsCommitted, PendingOffset
from txlog.model import TopicPartition

log = logging.getLogger(__name__)

LEADER = TopicPartition("__group_leader", 0)
"""Where a group has the position: users' topics have other names."""
LEASE_MS = 10_000.0
"""A leader that is not heard of for so long is replaced, if a client asks for one."""
RENEW_S = 3.0
"""Between two repeats of the position."""
_ATTEMPTS_MAX = 3
"""Gateways that try to take a group at the same moment: after so many the client asks again."""
_WATCHED_MAX = 10_000
"""Groups of other gateways whose positions are watched, 200 bytes each; then all begin anew."""


class GroupLeases:
    """The groups that this gateway leads. Safe to use from threads."""

    def __init__(self, connection: Connection, own_address: Callable[[], str]) -> None:
        self._connection = connection
        self._own_address = own_address
        self._terms: dict[str, int] = {}
        self._seen: dict[str, tuple[CommittedOffset, float]] = {}
        """The position of another gateway's group, and when it was first seen there."""
        self._fresh: set[str] = set()
        """Groups whose position a commit has repeated since the last `renew`."""
        self._lock = threading.Lock()

    def leads(self, group: str) -> bool:
        """Whether this gateway leads the group, as far as it knows."""
        return group in self._terms

    def find(self, group: str) -> tuple[str, int | None]:
        """The leader's address; and the new term, if this call has taken the group: the caller
        forgets its members of earlier terms, and then calls `hold`. Raises TxlogError."""
        own = self._own_address()
        for _ in range(_ATTEMPTS_MAX):
            at = self._connection.offsets.group(group).committed.get(LEADER)
            if at is not None and at.metadata not in ("", own) and not self._is_silent(group, at):
                return at.metadata, None
            # 47 bits, and never 0, which stands for no position.
            term = (int(self._connection.runtime.entropy.token(), 16) >> 81) + 1
            try:
                self._store(group, 0 if at is None else at.offset, term, own)
            except CommitFailed:
                continue  # Another gateway was first.
            return own, term
        raise CoordinatorNotAvailableError(f"several gateways try to lead group {group!r}")

    def hold(self, group: str, term: int) -> None:
        """Lead the group from now on."""
        self._terms[group] = term

    def _is_silent(self, group: str, at: CommittedOffset) -> bool:
        now_ms = self._connection.runtime.clock.monotonic_ms()
        with self._lock:
            known = self._seen.get(group)
            if known is None or known[0] != at:
                if len(self._seen) >= _WATCHED_MAX:
                    self._seen.clear()
                self._seen[group] = (at, now_ms)
                return False
        return now_ms - known[1] > LEASE_MS

    def _store(self, group: str, start: int, term: int, address: str) -> None:
        self._connection.offsets.commit(group, (_position(start, term, address),))

    def condition(self, group: str) -> OffsetsCommitted:
        """A command for the entry of a commit: it is refused if another gateway leads the group.
        Raises NotCoordinatorError."""
        term = self._terms.get(group)
        if term is None:
            raise NotCoordinatorError(f"another gateway leads group {group!r}")
        position = _position(term, term, self._own_address())
        return OffsetsCommitted(group, (position,), self._connection.runtime.clock.wall_ms())

    def commit(self, group: str, offsets: tuple[PendingOffset, ...]) -> None:
        """Commit the offsets, all or none, while this gateway leads the group. Raises
        NotCoordinatorError, UnstableOffsetCommit, UsageError if they do not fit in an entry."""
        (position,) = self.condition(group).offsets
        try:
            self._connection.offsets.commit(group, (position, *offsets), whole=True)
        except CommitFailed as error:  # The other starts are not compared.
            raise self.lost(group) from error
        self._fresh.add(group)

    def lost(self, group: str) -> NotCoordinatorError:
        """The condition was refused."""
        self._terms.pop(group, None)
        return NotCoordinatorError(f"another gateway has taken group {group!r}")

    def renew(self, groups: Iterable[str]) -> None:
        """Repeat the position of each group, of which some may be lost."""
        fresh, self._fresh = self._fresh, set()
        calls = [partial(self._renew, group) for group in set(groups) - fresh]
        self._connection.runtime.fan_out.run_all(calls)

    def _renew(self, group: str) -> None:
        term = self._terms.get(group)
        try:
            if term is not None:
                self._store(group, term, term, self._own_address())
        except CommitFailed:
            self.lost(group)
        except TxlogError as error:
            log.warning("group %s: %s", group, error)

    def release(self) -> None:
        """Another gateway may take the groups at once."""
        while self._terms:
            group, term = self._terms.popitem()
            try:
                self._store(group, term, term, "")
            except TxlogError as error:
                log.info("group %s: %s", group, error)


def node_id_of(address: str) -> int:
    """The broker's number of a gateway: clients keep connections by it."""
    return crc32_of(address.encode()) >> 2


def _position(start: int, term: int, address: str) -> PendingOffset:
    return PendingOffset(LEADER.topic, "", LEADER.partition, start, term, address)
