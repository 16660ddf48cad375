"""A consumer group as an administrator sees it: its positions, and how far behind it is.

It includes partitions in which the group has no position, so that their records do not pass for
read. It must not decide anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from txlog.client.admin.lag import unread
from txlog.engine.connection import Connection
from txlog.groups.state import CommittedOffset, GroupState
from txlog.model import TopicPartition, TxId
from txlog.topic.topic_log import TopicLog


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A group's position in one partition of a topic that it reads."""

    where: TopicPartition
    current_offset: int | None
    """None if the group has committed nothing in this partition of the topic."""
    log_end_offset: int
    """The last stable offset: up to it the group can read."""
    lag: int | None
    """Records that the group can read and has not read; None if it has no position and there are
    some: the log does not know where the group's consumer begins, or began."""
    metadata: str = ""
    committed_ms: int = 0
    """When the position was committed."""
    undecided: int = 0
    """Records above the last stable offset: they wait for open transactions."""
    lag_ms: int | None = 0
    """Age of the oldest record that the group can read and has not read; 0 if there is none, None
    if the lag is unknown."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A consumer group as of now."""

    group_id: str
    owner: str
    """Transactional id that owns it, if any."""
    last_commit: TxId | None
    pending: tuple[TxId, ...]
    partitions: tuple[GroupPartition, ...]

    @property
    def lag(self) -> int | None:
        """Records, over all partitions; None if that of one is unknown."""
        is_known = all(partition.lag is not None for partition in self.partitions)
        return self.known_lag if is_known else None

    @property
    def known_lag(self) -> int:
        """Records over the partitions whose lag is known: the least lag of the group."""
        return sum(partition.lag or 0 for partition in self.partitions)

    @property
    def lag_ms(self) -> int | None:
        """Age of the oldest unread record of all partitions; None if the lag is unknown."""
        if self.lag is None:
            return None
        return max((partition.lag_ms or 0 for partition in self.partitions), default=0)


def described_group(
    connection: Connection, group_id: str, group: GroupState, owner: str
) -> GroupDescription:
    """Every current partition of the topics in which the group has a position."""
    names = sorted({where.topic for where in group.committed})
    find, answers = connection.cluster.find_topic, connection.cluster.answers
    now_ms = connection.runtime.clock.wall_ms()
    asked = [
        partial(_described, topic, partition, positions.get(partition), now_ms)
        for topic in answers([partial(find, name) for name in names])
        if topic is not None and (positions := _positions_in(topic, group))
        for partition in range(len(topic.state.partitions))
    ]
    return GroupDescription(
        group_id, owner, group.last_commit, tuple(group.pending), tuple(answers(asked))
    )


def _positions_in(topic: TopicLog, group: GroupState) -> Mapping[int, CommittedOffset]:
    """The group's positions in this incarnation of the topic."""
    return {
        where.partition: committed
        for where, committed in group.committed.items()
        if where.topic == topic.name and committed.topic_id == topic.topic_id
    }


def _described(
    topic: TopicLog, partition: int, committed: CommittedOffset | None, now_ms: int
) -> GroupPartition:
    state, where = topic.state, TopicPartition(topic.name, partition)
    end = state.last_stable_offset(partition)
    undecided = state.end_offset(partition) - end
    if committed is None:
        lag, _ = unread(topic, partition, state.partitions[partition].log_start, end)
        unknown = None if lag else 0
        return GroupPartition(where, None, end, unknown, undecided=undecided, lag_ms=unknown)
    lag, oldest_ms = unread(topic, partition, committed.offset, end)
    return GroupPartition(
        where,
        committed.offset,
        end,
        lag,
        committed.metadata,
        committed.committed_ms,
        undecided,
        0 if oldest_ms is None else max(now_ms - oldest_ms, 0),
    )
