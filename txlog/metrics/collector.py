"""What Prometheus scrapes of a log: offsets, lag, and transactions.

The names are those of kafka_exporter, with the prefix `txlog`, or on demand `kafka` for dashboards
that exist. Everything is read from the log when it is scraped: any number of exporters of one log
show the same, except for the counters, which begin with the process. It must not write anything.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from txlog.client.admin import Admin
from txlog.client.admin.descriptions import GroupDescription, TopicDescription
from txlog.client.admin.transaction_book import coordinator_events, coordinator_history
from txlog.client.admin.watched_log import WatchedLog
from txlog.coordinator.events import AbortPrepared, CommitPrepared, TransactionBarred
from txlog.documents.unreadable import Unreadable
from txlog.errors import TxlogError
from txlog.fan_out import OnError
from txlog.storage.store import requests_of

log = logging.getLogger(__name__)

SERIES_MAX = 20_000
"""Series by partition of one scrape, which take a second: beyond them there are only sums, unless
partitions are asked for."""

_PARTITION = ("topic", "partition")
_GROUP = ("consumergroup", *_PARTITION)
_SUM = ("consumergroup", "topic")


class LogCollector(Collector):
    """Collects one log. Safe to use from threads; one scrape runs at a time."""

    def __init__(
        self, watched: WatchedLog, *, prefix: str = "txlog", partitions: bool | None = None
    ) -> None:
        """`prefix` is that of the names that kafka_exporter has, too. `partitions`: whether there
        is a series for each partition; by default up to SERIES_MAX."""
        self._log = watched
        self._prefix = prefix
        self._partitions = partitions
        self._lock = threading.Lock()
        self._read: dict[int, int] = {}
        """Coordinator -> the slot up to which its decisions are counted."""
        self._decisions: Counter[str] = Counter({"COMMITTED": 0, "ABORTED": 0})
        watched.ask(lambda admin: self._count_decisions(admin, Unreadable().note))

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering reads nothing."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The log as it is now; only `txlog_up` 0 if it cannot be read, and without those parts
        that cannot be read, which `txlog_unreadable` counts. The process's log names them."""
        up = GaugeMetricFamily("txlog_up", "Whether the log could be read.", value=1)
        try:
            with self._lock:
                found = self._log.ask(lambda admin: list(self._collected(admin)))
        except TxlogError as error:
            log.error("the log could not be read: %s", error)
            up = GaugeMetricFamily("txlog_up", "Whether the log could be read.", value=0)
            found = []
        yield up
        yield from found

    def _collected(self, admin: Admin) -> Iterator[Metric]:
        unread = Unreadable()
        topics = admin.describe_topics(on_error=unread.note)
        groups = admin.describe_groups(on_error=unread.note)
        series = 2 * sum(len(topic.partitions) for topic in topics)
        series += 3 * sum(len(group.partitions) for group in groups)
        each = series <= SERIES_MAX if self._partitions is None else self._partitions
        yield from self._topics(topics, each)
        yield from self._groups(groups, each)
        yield from self._transactions(admin, unread.note)
        yield from _own_requests(admin)
        unreadable = GaugeMetricFamily(
            "txlog_unreadable", "Topics, groups, coordinators that cannot be read.", labels=["kind"]
        )
        for kind in ("topic", "group", "coordinator"):
            unreadable.add_metric([kind], len(unread.names(kind)))
        yield unreadable
        for text in unread.texts():
            log.error("could not be read: %s", text)

    def _topics(self, topics: Sequence[TopicDescription], each: bool) -> Iterator[Metric]:
        count = self._gauge("topic_partitions", "Partitions of the topic.", ("topic",))
        end = self._gauge("topic_partition_current_offset", "End offset.", _PARTITION)
        start = self._gauge("topic_partition_oldest_offset", "Log start offset.", _PARTITION)
        for topic in topics:
            count.add_metric([topic.name], len(topic.partitions))
            for part in topic.partitions if each else ():
                labels = [topic.name, str(part.partition)]
                end.add_metric(labels, part.end_offset)
                start.add_metric(labels, part.log_start_offset)
        yield from (count, end, start)

    def _groups(self, groups: Sequence[GroupDescription], each: bool) -> Iterator[Metric]:
        position = self._gauge("consumergroup_current_offset", "Committed offset.", _GROUP)
        lag = self._gauge("consumergroup_lag", "Records that were not read.", _GROUP)
        age = GaugeMetricFamily(
            "txlog_consumergroup_lag_seconds", "Age of the oldest of them.", labels=_GROUP
        )
        lag_sum = self._gauge("consumergroup_lag_sum", "Over the topic's partitions.", _SUM)
        age_max = GaugeMetricFamily(
            "txlog_consumergroup_lag_seconds_max", "Over the topic's partitions.", labels=_SUM
        )
        for group in groups:
            sums: Counter[str] = Counter()
            ages: dict[str, float] = {}
            for part in group.partitions:
                topic, labels = part.where.topic, [group.group_id, *map(str, part.where)]
                sums[topic] += part.lag or 0
                if part.lag_ms is not None:
                    ages[topic] = max(ages.get(topic, 0), part.lag_ms / 1000)
                if each and part.current_offset is not None:
                    position.add_metric(labels, part.current_offset)
                if each and part.lag is not None and part.lag_ms is not None:
                    lag.add_metric(labels, part.lag)
                    age.add_metric(labels, part.lag_ms / 1000)
            for topic, value in sums.items():
                lag_sum.add_metric([group.group_id, topic], value)
            for topic, seconds in ages.items():
                age_max.add_metric([group.group_id, topic], seconds)
        yield from (position, lag, age, lag_sum, age_max)

    def _transactions(self, admin: Admin, on_error: OnError) -> Iterator[Metric]:
        now_ms = admin.connection.runtime.clock.wall_ms()
        listed = admin.list_transactions(on_error=on_error)
        begun_ms = [
            *(transaction.started_ms for each in listed for transaction in each.all_open),
            *(pending.pending_since_ms for each in listed for pending in each.pending),
        ]
        oldest_ms = now_ms - min(begun_ms, default=now_ms)
        yield GaugeMetricFamily(
            "txlog_transactions_open", "Transactions that are not complete.", value=len(begun_ms)
        )
        yield GaugeMetricFamily(
            "txlog_transaction_oldest_open_seconds",
            "Age of the oldest of them; 0 without any.",
            value=max(oldest_ms, 0) / 1000,
        )
        self._count_decisions(admin, on_error)
        total = CounterMetricFamily(
            "txlog_transactions", "Decisions since this process began.", labels=["outcome"]
        )
        for outcome, count in self._decisions.items():
            total.add_metric([outcome], count)
        yield total

    def _count_decisions(self, admin: Admin, on_error: OnError) -> None:
        """Count those of the entries since the last call; the first call only takes its place."""
        for coordinator in admin.connection.caught_up(on_error):
            history = coordinator_history(coordinator, admin.connection)
            first = self._read.get(coordinator.number, history.next_slot)
            for _, event in coordinator_events(history, first):
                if isinstance(event, CommitPrepared):
                    self._decisions["COMMITTED"] += 1
                elif isinstance(event, AbortPrepared | TransactionBarred):
                    self._decisions["ABORTED"] += 1
            self._read[coordinator.number] = history.next_slot

    def _gauge(self, name: str, text: str, labels: Sequence[str]) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"{self._prefix}_{name}", text, labels=labels)


def _own_requests(admin: Admin) -> Iterator[Metric]:
    """What this process has sent to a bucket; nothing for a disk."""
    found = requests_of(admin.connection.cluster.store)
    if found is not None:
        total = CounterMetricFamily(
            "txlog_store_requests", "Requests of this process to the bucket.", labels=["operation"]
        )
        for operation, count in found.counts.items():
            total.add_metric([operation], count)
        yield total
