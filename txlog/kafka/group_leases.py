"""Which gateway leads a consumer group: the one whose address is in a position of the group's own.

The position is in a topic that cannot exist. A gateway takes a group, when members join or offsets
are committed, by moving it, compare-and-set, to a new term, if the gateway that it names is not
heard of. Each commit of the group's offsets
repeats the position in its entry, and is refused once another gateway has moved it (I6): so two
gateways that both believe that they lead cost time only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

from kafka.errors import CoordinatorNotAvailableError, NotCoordinatorError

from txlog.engine.connection import Connection
from txlog.errors import CommitFailed
from txlog.groups.state import CommittedOffset, GroupState, OffsetsCommitted, PendingOffset
from txlog.kafka.gateways import Gateways
from txlog.model import TopicPartition

LEADER = TopicPartition("__group_leader", 0)
"""Where a group has the position: users' topics have other names."""
_ATTEMPTS_MAX = 3
"""Gateways that try to take a group at the same moment: after so many the client asks again."""


class GroupLeases:
    """The groups that this gateway leads. Safe to use from threads."""

    def __init__(self, connection: Connection, gateways: Gateways) -> None:
        self._connection = connection
        self._gateways = gateways
        self._terms: dict[str, int] = {}

    def leads(self, group: str) -> bool:
        """Whether this gateway leads the group, as far as it knows."""
        return group in self._terms

    def leader(self, group: str) -> str:
        """The address of the gateway that leads the group; this one's if none does. Nothing is
        written. Raises TxlogError."""
        return self._read(group, self._gateways.heard_of)[0]

    def _read(
        self, group: str, read_gateways: Callable[[], list[str]]
    ) -> tuple[str, CommittedOffset | None]:
        reads = (read_gateways, partial(self._connection.offsets.group, group))
        live, state = self._connection.cluster.request_fan_out.run_all(reads)
        at = cast(GroupState, state).committed.get(LEADER)
        is_led = at is not None and at.metadata in cast(list[str], live)
        return at.metadata if at is not None and is_led else self._gateways.own_address(), at

    def take(self, group: str) -> int | None:
        """Take the group, unless another gateway leads it; returns the new term. The caller forgets
        its members of earlier terms, and then calls `hold`. Raises TxlogError,
        CoordinatorNotAvailableError."""
        for _ in range(_ATTEMPTS_MAX):
            leader, at = self._read(group, self._gateways.live)
            if leader != self._gateways.own_address():
                return None
            # 47 bits, and never 0, which stands for no position.
            term = (int(self._connection.runtime.entropy.token(), 16) >> 81) + 1
            position = self._position(0 if at is None else at.offset, term)
            try:
                self._connection.offsets.commit(group, (position,))
            except CommitFailed:
                continue  # Another gateway was first.
            return term
        raise CoordinatorNotAvailableError(f"several gateways try to lead group {group!r}")

    def hold(self, group: str, term: int) -> None:
        """Lead the group from now on."""
        self._terms[group] = term

    def condition(self, group: str) -> OffsetsCommitted:
        """A command for the entry of a commit: it is refused if another gateway leads the group.
        Raises NotCoordinatorError."""
        term = self._terms.get(group)
        if term is None:
            raise NotCoordinatorError(f"another gateway leads group {group!r}")
        position = self._position(term, term)
        return OffsetsCommitted(group, (position,), self._connection.runtime.clock.wall_ms())

    def commit(self, group: str, offsets: tuple[PendingOffset, ...]) -> None:
        """Commit the offsets, all or none, while this gateway leads the group. Raises
        NotCoordinatorError, UnstableOffsetCommit, UsageError if they do not fit in an entry."""
        (position,) = self.condition(group).offsets
        try:
            self._connection.offsets.commit(group, (position, *offsets), whole=True)
        except CommitFailed as error:  # The other starts are not compared.
            raise self.lost(group) from error

    def lost(self, group: str) -> NotCoordinatorError:
        """The condition was refused."""
        self._terms.pop(group, None)
        return NotCoordinatorError(f"another gateway has taken group {group!r}")

    def lose_all(self) -> None:
        """Others may have taken this gateway for dead."""
        self._terms.clear()

    def _position(self, start: int, term: int) -> PendingOffset:
        address = self._gateways.own_address()
        return PendingOffset(LEADER.topic, "", LEADER.partition, start, term, address)
