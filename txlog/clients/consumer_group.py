"""What a consumer tells a producer of its group, and offsets as the group's journal takes them.

Values only, but for looking up a topic's incarnation id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from txlog.clients.connection import Connection
from txlog.errors import InvalidRecord
from txlog.groups.offsets_state import UNCHECKED, PendingOffset
from txlog.model import OffsetAndMetadata, TopicPartition, validate_group_id


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """Kafka's group metadata: the group, and where this consumer knows it to stand."""

    group_id: str
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    """Positions that the group has committed, as far as the consumer knows; a transaction that
    commits offsets of this group brings it up to date."""


def pending_offsets(
    connection: Connection,
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
    group: ConsumerGroupMetadata | str,
) -> tuple[PendingOffset, ...]:
    """Offsets with their topics' ids and starts. Raises InvalidName, UnknownTopic."""
    validate_group_id(group if isinstance(group, str) else group.group_id)
    known: Mapping[TopicPartition, int] = {} if isinstance(group, str) else group.committed
    pending = []
    for where, wanted in offsets.items():
        topic, partition = where
        log = connection.cluster.present_topic(topic)
        log.check_partition(partition)
        position = wanted if isinstance(wanted, OffsetAndMetadata) else OffsetAndMetadata(wanted)
        if isinstance(position.offset, bool) or not isinstance(position.offset, int):
            raise InvalidRecord(f"the offset of {where} must be a whole number.")
        log.check_offset(log.state, partition, position.offset)
        start = known.get(TopicPartition(topic, partition), UNCHECKED)
        pending.append(
            PendingOffset(topic, log.topic_id, partition, start, position.offset, position.metadata)
        )
    return tuple(pending)
