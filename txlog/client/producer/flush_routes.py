"""The two ways of a flush: into its topic at once, or staged until its transaction is decided.

It guards the client's half of R9 for what goes into the log: declared before it is appended, and
appended again as it is. It must not know what waits, nor the states of a producer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa

from txlog.catalog.cluster import Cluster
from txlog.client.producer.staged_records import StagedRecords
from txlog.clock import begun, tried
from txlog.engine.append.accumulator import Partitions, TopicCheck
from txlog.engine.append.appender import Appender
from txlog.engine.append.delivery import Delivery
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import (
    OutcomeUnknown,
    StoreDenied,
    StoreUnavailable,
    TxlogError,
    UnknownTopic,
)
from txlog.topic.records.batch import Segment
from txlog.topic.topic_log import TopicLog


@dataclass(slots=True)
class Flush:
    """Records of one topic that leave together."""

    number: int
    log: TopicLog
    batch: pa.RecordBatch
    partitions: Partitions
    delivery: Delivery
    topic_check: TopicCheck | None = None
    """Of records that were checked against a topic as this process knew it."""
    upload: Callable[[], tuple[Segment, ...]] | None = None
    """Of staged records: answers their segments, once they are written."""


class FlushRoute(Protocol):
    """How records are written."""

    goes_on: bool
    """Whether the program may go on while a flush is on its way."""

    def topic(self, name: str) -> tuple[TopicLog, TopicCheck | None]:
        """The topic that records of that name go to, and the check of it if that goes on. Raises
        UnknownTopic."""

    def begin(self, flush: Flush) -> None:
        """Begin to write it in the background, if that is this route's way. Raises nothing."""

    def write(self, flush: Flush) -> None:
        """Write it, or wait until it is written, and note it in its delivery.

        The same flush may be given again, also after it was written (Ctrl-C). Raises what kept it
        from being stored.
        """

    def drop(self) -> None:
        """The transaction is aborted."""


class InLogRoute:
    """Records stand in their topic as soon as they are written, also those of an open
    transaction, as in Kafka."""

    goes_on = False

    def __init__(
        self, cluster: Cluster, appender: Appender, session: TransactionSession | None
    ) -> None:
        self._cluster = cluster
        self._appender = appender
        self._session = session

    def topic(self, name: str) -> tuple[TopicLog, TopicCheck | None]:
        """See FlushRoute. Far away as this process knows it, while the check of it is under way."""
        cluster = self._cluster
        known = cluster.topic(name) if cluster.is_far else None
        if known is None or not known.state.topic_id:
            return cluster.present_topic(name), None
        return known, _kept(begun(cluster.runtime.fan_out, partial(cluster.present_topic, name)))

    def begin(self, flush: Flush) -> None:
        """See FlushRoute."""

    def write(self, flush: Flush) -> None:
        """See FlushRoute."""
        try:
            base_offsets = self._appended(flush)
        except UnknownTopic:
            following = self._following(flush)
            if following is None:
                raise
            self._appender.forget()  # First: its sequences are those of the other topic.
            flush.log, flush.topic_check = following, None
            base_offsets = self._appended(flush)
        flush.delivery.succeed(flush.partitions, base_offsets)

    def _appended(self, flush: Flush) -> Mapping[int, int]:
        """The base offset of each partition. The check is waited for beside the upload."""
        session, log = self._session, flush.log
        beside = (
            [] if flush.topic_check is None else [partial(_require_same, log, flush.topic_check)]
        )
        if session is None:
            return self._appender.append(log, flush.batch, flush.partitions, None, beside)
        wanted = set(np.flatnonzero(np.bincount(flush.partitions)).tolist())
        if not session.has_declared(log, wanted):
            beside.append(partial(session.declare, log, wanted))
        with session.aborted_unless_fenced():
            return self._appender.append(log, flush.batch, flush.partitions, session.tx_id, beside)

    def _following(self, flush: Flush) -> TopicLog | None:
        """The topic of that name that was there already when the records were sent, if they mean
        there what they were checked to mean."""
        if flush.topic_check is None:
            return None
        with suppress(TxlogError):
            found = flush.topic_check()
            if found.topic_id != flush.log.topic_id and _are_alike(flush.log, found):
                return found
        return None

    def drop(self) -> None:
        """See FlushRoute."""


class StagedRoute:
    """Records are uploaded while the program goes on, and stand in no topic before the commit."""

    goes_on = True

    def __init__(
        self,
        cluster: Cluster,
        appender: Appender,
        session: TransactionSession,
        records: StagedRecords,
    ) -> None:
        self._cluster = cluster
        self._appender = appender
        self._session = session
        self._records = records

    def topic(self, name: str) -> tuple[TopicLog, TopicCheck | None]:
        """See FlushRoute. As this process knows it: it is checked beside the upload."""
        return self._cluster.known_topic(name), None

    def begin(self, flush: Flush) -> None:
        """See FlushRoute."""
        self._begun(flush)

    def _begun(self, flush: Flush) -> Callable[[], tuple[Segment, ...]]:
        upload = flush.upload
        if upload is None:
            self._session.begin_fencing_check()
            self._records.begin_check(flush.log)
            stage = partial(self._appender.stage, flush.log, flush.batch, flush.partitions)
            flush.upload = upload = begun(self._records.runtime.fan_out, stage)
        return upload

    def write(self, flush: Flush) -> None:
        """See FlushRoute. A failed upload begins again with the next call. One that could
        not be committed in time any more is refused now, and not after all that follows."""
        upload = self._begun(flush)
        try:
            segments = upload()
        except TxlogError:
            flush.upload = None
            raise
        self._session.require_not_fenced()
        self._session.require_in_time()
        with suppress(StoreUnavailable, OutcomeUnknown, StoreDenied):  # The commit checks again.
            self._records.require_open(flush.log)
        flush.delivery.stage(flush.partitions)
        self._records.add(flush.number, flush.log, segments, flush.delivery)

    def drop(self) -> None:
        """See FlushRoute. What is uploaded already is collected by the vacuum."""
        self._records.cancel()


def _kept(topic_check: TopicCheck) -> TopicCheck:
    """Its first answer, even if that is an error: a decision based on it is not made again."""
    answers: list[TopicCheck] = []

    def answer() -> TopicLog:
        if not answers:
            answers.append(tried(topic_check))
        return answers[0]()

    return answer


def _require_same(log: TopicLog, topic_check: TopicCheck) -> None:
    """Raises UnknownTopic if the topic was deleted before its records were sent. What keeps it
    from being checked says nothing: the topic's own journal decides."""
    try:
        found = topic_check()
    except (StoreUnavailable, OutcomeUnknown, StoreDenied):
        return
    if found.topic_id != log.topic_id:
        raise UnknownTopic(
            f"topic {log.name!r} was deleted and created again, and takes other records now than "
            "those that were sent. Send them again.",
            topic=log.name,
            topic_id=log.topic_id,
        )


def _are_alike(before: TopicLog, after: TopicLog) -> bool:
    """Whether two topics take the same records, and put each into the same partition."""
    old, new = before.state, after.state
    return (
        old.config == new.config
        and len(old.partitions) == len(new.partitions)
        and before.schema().equals(after.schema())
    )
