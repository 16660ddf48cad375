"""Where a consumer begins, and what its group has committed as far as the consumer knows.

It guards I6 on the client's side: a commit starts where this consumer last knew the group to be, so
that another one of the group that was faster is noticed. It must not know what is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from txlog.clients.auto_offset_reset import AutoOffsetReset
from txlog.clients.connection import Connection
from txlog.clients.consumer_group import ConsumerGroupMetadata, pending_offsets
from txlog.errors import NoOffsetForPartition
from txlog.model import IsolationLevel, OffsetAndMetadata, TopicPartition


class GroupPositions:
    """The group of one consumer; without a group it only says where to begin."""

    def __init__(self, connection: Connection, group_id: str, isolation: IsolationLevel) -> None:
        self._connection = connection
        self._group_id = group_id
        self._isolation = isolation
        self._committed: dict[TopicPartition, int] = {}
        self._uncommitted: set[TopicPartition] = set()
        """Partitions in which the group has no position yet: the first commit stores one."""

    def starts(
        self, partitions: list[TopicPartition], reset: AutoOffsetReset
    ) -> dict[TopicPartition, int]:
        """Committed positions, else what `reset` says; a group begins its first range there (I6).

        The topics are caught up. Raises NoOffsetForPartition.
        """
        if not partitions:
            return {}
        positions = self.fetch(partitions) if self._group_id else {}
        missing = [where for where in partitions if positions.get(where) is None]
        if missing and reset.kind == "none":
            raise NoOffsetForPartition(
                f"group {self._group_id!r} has no committed offset in {missing[0]} and "
                "auto.offset.reset is none; set it to earliest or latest."
            )
        starts = {}
        for where in partitions:
            known = positions.get(where)
            starts[where] = self._begin(where, reset) if known is None else known
        self._uncommitted.update(missing)
        self._committed |= starts
        return starts

    def _begin(self, where: TopicPartition, reset: AutoOffsetReset) -> int:
        topic = self._connection.cluster.topic(where.topic)
        now_ms = self._connection.runtime.clock.wall_ms()
        return reset.offset(topic, where.partition, self._isolation, now_ms)

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """What the group has committed. Raises UnknownTopic, UnstableOffsetCommit."""
        wanted = list(partitions)
        topic_ids = {
            where.topic: self._connection.cluster.topic(where.topic).topic_id for where in wanted
        }
        found = self._connection.offsets.fetch(self._group_id, wanted, topic_ids)
        return {where: None if at is None else at.offset for where, at in found.items()}

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], *, asked: bool
    ) -> None:
        """Commit these positions. Raises CommitFailed, UnknownTopic, OffsetOutOfRange.

        With `asked` all of them, else only those that are news. What was asked for may be a note
        at the same offset. A first position is news although nothing was read: with
        `auto.offset.reset=latest` the next start would pass over records.
        """
        pending = pending_offsets(self._connection, offsets, self.metadata())
        changed = tuple(
            offset
            for offset in pending
            if asked or offset.start != offset.end or offset.where in self._uncommitted
        )
        if changed:
            self._connection.offsets.commit(self._group_id, changed)
        self._committed |= {offset.where: offset.end for offset in changed}
        self._uncommitted -= {offset.where for offset in changed}

    def metadata(self) -> ConsumerGroupMetadata:
        """The group, and where it is known to stand; a transaction brings it up to date."""
        return ConsumerGroupMetadata(self._group_id, self._committed)
