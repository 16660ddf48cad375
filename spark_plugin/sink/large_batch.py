"""Micro-batches whose segments are too many to be named in one journal entry.

A journal entry is one conditional PUT of at most a megabyte, and the decision and each topic's
marker would name every stored batch. So the records of a large micro-batch are put into the topics'
logs first, a part an entry, as those of any producer's open transaction. Readers see none of them
before the decision (I3, I5), and the decision names partitions only. It costs a BEGIN, and one
entry for every few thousand stored batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from txlog.coordinator.events import Participant
from txlog.engine.append import appender
from txlog.engine.append.appender import Appender
from txlog.engine.connection import Connection
from txlog.engine.transaction_session import TransactionSession
from txlog.groups.state import OFFSETS_BYTES_MAX, PendingOffset, event_bytes

Pends: TypeAlias = Mapping[str, tuple[PendingOffset, ...]]
"""Group -> what it sets aside."""

STORED_BATCH_BYTES = 250
"""What a stored batch takes in an entry, about: 4,000 of them fill it."""


def is_large(staged: Sequence[Participant]) -> bool:
    """Whether it is too much for one entry."""
    return sum(map(_batch_count, staged)) > appender.ENTRY_BATCHES_MAX


def fit_one_entry(pends: Pends, staged: Sequence[Participant]) -> bool:
    """Whether the entry of the decision may hold the pends, too: its mark names their partitions
    once more."""
    positions = sum(event_bytes(pend) for pend in pends.values())
    batches = sum(_batch_count(part) + 2 * len(part.segments) for part in staged)
    return 2 * positions + STORED_BATCH_BYTES * batches <= OFFSETS_BYTES_MAX


def append_first(
    connection: Connection, session: TransactionSession, staged: Sequence[Participant]
) -> None:
    """Begin a transaction with these records in the topics' logs.

    `session` has just registered: sequences begin at 0 with each epoch. A crash in between leaves
    a transaction that the next run, or its timeout, aborts. Raises SegmentExpired, ProducerFenced,
    TransactionAborted, and the store's errors.
    """
    cluster = connection.cluster
    process = cluster.process
    batches = Appender(connection.runtime, process)
    batches.use_producer(session.registration.pid, session.registration.epoch)
    topics = [(cluster.topic_of_id(part.topic, part.topic_id), part) for part in staged]
    for topic, part in topics:
        partitions = {b.partition for segment in part.segments for b in segment.batches}
        session.declare(topic, partitions, process.transaction_timeout_ms)
    for topic, part in topics:
        batches.append_staged(topic, part.segments, session.tx_id)


def _batch_count(part: Participant) -> int:
    return sum(len(segment.batches) for segment in part.segments)
