"""The group metadata that a consumer passes to a producer, and offsets as the journal stores them.

Values only, except that topics are looked up for their incarnation ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from txlog.client.positions.position_arguments import (
    checked_mapping,
    checked_partition,
    checked_position,
)
from txlog.engine.connection import Connection
from txlog.errors import InvalidName
from txlog.groups.offsets import deleted_meanwhile
from txlog.groups.state import UNCHECKED, PendingOffset
from txlog.model import OffsetAndMetadata, TopicPartition, validate_group_id
from txlog.topic.topic_log import TopicLog


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """Kafka's group metadata: the group, and its offsets as this consumer last saw them."""

    group_id: str
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    """The group's committed offsets as this consumer last saw them; a transaction that commits
    offsets of this group updates them."""
    topic_ids: dict[TopicPartition, str] = field(default_factory=dict)
    """The id of the topic that this consumer reads there (rule R11)."""
    replaced: dict[TopicPartition, str] = field(default_factory=dict)
    """The id of an earlier topic of that name in which the group has its offset."""


class TopicChecks(Protocol):
    """Checks the topics that a transaction reads, before it is decided."""

    def check_input(self, topic: TopicLog) -> None:
        """Begin a check; the commit raises CommitFailed if the topic is deleted by then."""


def pending_offsets(
    connection: Connection,
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
    group: ConsumerGroupMetadata | str,
    checks: TopicChecks | None = None,
) -> tuple[PendingOffset, ...]:
    """The offsets with their topics' ids and the group's last known offsets. With `checks`, topics
    are checked in the background, for a caller that commits the offsets later.

    Raises InvalidName, UnknownTopic, UnknownPartition, OffsetOutOfRange, InvalidRecord (an offset
    that is not a whole number, metadata that is not text or too long), and CommitFailed if the
    consumer has read a topic that was deleted, and a new one has its name.
    """
    known = ConsumerGroupMetadata(group) if isinstance(group, str) else group
    if not isinstance(known, ConsumerGroupMetadata):
        raise InvalidName(
            f"{group!r:.80} is not a consumer group; give consumer.group_metadata(), or the id of "
            "the group."
        )
    validate_group_id(known.group_id)
    given = {checked_partition(w): at for w, at in checked_mapping(offsets, "23").items()}
    names = dict.fromkeys(where.topic for where in given)
    # A linearizable read, as a group never returns to a deleted topic (rule R11).
    logs = {name: _topic(connection, name, checks) for name in names}
    pending = []
    for where, wanted in given.items():
        log = logs[where.topic]
        if known.topic_ids.get(where, log.topic_id) != log.topic_id:
            raise deleted_meanwhile(where.topic)
        log.check_partition(where.partition)
        position = checked_position(where, wanted)
        _check_end(log, where.partition, position.offset)
        pending.append(
            PendingOffset(
                where.topic,
                log.topic_id,
                where.partition,
                known.committed.get(where, UNCHECKED),
                position.offset,
                position.metadata,
                known.replaced.get(where, ""),
            )
        )
    return tuple(pending)


def _topic(connection: Connection, name: str, checks: TopicChecks | None) -> TopicLog:
    if checks is None:
        return connection.cluster.present_topic(name, linearizable=True)
    # The state in memory is enough: the caller awaits the check before the decision (R11).
    topic = connection.cluster.known_topic(name)
    checks.check_input(topic)
    return topic


def _check_end(log: TopicLog, partition: int, offset: int) -> None:
    """An offset below the log start is valid: the records before it were read, then deleted."""
    # Beyond the end that this process has seen, `require_offset` reads the tip before it refuses.
    if not 0 <= offset <= log.state.end_offset(partition):
        log.require_offset(partition, offset)
