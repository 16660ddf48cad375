"""Opening, planning and committing on a topic of 100 commits, and on one of 10,000.

Opening is all that a new process does: it opens the cluster and the topic, and registers a
transactional id, which opens its coordinator. Both logs are measured in turn, from a cold start
each time, over a whole cycle of snapshots. A wrapper of the store counts the requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter

import pyarrow as pa

from benchmarks import growth_of_states, sample
from benchmarks.figures import Figure, at_most, latency
from spark_plugin.options import ReaderOptions
from spark_plugin.source.offsets import PartitionRange
from spark_plugin.source.read_plan import ReadTask, plan_reads
from txlog.client.admin import Admin
from txlog.clock import Runtime
from txlog.coordinator.events import Participant
from txlog.engine.connection import Connection, open_connection
from txlog.engine.transaction_session import TransactionSession
from txlog.model import TopicPartition
from txlog.storage.disk.local import LocalStore
from txlog.testing.counting_store import CountingStore, RequestCounts
from txlog.topic.read.cut import limited_cut, stable_ends, view_of
from txlog.topic.records.batch import Segment
from txlog.topic.records.conversion import with_timestamp
from txlog.topic.topic_log import TopicLog

SHORT, LONG = 100, 10_000
PARTITIONS = 2
ROWS = 10
CYCLE = 64
"""Rounds. Each adds one entry to the topic's journal, which has a snapshot every 64."""


def run(folder: Path) -> Sequence[Figure]:
    """Times and requests of both, and their ratio."""
    logs = [_Log.built(folder / str(commits), commits) for commits in (SHORT, LONG)]
    for _ in range(CYCLE):
        for log in logs:
            log.measure()
    short, long = logs
    figures = [_step(step, short, long) for step in ("open", "plan", "commit")]
    return (
        latency(f"open + plan + commit at {SHORT} commits, p50", short.totals()),
        latency(f"open + plan + commit at {LONG:,} commits, p50", long.totals()),
        Figure(
            f"p50 at {LONG:,} / p50 at {SHORT}",
            median(long.totals()) / median(short.totals()),
            "x",
            at_most(1.3),
        ),
        *figures,
        Figure(f"requests at {SHORT} commits, median", short.requests(), "requests"),
        Figure(f"requests at {LONG:,} commits, median", long.requests(), "requests"),
        Figure("LIST requests", short.lists() + long.lists(), "requests", at_most(0)),
        *growth_of_states.figures(folder / "states"),
    )


def _step(step: str, short: _Log, long: _Log) -> Figure:
    values = [median(log.taken[step]) * 1000 for log in (short, long)]
    return Figure(f"  {step}: {values[0]:.2f} -> {values[1]:.2f} ms", values[1] / values[0], "x")


@dataclass
class _Log:
    folder: Path
    commits: int
    taken: dict[str, list[float]] = field(default_factory=dict)
    counts: list[RequestCounts] = field(default_factory=list)

    @classmethod
    def built(cls, folder: Path, commits: int) -> _Log:
        """A log with that many commits, synced only while it is measured."""
        connection = open_connection(
            LocalStore(folder, Runtime(), durable=False), Runtime(), create=True
        )
        Admin(connection).create_topic("t", PARTITIONS)
        topic = connection.cluster.topic("t")
        session = _registered(connection)
        segment = _staged(topic)
        for _ in range(commits):
            _commit(session, topic, segment)
        session.join()
        return cls(folder, commits)

    def measure(self) -> None:
        """A cold start: open the topic, plan the next micro-batch, commit one more."""
        store = CountingStore(LocalStore(self.folder, Runtime()))
        begun = perf_counter()
        connection = open_connection(store, Runtime())
        topic = connection.cluster.topic("t")
        topic.catch_up()
        session = _registered(connection)
        opened = perf_counter()
        tasks = _plan(topic, self.commits)
        planned = perf_counter()
        _commit(session, topic, _staged(topic))
        committed = perf_counter()
        self.counts.append(store.snapshot())
        session.join()
        assert sum(len(span.batches) for task in tasks for span in task.spans) == 2 * PARTITIONS
        self.commits += 1
        for step, seconds in (
            ("open", opened - begun),
            ("plan", planned - opened),
            ("commit", committed - planned),
        ):
            self.taken.setdefault(step, []).append(seconds)

    def totals(self) -> list[float]:
        return [sum(steps) for steps in zip(*self.taken.values(), strict=True)]

    def requests(self) -> float:
        return median([counts.puts + counts.gets for counts in self.counts])

    def lists(self) -> int:
        return sum(counts.lists for counts in self.counts)


def _registered(connection: Connection) -> TransactionSession:
    session = TransactionSession(connection, "growth")
    session.register("growth")
    return session


def _staged(topic: TopicLog) -> Segment:
    """Ten rows in each partition."""
    rows = pa.RecordBatch.from_pylist(
        [{"value": value} for value in sample.values(ROWS)], schema=topic.schema()
    )
    batch = with_timestamp(rows, 1)
    return topic.stage({p: [batch] for p in range(PARTITIONS)}, 0)


def _commit(session: TransactionSession, topic: TopicLog, segment: Segment) -> None:
    session.begin()
    session.commit((Participant(topic.topic_id, topic.name, (), (segment,)),))


def _plan(topic: TopicLog, commits: int) -> Sequence[ReadTask]:
    """The micro-batch for a reader that is two commits behind the end."""
    view = view_of(topic)
    start = (commits - 2) * ROWS
    starts = {TopicPartition("t", partition): start for partition in range(PARTITIONS)}
    ends = limited_cut([view], starts, stable_ends([view], starts), 10 * ROWS)
    ranges = {where: PartitionRange(start, end) for where, end in ends.items()}
    return plan_reads({"t": topic}, ranges, ReaderOptions(root=""))
