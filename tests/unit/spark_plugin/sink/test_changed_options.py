"""A query that is restarted with other options: the sink finds its newest batch."""

from dataclasses import replace
from pathlib import Path

import pytest

from spark_plugin.sink.batch_writer import ForeachCommitter
from spark_plugin.sink.staging import batch_identity
from tests.logs.memory_log import MemoryLog
from tests.unit.spark_plugin.spark_query import OPTIONS, Query, new_log
from txlog.engine.connection import Connection
from txlog.errors import CheckpointConflict
from txlog.settings import LogSettings


@pytest.fixture
def log() -> MemoryLog:
    """A log with several coordinators."""
    return new_log(LogSettings())


def numbers(log: MemoryLog) -> list[int]:
    return sorted(row["n"] for row in log.values("even", "odd"))


@pytest.mark.parametrize("before", ["", "first"])
@pytest.mark.parametrize("after", ["", "second", "third"])
def test_R2_committed_batch_is_found_after_transactional_id_changes(
    log: MemoryLog, tmp_path: Path, before: str, after: str
) -> None:
    """The driver died before `commits/0`, and its source is not txlog: only the mark shows the
    batch.
    """
    query = Query(log, tmp_path / "checkpoint", query_id="0f3c8a52")
    query.plan_other(0, 4)
    query.options = replace(OPTIONS, transactional_id=before)
    query.replay(log.process(), "run", 0, 0, 4)
    query.options = replace(OPTIONS, transactional_id=after)
    query.replay(log.process(), "again", 0, 0, 4)
    query.plan_other(1, 8)
    query.replay(log.process(), "again", 1, 4, 8)
    assert numbers(log) == list(range(8))
    log.check()


def test_R30_adding_the_checkpoint_option_later_duplicates_no_batch(
    log: MemoryLog, tmp_path: Path
) -> None:
    query = Query(log, tmp_path / "checkpoint", query_id="0f3c8a52")
    query.plan(0, 0, 4)

    def commit(process: Connection, run: str, *, has_checkpoint: bool) -> None:
        messages = query.tasks(process, run, 0, 0, 4)
        if not has_checkpoint:
            messages = [replace(message, plan=None) for message in messages]
        checkpoint = query.checkpoint if has_checkpoint else None
        identity = batch_identity(messages, 0)
        ForeachCommitter(process, OPTIONS, checkpoint, identity, messages).commit()

    commit(log.process(), "run", has_checkpoint=False)
    with pytest.raises(CheckpointConflict, match="was not committed"):
        commit(log.process(), "again", has_checkpoint=True)
    commit(log.process(), "third", has_checkpoint=False)
    assert numbers(log) == [0, 1, 2, 3]
    log.check()
