"""Commits of micro-batches that no entry can name, on a far store.

The segments have names only: the commit does not look at them, and nothing reads them here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.far_store import FarStore, far_store, round_trips
from benchmarks.figures import Figure, timed
from txlog.client.admin import Admin
from txlog.coordinator.events import Participant
from txlog.engine.connection import Connection
from txlog.engine.transaction_session import TransactionSession
from txlog.topic.records.batch import Segment, SegmentBatch

SHAPES = ((20, 16, 64), (100, 100, 8))
"""Topics, tasks and partitions of a topic; every task has rows for every partition."""
ROUNDS = 5


def run(folder: Path) -> Sequence[Figure]:
    """Round trips and processor time of each commit. It waits for three requests, as
    `tests/docs/test_waits.py` counts; the rest is the time of the client and the server."""
    with far_store() as store:
        return [figure for shape in SHAPES for figure in _commits(store, *shape)]


def _commits(store: FarStore, topics: int, tasks: int, partitions: int) -> list[Figure]:
    store.near()
    place = store.server.url(f"large-{topics}")
    admin = Admin(place, create=True, storage_options=store.storage_options)
    names = [f"t{number}" for number in range(topics)]
    for name in names:
        admin.create_topic(name, partitions)
    session = TransactionSession(admin.connection, "large")
    session.register("instance")
    store.far()
    seconds, processor_ms = [], []
    for _ in range(ROUNDS):
        staged = tuple(_staged(admin.connection, name, tasks, partitions) for name in names)
        session.begin(checks_fencing=False)
        begun = time.process_time()
        seconds.append(timed(lambda staged=staged: session.commit(staged)))
        processor_ms.append(1000 * (time.process_time() - begun))
        session.join()
    name = f"commit of {topics} topics x {tasks} tasks x {partitions} partitions"
    taken = Figure(f"{name}: processor time of the client", median(processor_ms), "ms")
    return [round_trips(name, seconds), taken]


def _staged(connection: Connection, name: str, tasks: int, partitions: int) -> Participant:
    """What the tasks say that they have stored: a batch of one record for each partition."""
    topic = connection.cluster.topic(name)
    batches = tuple(SegmentBatch(p, 1, 1_000 * p, 900, p, 0, 0) for p in range(partitions))
    paths = [topic.layout.segment(topic.new_name()) for _ in range(tasks)]
    segments = tuple(Segment(path, 0, batches) for path in paths)
    return Participant(topic.topic_id, name, segments=segments)
