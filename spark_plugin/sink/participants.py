"""A batch by its tasks' messages: its identity, and its participants, topics with their segments.

Before a decision that names them, each topic is read again (R40). The decision is one journal
entry, a conditional PUT of at most a megabyte, and so is each topic's marker. If the segments are
too many to be named there, the records are first appended to the topics' logs, a part an entry, as
those of any producer's open transaction. Readers see none of them before the decision (I3, I5),
and the decision names partitions only. This costs a BEGIN, and one entry for every few thousand
stored batches. It must not know what is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from spark_plugin.sink.staging import TaskMessage
from txlog.coordinator.coordinator import Coordinator
from txlog.coordinator.events import Participant, ReplayMark
from txlog.engine.append import appender
from txlog.engine.append.appender import Appender
from txlog.engine.connection import Connection
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import CheckpointConflict, UnknownTopic
from txlog.groups.state import OFFSETS_BYTES_MAX, GroupState, PendingOffset, event_bytes
from txlog.topic.rules import check_segment

Pends: TypeAlias = Mapping[str, tuple[PendingOffset, ...]]
"""Group -> the offsets that its pend sets aside."""

STORED_BATCH_BYTES = 250
"""About the size of a stored batch's name in an entry; 4,000 of them fill it."""

RANGE_BYTES = 60
"""The largest size of a range in a mark, without the names of its group and topic."""


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """Spark's ids of a query, of its run, and of a batch."""

    query_id: str
    run_id: str
    batch_id: int


def batch_identity(messages: Sequence[TaskMessage], batch_id: int) -> BatchIdentity:
    """The identity that all tasks agree on. Raises CheckpointConflict if they differ (rule R1)."""
    first = messages[0]
    for message in messages:
        if (message.query_id, message.run_id, message.plan) != (
            first.query_id,
            first.run_id,
            first.plan,
        ) or message.batch_id != batch_id:
            raise CheckpointConflict(
                f"the tasks of batch {batch_id} ran for different plans (batch {message.batch_id} "
                f"of run {message.run_id}, batch {first.batch_id} of run {first.run_id}): another "
                "run of this query uses the checkpoint. Stop one of the two.",
                batch_id=batch_id,
            )
    return BatchIdentity(first.query_id, first.run_id, batch_id)


def participants(messages: Sequence[TaskMessage]) -> tuple[Participant, ...]:
    """One participant a topic, with the segments of every task."""
    found: dict[str, Participant] = {}
    for message in messages:
        for staged in message.staged:
            # By id: if a topic is created again between two tasks, R40 refuses the deleted one.
            known = found.get(staged.topic_id)
            segments = (known.segments if known else ()) + staged.segments
            found[staged.topic_id] = Participant(staged.topic_id, staged.topic, (), segments)
    return tuple(found.values())


def read_for_commit(
    connection: Connection,
    coordinator: Coordinator,
    groups: Sequence[str],
    messages: Sequence[TaskMessage],
    staged: Sequence[Participant],
) -> dict[str, GroupState]:
    """Catch up the coordinator, require the topics, and read the groups, all at once.

    The answers are of different times and may disagree: the pend and PREPARE check again what
    follows from them. Raises UnknownTopic (R40), InvalidRecord, InternalError, and the store's
    errors.
    """
    cluster = connection.cluster
    for message in messages:
        # Skipped if another log has been put at this root since the tasks ran.
        if message.log is not None and message.log.file == cluster.file:
            for topic in message.log.topics:
                cluster.learn_topic(topic.opened)
    calls: list[Callable[[], Any]] = [coordinator.catch_up]
    calls += [partial(_require_topic, connection, participant) for participant in staged]
    offsets = connection.offsets
    elsewhere = [group for group in groups if offsets.partition_of(group) != coordinator.partition]
    first = len(calls)
    calls += [partial(offsets.group, group) for group in elsewhere]
    found = dict(zip(elsewhere, cluster.fan_out.run_all(calls)[first:], strict=True))
    # The coordinator's own catch-up has read the groups in its journal.
    return {group: found[group] if group in found else offsets.seen(group) for group in groups}


def require_topics(connection: Connection, staged: Sequence[Participant]) -> None:
    """Raises UnknownTopic if a topic was deleted since rows were staged for it (R40),
    InvalidRecord."""
    calls = [partial(_require_topic, connection, participant) for participant in staged]
    connection.cluster.fan_out.run_all(calls)


def _require_topic(connection: Connection, participant: Participant) -> None:
    """Require that the topic exists, with the partitions and the schema of the staged records, so
    that its marker cannot be refused for one of these."""
    topic = connection.cluster.topic_of_id(participant.topic, participant.topic_id)
    state = topic.catch_up(linearizable=True)
    if state.closed:
        raise UnknownTopic(
            f"topic {participant.topic!r} was deleted since rows were staged for it; nothing of "
            "this batch was committed. Write it again, or restart the query: its rows then go into "
            "the present topic of that name, or into a new one if createTopics is true.",
            topic=participant.topic,
            topic_id=participant.topic_id,
        )
    for segment in participant.segments:
        check_segment(state, segment)


def is_large(staged: Sequence[Participant], mark: ReplayMark | None = None) -> bool:
    """Whether these segments are too many for one entry, beside the batch's mark."""
    ranges = mark.ranges if mark is not None else ()
    mark_bytes = sum(len(r.group.encode()) + len(r.topic) + RANGE_BYTES for r in ranges)
    return _weight(staged) + mark_bytes // STORED_BATCH_BYTES > appender.ENTRY_BATCHES_MAX


def fit_one_entry(pends: Pends, staged: Sequence[Participant]) -> bool:
    """Whether the entry of the decision has room for the pends, too. The batch's mark in it names
    their partitions a second time."""
    positions = sum(event_bytes(pend) for pend in pends.values())
    return 2 * positions + STORED_BATCH_BYTES * _weight(staged) <= OFFSETS_BYTES_MAX


def append_first(
    connection: Connection, session: TransactionSession, staged: Sequence[Participant]
) -> None:
    """Append these records to the topics' logs, in an open transaction.

    `session` has just registered, so sequences begin at 0. A crash leaves a transaction that the
    next run aborts, or any process after its timeout. Raises SegmentExpired, ProducerFenced,
    TransactionAborted, and the store's errors.
    """
    cluster = connection.cluster
    process = cluster.process
    registration = session.registration
    batches = Appender(connection.runtime, process)
    batches.use_producer(registration.pid, registration.epoch)
    topics = [(cluster.topic_of_id(part.topic, part.topic_id), part) for part in staged]
    for topic, part in topics:
        partitions = {b.partition for segment in part.segments for b in segment.batches}
        # The appends may take longer than the ten seconds of a staged transaction (0011).
        session.declare(topic, partitions, process.transaction_timeout_ms)
    for topic, part in topics:
        batches.append_staged(topic, part.segments, session.tx_id)


def _weight(staged: Sequence[Participant]) -> int:
    """The space in an entry that naming all of this takes, in stored batches: the name of a topic,
    of up to 249 characters, takes as much as two."""
    return sum(2 + appender.entry_weight(part.segments) for part in staged)
