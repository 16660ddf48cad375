"""What a consumer tells a producer of its group, and offsets as the group's journal takes them.

Values only, but for looking up a topic's incarnation id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from txlog.clients.connection import Connection
from txlog.errors import InvalidRecord
from txlog.groups.offsets import deleted_meanwhile
from txlog.groups.offsets_state import UNCHECKED, PendingOffset
from txlog.log.topic_log import TopicLog
from txlog.model import OffsetAndMetadata, TopicPartition, validate_group_id


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """Kafka's group metadata: the group, and where this consumer knows it to stand."""

    group_id: str
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    """Positions that the group has committed, as far as the consumer knows; a transaction that
    commits offsets of this group brings it up to date."""
    topic_ids: dict[TopicPartition, str] = field(default_factory=dict)
    """The topic, by its id, that this consumer reads there (rule R11)."""
    replaced: dict[TopicPartition, str] = field(default_factory=dict)
    """Where the group stood in an earlier topic of that name: that topic's id."""


def pending_offsets(
    connection: Connection,
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
    group: ConsumerGroupMetadata | str,
) -> tuple[PendingOffset, ...]:
    """Offsets with their topics' ids and starts.

    Raises InvalidName, UnknownTopic, UnknownPartition, OffsetOutOfRange, and CommitFailed if the
    consumer has read a topic that was deleted since, and there is another one of its name.
    """
    known = ConsumerGroupMetadata(group) if isinstance(group, str) else group
    validate_group_id(known.group_id)
    names = dict.fromkeys(where[0] for where in offsets)
    # Surely of now: a group is never led back to a topic that was deleted (rule R11).
    logs = {name: connection.cluster.present_topic(name, certain=True) for name in names}
    pending = []
    for where, wanted in offsets.items():
        topic, partition = where
        log = logs[topic]
        if known.topic_ids.get(TopicPartition(*where), log.topic_id) != log.topic_id:
            raise deleted_meanwhile(topic)
        log.check_partition(partition)
        position = wanted if isinstance(wanted, OffsetAndMetadata) else OffsetAndMetadata(wanted)
        if isinstance(position.offset, bool) or not isinstance(position.offset, int):
            raise InvalidRecord(f"the offset of {where} must be a whole number.")
        _check_end(log, partition, position.offset)
        pending.append(
            PendingOffset(
                topic,
                log.topic_id,
                partition,
                known.committed.get(TopicPartition(*where), UNCHECKED),
                position.offset,
                position.metadata,
                known.replaced.get(TopicPartition(*where), ""),
            )
        )
    return tuple(pending)


def _check_end(log: TopicLog, partition: int, offset: int) -> None:
    """A position may lie below the log start: what lies before it was read, and deleted since."""
    if not 0 <= offset <= log.state.end_offset(partition):
        log.require_offset(partition, offset)
