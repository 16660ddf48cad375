"""A consumer's group: its metadata for a producer, its offsets as the journal stores them, and
where the consumer starts.

Keeps I6 in the client: a commit names the group's last known offset, so that it fails if another
consumer of the group has committed since. It must not know the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from txlog.client.positions.listed_offsets import AutoOffsetReset
from txlog.client.positions.position_arguments import (
    checked_mapping,
    checked_partition,
    checked_position,
)
from txlog.coordinator.rules import deleted_meanwhile
from txlog.engine.connection import Connection
from txlog.errors import (
    InvalidName,
    NoOffsetForPartition,
    OutcomeUnknown,
    RetriableError,
    TxlogError,
)
from txlog.groups.state import UNCHECKED, PendingOffset
from txlog.model import IsolationLevel, OffsetAndMetadata, TopicPartition, validate_group_id
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


def pending_offsets(
    connection: Connection,
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
    group: ConsumerGroupMetadata | str,
    *,
    are_pended: bool = False,
) -> tuple[PendingOffset, ...]:
    """The offsets with their topics' ids and the group's last known offsets. `are_pended`:
    the caller pends them, which checks that the topics are not deleted (R11).

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
    find = partial(_known_topic, connection, known.group_id)
    if not are_pended:
        # A linearizable read, as a group never returns to a deleted topic (rule R11).
        find = partial(connection.cluster.present_topic, linearizable=True)
    logs = {name: find(name) for name in names}
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


def _known_topic(connection: Connection, group: str, name: str) -> TopicLog:
    topic = connection.cluster.known_topic(name)
    is_deleted = connection.offsets.has_deleted(group, topic.topic_id)
    return connection.cluster.successor(name) if is_deleted else topic


def _check_end(log: TopicLog, partition: int, offset: int) -> None:
    """An offset below the log start is valid: the records before it were read, then deleted."""
    # Beyond the end that this process has seen, `require_offset` reads the tip before it refuses.
    if not 0 <= offset <= log.state.end_offset(partition):
        log.require_offset(partition, offset)


class GroupPositions:
    """The group of one consumer; without a group, only its starting positions."""

    def __init__(self, connection: Connection, group_id: str, isolation: IsolationLevel) -> None:
        self._connection = connection
        self._group_id = group_id
        self._isolation = isolation
        self._metadata = ConsumerGroupMetadata(group_id)
        self._uncommitted: set[TopicPartition] = set()
        """Partitions in which the group has no committed offset yet; the next commit stores one."""
        self._unanswered: dict[TopicPartition, set[int]] = {}
        """Offsets of commits whose outcome is unknown."""

    def starts(
        self,
        resets: Mapping[TopicPartition, AutoOffsetReset],
        sought: Mapping[TopicPartition, int],
    ) -> tuple[dict[TopicPartition, tuple[TopicLog, int]], NoOffsetForPartition | None]:
        """Where each partition starts: at the sought offset, at the group's committed offset, or
        according to its reset. The first range of a group without an offset begins there (I6).

        Each start comes with its topic, caught up (rule R11). The error is for partitions without a
        start; the others start all the same. Raises UnstableOffsetCommit, and if a topic was
        deleted meanwhile UnknownPartition, CommitFailed.
        """
        if not resets:
            return {}, None
        partitions = sorted(resets)
        topics = {name: self._topic(name) for name in dict.fromkeys(w.topic for w in partitions)}
        for where in partitions:
            topics[where.topic].check_partition(where.partition)
        positions, replaced = self._committed(partitions, topics)
        missing = [where for where in partitions if where not in positions]
        lost = [w for w in missing if w not in sought and resets[w].kind == "none"]
        missing = [where for where in missing if where not in lost]
        now_ms = self._connection.runtime.clock.wall_ms()
        for where in missing:
            if where in sought:
                positions[where] = sought[where]
                continue
            topic = topics[where.topic]
            positions[where] = resets[where].offset(topic, where.partition, self._isolation, now_ms)
        self._uncommitted.update(missing)
        self._metadata.committed.update(positions)
        self._metadata.topic_ids.update({w: topics[w.topic].topic_id for w in positions})
        self._metadata.replaced.update({w: replaced.get(w, "") for w in positions})
        # A sought offset moves the reader only: the first commit is still compared with the group's
        # committed offset (I6).
        begun = sorted(positions)
        starts = {w: (topics[w.topic], sought.get(w, positions[w])) for w in begun}
        return starts, self._no_offset(lost[0]) if lost else None

    def _committed(
        self, partitions: list[TopicPartition], topics: Mapping[str, TopicLog]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
        """The group's offsets, and the ids of earlier topics in which it has them."""
        positions: dict[TopicPartition, int] = {}
        replaced: dict[TopicPartition, str] = {}
        if self._group_id:
            for where, at in self._connection.offsets.resolve_and_fetch(
                self._group_id, partitions
            ).items():
                topic_id = topics[where.topic].topic_id
                replaced[where] = self._connection.offsets.replaced(where, topic_id, at)
                if at is not None and not replaced[where]:
                    positions[where] = at.offset
        return positions, replaced

    def _no_offset(self, where: TopicPartition) -> NoOffsetForPartition:
        return NoOffsetForPartition(
            f"group {self._group_id!r} has no committed offset in {where} and auto.offset.reset is "
            "none; seek() in it, or set auto.offset.reset to earliest or latest.",
            topic=where.topic,
            partition=where.partition,
        )

    def _topic(self, name: str) -> TopicLog:
        """The topic, caught up, even if it was created again since the caller read it."""
        topic = self._connection.cluster.topic(name)
        return topic if topic.state.partitions else self._connection.cluster.present_topic(name)

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The group's committed offsets; None also for an unknown topic or partition.

        Raises UnstableOffsetCommit.
        """
        wanted = list(partitions)
        names = sorted({where.topic for where in wanted})
        find, answers = self._connection.cluster.find_topic, self._connection.cluster.answers
        topics = answers([partial(find, name) for name in names])
        topic_ids = {topic.name: topic.topic_id for topic in topics if topic is not None}
        found = self._connection.offsets.resolve_and_fetch(self._group_id, wanted, topic_ids)
        return {where: None if at is None else at.offset for where, at in found.items()}

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], *, skip_unchanged: bool
    ) -> None:
        """Commit these offsets. Raises CommitFailed, UnknownTopic, OffsetOutOfRange.

        Without `skip_unchanged` even an unchanged offset is stored, as its metadata may be new. A
        group's first offset counts as changed although no record was read: otherwise, with
        `auto.offset.reset=latest`, the next start would skip records. After OutcomeUnknown or a
        retriable error the next commit finds out whether this one was stored (I13).
        """
        self._learn_outcomes()
        pending = pending_offsets(self._connection, offsets, self.metadata())
        changed = tuple(
            offset
            for offset in pending
            if not skip_unchanged or offset.start != offset.end or offset.where in self._uncommitted
        )
        self._store(changed)
        # The commit has read the journal: offsets that were deleted meanwhile are stored again.
        present = self._connection.offsets.seen(self._group_id).committed
        kept = set(changed)
        self._store(tuple(o for o in pending if o not in kept and o.where not in present))

    def _store(self, changed: tuple[PendingOffset, ...]) -> None:
        if not changed:
            return
        self._commit(changed)
        self._metadata.committed.update({offset.where: offset.end for offset in changed})
        self._uncommitted -= {offset.where for offset in changed}
        # Last: after Ctrl-C the next commit finds out from these what was stored (I13).
        for offset in changed:
            self._unanswered.pop(offset.where, None)

    def _commit(self, changed: tuple[PendingOffset, ...]) -> None:
        """Record the offsets as unanswered before sending: Ctrl-C may come at any moment (I13)."""
        # A set: of several commits without an answer, any one may be stored, even later.
        for offset in changed:
            self._unanswered.setdefault(offset.where, set()).add(offset.end)
        try:
            self._connection.offsets.commit(self._group_id, changed)
        except (OutcomeUnknown, RetriableError):
            raise
        except TxlogError:
            for offset in changed:
                self._unanswered[offset.where].discard(offset.end)
                if not self._unanswered[offset.where]:
                    del self._unanswered[offset.where]
            raise

    def _learn_outcomes(self) -> None:
        """If the group is where an unanswered commit would have moved it, that commit succeeded, or
        another instance has read the same records, which has the same effect."""
        if not self._unanswered:
            return
        committed = self._connection.offsets.group(self._group_id).committed
        for where, ends in self._unanswered.items():
            at = committed.get(where)
            is_ours = at is not None and at.topic_id == self._metadata.topic_ids.get(where)
            # It stays unanswered: another one of these requests may still be stored.
            if at is not None and is_ours and at.offset in ends:
                self._metadata.committed[where] = at.offset
                self._uncommitted.discard(where)

    def metadata(self) -> ConsumerGroupMetadata:
        """The group, and its known offsets; a transaction updates them."""
        return self._metadata
