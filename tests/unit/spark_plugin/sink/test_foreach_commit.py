"""The commit of a write within a `foreachBatch`, without Spark: two runs at once."""

from dataclasses import replace
from pathlib import Path

import pytest

from spark_plugin.sink.batch_writer import ForeachCommitter
from spark_plugin.sink.staging import TaskMessage, batch_identity
from tests.stores.faulty_stores import HookedStore
from tests.unit.spark_plugin.spark_query import OPTIONS, Query, new_log
from txlog.engine.connection import Connection
from txlog.errors import CommitFailed, InvalidOption

LABELLED = replace(OPTIONS, label="copy")


def tasks(query: Query, process: Connection, run: str) -> list[TaskMessage]:
    """Messages of batch 0, from a writer without the checkpoint."""
    return [replace(message, plan=None) for message in query.tasks(process, run, 0, 0, 4)]


def commit(process: Connection, messages: list[TaskMessage]) -> None:
    """One write of the batch."""
    identity = batch_identity(messages, 0)
    ForeachCommitter(process, LABELLED, None, identity, messages).commit()


def test_R30_write_overtaken_by_another_run_raises_commit_failed(
    tmp_path: Path,
) -> None:
    """The run cannot distinguish this from a second write under its label. A restarted query finds
    the batch committed.
    """
    log = new_log()
    query = Query(log, tmp_path / "checkpoint")
    query.plan(0, 0, 4)
    store = HookedStore(log.memory)
    older, newer = log.process(store), log.process()
    late = tasks(query, older, "older")
    journal = log.connection.cluster.layout.transactions(0)
    registration = journal.entry(sum(p.startswith(journal.entries) for p in log.objects()))
    store.before("create", registration, lambda: commit(newer, tasks(query, newer, "newer")))
    said = "batch 0 with the label 'copy' was committed at the same time by another writer"
    with pytest.raises(CommitFailed, match=said):
        commit(older, late)
    assert store.is_met
    assert sorted(row["n"] for row in log.values("even", "odd")) == [0, 1, 2, 3], "of the newer run"
    restarted = log.process()
    commit(restarted, tasks(query, restarted, "third"))
    assert sorted(row["n"] for row in log.values("even", "odd")) == [0, 1, 2, 3]
    log.check()


def test_R30_second_write_with_same_label_in_one_run_is_refused(tmp_path: Path) -> None:
    log = new_log()
    query = Query(log, tmp_path / "checkpoint")
    query.plan(0, 0, 4)
    process = log.process()
    commit(process, tasks(query, process, "run"))
    with pytest.raises(InvalidOption, match="leave the first one as it is"):
        commit(process, tasks(query, process, "run"))
    log.check()


def test_R30_second_write_is_refused_in_a_run_that_skipped_the_first_as_replay(
    tmp_path: Path,
) -> None:
    """A supervisor restarts the query unchanged: no batch of the second write may be lost."""
    log = new_log()
    query = Query(log, tmp_path / "checkpoint")
    query.plan(0, 0, 4)
    process = log.process()
    commit(process, tasks(query, process, "run"))
    for run in ("second", "third"):
        commit(process, tasks(query, process, run))
        with pytest.raises(InvalidOption, match="leave the first one as it is"):
            commit(process, tasks(query, process, run))
    assert sorted(row["n"] for row in log.values("even", "odd")) == [0, 1, 2, 3]
    log.check()
