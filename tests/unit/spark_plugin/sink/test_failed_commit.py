"""A micro-batch whose commit failed: its staged segments remain for the next attempt."""

from dataclasses import replace
from pathlib import Path

import pytest

from spark_plugin.sink.staging import TaskMessage, participants
from spark_plugin.sink.stream_writer import TxlogStreamWriter
from tests.logs.memory_log import MemoryLog
from tests.stores.faulty_stores import HookedStore
from tests.unit.spark_plugin.spark_query import FRAME, OPTIONS, Query, new_log
from txlog.clock import Runtime
from txlog.errors import OutcomeUnknown
from txlog.storage.memory import memory_store


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of a store that no other test uses."""
    return f"memory://{tmp_path.name}"


def log_at(url: str) -> MemoryLog:
    """A log that the writer's own processes find under this URL."""
    log = new_log()
    named = memory_store(url.removeprefix("memory://"), Runtime(log.clock))
    for path, data in log.objects().items():
        named.put_new(path, data)
    log.memory = named
    return log


def abort(url: str, messages: list[TaskMessage]) -> None:
    """What Spark calls after a failed commit, in another process."""
    options = replace(OPTIONS, root=url)
    TxlogStreamWriter(options, FRAME, None).abort([*messages, None], 1)


@pytest.mark.parametrize("is_stored", [False, True], ids=["not stored", "stored"])
def test_I13_R26_staged_segments_of_failed_commit_remain_for_the_retry(
    tmp_path: Path, url: str, is_stored: bool
) -> None:
    """The answer to the decision is lost; Spark calls abort, then the driver commits again."""
    log = log_at(url)
    query = Query(log, tmp_path / "checkpoint")
    store = HookedStore(log.memory)
    process = log.process(store)
    query.run(process, "run", 0, 0, 2)
    query.plan(1, 2, 4)
    messages = query.tasks(process, "run", 1, 2, 4)
    staged = {segment.path for p in participants(messages) for segment in p.segments}
    journal = log.connection.cluster.layout.transactions(0)
    decision = journal.entry(sum(path.startswith(journal.entries) for path in log.objects()))
    if is_stored:
        store.lose_answer(decision)
    else:
        store.delay_write(decision)
    with pytest.raises(OutcomeUnknown):
        query.commit(process, "run", 1, messages)
    assert staged
    before = log.objects()
    assert staged <= set(before)
    abort(url, messages)
    assert log.changed_since(before) == []
    query.commit(log.process(), "run", 1, messages)
    assert sorted(row["n"] for row in log.values("even", "odd")) == [0, 1, 2, 3]
    log.check()
