"""What a process that commits keeps of the queries it has committed for: as much as helps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spark_plugin.sink import batch_commit, batch_writer
from spark_plugin.sink.batch_writer import ForeachCommitter
from spark_plugin.sink.staging import batch_identity
from tests.logs.memory_log import MemoryLog
from tests.stores.faulty_stores import HookedStore
from tests.unit.held_fan_out import HeldFanOut
from tests.unit.spark_plugin.spark_query import OPTIONS, Query
from txlog.clock import Runtime
from txlog.engine.connection import Connection, open_connection
from txlog.errors import InvalidOption


@pytest.fixture(autouse=True)
def no_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """No session of another test counts."""
    monkeypatch.setattr(batch_commit, "_sessions", {})


def query_without_group(log: MemoryLog, folder: Path, name: str) -> Query:
    """A query that owns no group, so that several run at once."""
    return Query(log, folder / name, name, group=None)


def run(query: Query, process: Connection, name: str, batch: int) -> None:
    """One batch of a source that is not txlog."""
    query.plan_other(batch, batch + 1)
    query.replay(process, name, batch, batch, batch + 1)


def epoch(log: MemoryLog, query_id: str) -> int:
    """The query's epoch: it rises with each registration."""
    states = [coordinator.state for coordinator in log.process().caught_up()]
    return next(s.ids[f"spark.{query_id}"].epoch for s in states if f"spark.{query_id}" in s.ids)


def next_entry(log: MemoryLog, topic: str) -> str:
    """Path of the next entry of a topic's journal."""
    cluster = log.connection.cluster
    layout = cluster.layout.topic(topic, cluster.topic(topic).topic_id)
    return layout.entry(sum(path.startswith(layout.entries) for path in log.objects()))


def kept_runs() -> list[str]:
    """The runs of the kept sessions."""
    return [run_id for _, _, run_id in batch_commit._sessions]


def test_sessions_of_ended_runs_are_dropped_above_the_limit(
    log: MemoryLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver lives for weeks, and each session keeps its connection."""
    monkeypatch.setattr(batch_commit, "SESSIONS_MAX", 2, raising=False)
    process, query = log.process(), query_without_group(log, tmp_path, "query")
    for batch in range(5):
        run(query, process, f"run {batch}", batch)
    assert kept_runs() == ["run 3", "run 4"]


def test_session_that_has_waited_longest_is_dropped_first(
    log: MemoryLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_commit, "SESSIONS_MAX", 2, raising=False)
    process = log.process()
    first, second, third = (query_without_group(log, tmp_path, n) for n in ("a", "b", "c"))
    run(first, process, "of a", 0)
    run(second, process, "of b", 0)
    run(first, process, "of a", 1)
    run(third, process, "of c", 0)
    assert kept_runs() == ["of a", "of c"]
    assert epoch(log, "a") == 0, "a registered once"


def test_session_in_use_is_not_dropped_while_other_runs_commit(
    log: MemoryLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_commit, "SESSIONS_MAX", 1, raising=False)
    store = HookedStore(log.memory)
    process, query = log.process(store), query_without_group(log, tmp_path, "query")
    run(query, process, "run", 0)
    others = [query_without_group(log, tmp_path, name) for name in ("a", "b")]

    def commit_others() -> None:
        for other in others:
            run(other, log.process(), f"of {other.query_id}", 0)

    store.before("create", next_entry(log, "even"), commit_others)
    query.plan_other(1, 3)
    query.replay(process, "run", 1, 1, 3)
    assert store.is_met
    assert kept_runs() == ["run"]
    run(query, process, "run", 2)
    assert epoch(log, "query") == 0, "the run registered once"
    log.check()


def test_transaction_of_a_dropped_session_is_completed_in_the_background(
    log: MemoryLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_commit, "SESSIONS_MAX", 1, raising=False)
    background = HeldFanOut()
    process = open_connection(log.memory, Runtime(log.clock, fan_out=background))
    query, other = (query_without_group(log, tmp_path, name) for name in ("query", "other"))
    for batch in range(2):
        run(query, process, "run", batch)
    run(other, process, "of other", 0)
    assert kept_runs() == ["of other"]
    background.let_go()
    assert [list(c.state.open_transactions()) for c in log.process().caught_up()] == [[]]
    log.check()


# Replayed writes of a `foreachBatch`.


def commit_labelled(query: Query, process: Connection, name: str, batch: int, label: str) -> None:
    """One write of the batch under that label."""
    messages = [replace(m, plan=None) for m in query.tasks(process, name, batch, 0, 4)]
    options = replace(OPTIONS, label=label)
    identity = batch_identity(messages, batch)
    ForeachCommitter(process, options, None, identity, messages).commit()


def planned(log: MemoryLog, folder: Path, name: str) -> Query:
    """A query with a plan of its batch 0."""
    query = Query(log, folder / name, name)
    query.plan(0, 0, 4)
    return query


def test_replayed_writes_of_earlier_batches_and_runs_are_forgotten(
    log: MemoryLog, tmp_path: Path
) -> None:
    query, process = planned(log, tmp_path, "query"), log.process()
    for batch in range(3):
        for name in ("first", "second", "third"):
            for label in ("a", "b"):
                commit_labelled(query, process, name, batch, label)
    (known,) = batch_writer._replayed[process].values()
    assert (known.identity.run_id, known.identity.batch_id) == ("third", 2)
    assert known.names == {"spark.query.a", "spark.query.b"}


def test_R30_all_replayed_writes_of_one_batch_are_remembered(
    log: MemoryLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forgetting one would lose the rows of a second write under its label."""
    monkeypatch.setattr(batch_writer, "QUERIES_MAX", 2, raising=False)
    query, process = planned(log, tmp_path, "query"), log.process()
    labels = ["a", "b", "c", "d"]
    for name in ("first", "second"):
        for label in labels:
            commit_labelled(query, process, name, 0, label)
    for label in labels:
        with pytest.raises(InvalidOption, match="written in this very run already"):
            commit_labelled(query, process, "second", 0, label)


def test_replayed_writes_of_the_query_that_has_waited_longest_are_forgotten_first(
    log: MemoryLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_writer, "QUERIES_MAX", 2, raising=False)
    process = log.process()
    queries = {name: planned(log, tmp_path, name) for name in ("a", "b", "c")}
    writes = (("a", "x"), ("b", "x"), ("a", "y"), ("c", "x"))
    for run_id in ("first", "second"):
        for name, label in writes:
            commit_labelled(queries[name], process, run_id, 0, label)
    assert list(batch_writer._replayed[process]) == ["a", "c"]
