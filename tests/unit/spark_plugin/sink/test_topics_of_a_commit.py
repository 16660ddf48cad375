"""A commit reads the topics with rows again before it decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from spark_plugin.sink.batch_commit import STAGED_TIMEOUT_MS, require_topics
from spark_plugin.sink.staging import TaskMessage
from tests.logs.memory_log import MemoryLog
from tests.stores.faulty_stores import HookedStore
from tests.unit.spark_plugin.spark_query import COUNT, GROUP, SOURCE, Query
from txlog.coordinator.events import Participant
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import InternalError, InvalidRecord, UnknownTopic
from txlog.groups.state import PendingOffset


def next_entry(log: MemoryLog) -> str:
    """Path of the next entry of the only coordinator's journal."""
    layout = log.connection.cluster.layout.transactions(0)
    return layout.entry(sum(path.startswith(layout.entries) for path in log.objects()))


def check(log: MemoryLog, end: int) -> None:
    """Check that the numbers below `end` were copied once, the group is at `end`, and the log is
    sound."""
    assert sorted(row["n"] for row in log.values("even", "odd")) == list(range(end))
    committed = log.process().offsets.resolve_and_fetch(GROUP, [SOURCE])[SOURCE]
    assert committed is not None
    assert committed.offset == end
    log.check()


def staged(query: Query) -> list[TaskMessage]:
    """The tasks of the first batch."""
    query.plan(0, 0, COUNT)
    return query.tasks(query.log.process(), "run", 0, 0, COUNT)


def test_R40_batch_for_deleted_topic_is_refused_without_a_decision(
    log: MemoryLog, query: Query
) -> None:
    messages = staged(query)
    process = log.process()
    log.admin.delete_topics(["odd"])
    before = log.objects()
    with pytest.raises(UnknownTopic, match="topic 'odd' was deleted since rows were staged"):
        query.commit(process, "run", 0, messages)
    written = [path for path in log.changed_since(before) if path.startswith("transactions/")]
    assert written == []
    assert log.values("even") == []
    log.check()


def test_R40_recreated_topic_gets_no_rows_staged_for_the_deleted_one(
    log: MemoryLog, query: Query
) -> None:
    messages = staged(query)
    schema = log.admin.describe_topic("odd").schema
    log.admin.delete_topics(["odd"])
    log.admin.create_topic("odd", 1, schema)
    with pytest.raises(UnknownTopic, match="topic 'odd' was deleted since rows were staged"):
        query.commit(log.process(), "run", 0, messages)
    assert log.values("even", "odd") == []
    query.replay(log.process(), "second", 0, 0, COUNT)
    assert len(log.values("even", "odd")) == COUNT
    log.check()


@pytest.mark.parametrize(
    ("change", "error"),
    [({"schema_id": 1}, InternalError), ({"partition": 1}, InvalidRecord)],
    ids=["schema", "partition"],
)
def test_segment_with_unknown_schema_or_partition_is_refused_before_the_decision(
    log: MemoryLog, query: Query, change: dict[str, int], error: type[Exception]
) -> None:
    """After this check, no marker is refused because of its schema or partitions."""
    found = staged(query)[0].staged[0]
    segment = found.segments[0]
    if "schema_id" in change:
        segment = replace(segment, **change)
    else:
        batches = tuple(replace(batch, **change) for batch in segment.batches)
        segment = replace(segment, batches=batches)
    forged = Participant(found.topic_id, found.topic, (), (segment,))
    with pytest.raises(error):
        require_topics(log.process(), [forged])


# Reads of different times.


def test_I10_batch_committed_by_another_run_before_the_decision_is_already_in(
    log: MemoryLog, query: Query
) -> None:
    """The first reads allow the commit; the decision is refused, and the reads are repeated."""
    store = HookedStore(log.memory)
    older, newer = log.process(store), log.process()
    query.plan(0, 0, 4)
    messages = query.tasks(older, "older", 0, 0, 4)
    overtaken_after(store, next_entry(log), 1, lambda: query.replay(newer, "newer", 0, 0, 4))
    query.commit(older, "older", 0, messages)
    assert store.is_met
    check(log, 4)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_I10_batch_committed_by_another_run_during_repeated_reads_is_already_in(
    log: MemoryLog, query: Query, count: int
) -> None:
    """A dead run has left a pend, so the first reads are not enough."""
    pend_and_die(log)
    store = HookedStore(log.memory)
    older, newer = log.process(store), log.process()
    query.plan(0, 0, 4)
    messages = query.tasks(older, "older", 0, 0, 4)
    overtaken_after(store, next_entry(log), count, lambda: query.replay(newer, "newer", 0, 0, 4))
    query.commit(older, "older", 0, messages)
    assert store.is_met
    check(log, 4)


def overtaken_after(
    store: HookedStore, path: str, count: int, overtake: Callable[[], object]
) -> None:
    """Another run commits after `count` probes for the entry."""
    if count > 1:
        again = partial(overtaken_after, store, path, count - 1, overtake)
        store.after("get", path, again)
    else:
        store.after("get", path, overtake)


def pend_and_die(log: MemoryLog) -> None:
    """Pend in a run of the query, whose first batch then does not commit."""
    session = TransactionSession(log.process(), "spark.query", GROUP, STAGED_TIMEOUT_MS)
    session.register("dead", is_run=True, groups=(GROUP,))
    session.begin()
    topic_id = log.connection.cluster.topic("numbers").topic_id
    session.pend_staged(GROUP, (PendingOffset("numbers", topic_id, 0, 0, 4),))
