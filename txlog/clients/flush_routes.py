"""The two ways of a flush: into its topic at once, or staged until its transaction is decided.

It guards the client's half of R9 for what goes into the log: declared before it is appended, and
appended again as it is. It must not know what waits, nor the states of a producer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa

from txlog.clients.accumulator import Partitions
from txlog.clients.appender import Appender
from txlog.clients.delivery import Delivery
from txlog.clients.staged_records import StagedRecords
from txlog.clients.transaction_session import TransactionSession
from txlog.clock import begun
from txlog.errors import OutcomeUnknown, StoreDenied, StoreUnavailable, TxlogError
from txlog.log.batch import Segment
from txlog.log.cluster import Cluster
from txlog.log.topic_log import TopicLog


@dataclass(slots=True)
class Flush:
    """Records of one topic that leave together."""

    number: int
    log: TopicLog
    batch: pa.RecordBatch
    partitions: Partitions
    delivery: Delivery
    upload: Callable[[], tuple[Segment, ...]] | None = None
    """Of staged records: answers their segments, once they are written."""


class FlushRoute(Protocol):
    """How records are written."""

    goes_on: bool
    """Whether the program may go on while a flush is on its way."""

    def topic(self, name: str) -> TopicLog:
        """The topic that records of that name go to. Raises UnknownTopic."""

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

    def topic(self, name: str) -> TopicLog:
        """See FlushRoute."""
        return self._cluster.present_topic(name)

    def begin(self, flush: Flush) -> None:
        """See FlushRoute."""

    def write(self, flush: Flush) -> None:
        """See FlushRoute."""
        session, log = self._session, flush.log
        if session is None:
            base_offsets = self._appender.append(log, flush.batch, flush.partitions, None)
        else:
            wanted = set(np.flatnonzero(np.bincount(flush.partitions)).tolist())
            declare = None
            if not session.has_declared(log, wanted):
                declare = partial(session.declare, log, wanted)
            with session.told_apart():
                base_offsets = self._appender.append(
                    log, flush.batch, flush.partitions, session.tx_id, declare
                )
        flush.delivery.succeed(flush.partitions, base_offsets)

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

    def topic(self, name: str) -> TopicLog:
        """See FlushRoute. As this process knows it: it is looked at beside the upload."""
        return self._cluster.known_topic(name)

    def begin(self, flush: Flush) -> None:
        """See FlushRoute."""
        self._begun(flush)

    def _begun(self, flush: Flush) -> Callable[[], tuple[Segment, ...]]:
        upload = flush.upload
        if upload is None:
            self._session.look()
            self._records.look_at(flush.log)
            stage = partial(self._appender.stage, flush.log, flush.batch, flush.partitions)
            flush.upload = upload = begun(self._records.runtime.fan_out, stage)
        return upload

    def write(self, flush: Flush) -> None:
        """See FlushRoute. An upload that failed begins anew with the next call."""
        upload = self._begun(flush)
        try:
            segments = upload()
        except TxlogError:
            flush.upload = None
            raise
        self._session.require_looked()
        with suppress(StoreUnavailable, OutcomeUnknown, StoreDenied):  # The commit looks again.
            self._records.require_open(flush.log)
        flush.delivery.stage(flush.partitions)
        self._records.add(flush.number, flush.log, segments, flush.delivery)

    def drop(self) -> None:
        """See FlushRoute. What is uploaded already is collected by the vacuum."""
        self._records.cancel()
