"""The comparison predicts what the next start of the query does."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from spark_plugin.checkpoints.checkpoint_comparison import CheckpointComparison, NextStart, compare
from tests.logs.memory_log import MemoryLog
from tests.source_tree import ROOT
from tests.stores.faulty_stores import DyingStore, ProcessDied
from tests.unit.spark_plugin.spark_query import COUNT, GROUP, SOURCE, Query, new_log
from txlog.errors import TxlogError
from txlog.groups.state import UNCHECKED, PendingOffset


def compared(log: MemoryLog, query: Query) -> CheckpointComparison:
    """Compare in a new process, which writes nothing."""
    before = log.objects()
    comparison = compare(log.process(), query.checkpoint)
    assert log.changed_since(before) == []
    return comparison


def move_group(log: MemoryLog, offset: int) -> None:
    """Move the group, as an operator would."""
    topic_id = log.connection.cluster.topic("numbers").topic_id
    moved = PendingOffset("numbers", topic_id, 0, UNCHECKED, offset)
    log.process().offsets.commit(GROUP, (moved,))


# The predictions, each compared with the sink's behaviour.


def previous_batch_is_done(log: MemoryLog, query: Query) -> tuple[int, int, int]:
    return 1, 4, 7


def is_planned(log: MemoryLog, query: Query) -> tuple[int, int, int]:
    query.plan(1, 4, 7)
    return 1, 4, 7


def commit_was_not_recorded(log: MemoryLog, query: Query) -> tuple[int, int, int]:
    query.run(log.process(), "first", 1, 4, 7)
    return 1, 4, 7


def group_was_moved_back(log: MemoryLog, query: Query) -> tuple[int, int, int]:
    move_group(log, 2)
    query.plan(1, 4, 7)
    return 1, 4, 7


def group_was_moved_ahead(log: MemoryLog, query: Query) -> tuple[int, int, int]:
    move_group(log, 9)
    return 1, 4, 7


def checkpoint_was_restored(log: MemoryLog, query: Query) -> tuple[int, int, int]:
    for batch, start in ((1, 4), (2, 7)):
        query.run(log.process(), "first", batch, start, start + 3)
    for batch in (1, 2):
        (query.folder / "offsets" / str(batch)).unlink()
    return 1, 4, 6


def predecessor_was_replanned(log: MemoryLog, query: Query) -> tuple[int, int, int]:
    """The checkpoint was restored, batch 0 replanned, and the old run has recorded its own."""
    query.plan(0, 1, 4)
    return 1, 4, 7


def is_planned_after_replanned_batch(log: MemoryLog, query: Query) -> tuple[int, int, int]:
    query.plan(0, 1, 4)
    query.plan(1, 4, 7)
    return 1, 4, 7


def log_lacks_a_batch(log: MemoryLog, query: Query) -> tuple[int, int, int]:
    query.plan(1, 4, 7)
    query.note(1)
    query.plan(2, 7, 9)
    return 2, 7, 9


@pytest.mark.parametrize(
    ("happens", "verdict"),
    [
        (previous_batch_is_done, NextStart.NEW_BATCH),
        (is_planned, NextStart.REPLAY),
        (commit_was_not_recorded, NextStart.ALREADY_IN),
        (group_was_moved_back, NextStart.REFUSED),
        (group_was_moved_ahead, NextStart.REFUSED),
        (checkpoint_was_restored, NextStart.REFUSED),
        (predecessor_was_replanned, NextStart.REFUSED),
        (is_planned_after_replanned_batch, NextStart.REFUSED),
        (log_lacks_a_batch, NextStart.REFUSED),
    ],
)
def test_I10_next_start_matches_the_prediction(
    log: MemoryLog,
    query: Query,
    happens: Callable[[MemoryLog, Query], tuple[int, int, int]],
    verdict: NextStart,
) -> None:
    batch, start, end = happens(log, query)
    comparison = compared(log, query)
    assert comparison.next_start is verdict, comparison.reason
    before = sorted(row["n"] for row in log.values("even", "odd"))
    try:
        query.run(log.process(), "second", batch, start, end)
        is_refused = False
    except TxlogError:
        is_refused = True
    after = sorted(row["n"] for row in log.values("even", "odd"))
    assert is_refused == (verdict is NextStart.REFUSED)
    assert (after == before) == (verdict in (NextStart.REFUSED, NextStart.ALREADY_IN))


@pytest.mark.parametrize("is_noted", [True, False])
def test_checkpoint_above_log_end_is_refused_with_both_offsets(
    log: MemoryLog, query: Query, is_noted: bool
) -> None:
    query.plan(1, 4, COUNT + 2)
    if is_noted:
        query.note(1)
    comparison = compared(log, query)
    assert comparison.next_start is NextStart.REFUSED
    assert "numbers-0 ends at 10, but the checkpoint has read up to 12" in comparison.reason
    assert "Restore it, or" in comparison.remedy


def test_refusal_states_the_difference_and_the_resolving_command(
    log: MemoryLog, query: Query
) -> None:
    move_group(log, 9)
    comparison = compared(log, query)
    (part,) = comparison.partitions
    assert (part.end, part.committed, part.difference(part.end), part.log_end) == (4, 9, 5, COUNT)
    assert "batch 1 will be refused" in comparison.reason
    assert "startingOffsets=committed" in comparison.remedy
    assert comparison.commands == (
        f"txlog group reset {GROUP} --topic numbers:0 --to-offset 4 --execute",
    )
    move_group(log, 4)
    assert compared(log, query).next_start is NextStart.NEW_BATCH


@pytest.mark.parametrize("is_after", [False, True])
def test_next_start_matches_the_prediction_after_driver_crash_at_any_write(
    tmp_path: Path, is_after: bool
) -> None:
    """Pend with PREPARE_COMMIT, two markers, offsets with COMMITTED: a decided batch counts as
    applied, and nothing is pending without a decision.
    """
    verdicts, unfinished = [], []
    for write in range(8):
        log = new_log()
        query = Query(log, tmp_path / f"{write}")
        query.run(log.process(), "first", 0, 0, 4)
        query.note(0)
        store = DyingStore(log.memory)
        process = log.process(store)
        query.plan(1, 4, 7)
        messages = query.tasks(process, "first", 1, 4, 7)
        store.die_at(write, after=is_after)
        with suppress(ProcessDied):
            query.commit(process, "first", 1, messages)
        comparison = compared(log, query)
        verdicts.append(comparison.next_start)
        unfinished += comparison.unfinished
        before = len(log.values("even", "odd"))
        query.replay(log.process(), "second", 1, 4, 7)
        grew = len(log.values("even", "odd")) - before
        assert (comparison.next_start, grew) in [
            (NextStart.REPLAY, 3),
            (NextStart.ALREADY_IN, 0),
            (NextStart.ALREADY_IN, 1),
            (NextStart.ALREADY_IN, 2),
            (NextStart.ALREADY_IN, 3),
        ]
        assert sorted(row["n"] for row in log.values("even", "odd")) == list(range(7))
    assert set(verdicts) == {NextStart.REPLAY, NextStart.ALREADY_IN}
    assert unfinished
    assert all("is decided COMMIT; the next start applies it" in line for line in unfinished)


# Checkpoints of another kind.


def test_query_without_a_planned_batch_begins(log: MemoryLog, tmp_path: Path) -> None:
    assert compared(log, Query(log, tmp_path / "new")).next_start is NextStart.BEGINS


def test_missing_or_damaged_metadata_is_refused(log: MemoryLog, query: Query) -> None:
    (query.folder / "metadata").unlink()
    comparison = compared(log, query)
    assert comparison.next_start is NextStart.REFUSED
    assert "metadata is missing" in comparison.reason
    (query.folder / "metadata").write_text("[" * 100_000)
    assert compared(log, query).next_start is NextStart.REFUSED


def test_missing_offsets_file_is_refused(log: MemoryLog, query: Query) -> None:
    query.plan(1, 4, 7)
    (query.folder / "offsets" / "0").unlink()
    comparison = compared(log, query)
    assert comparison.next_start is NextStart.REFUSED
    assert "offsets/0 is missing" in comparison.reason


def test_R12_group_owned_by_another_query_is_refused_with_takeover_remedy(
    log: MemoryLog, query: Query, tmp_path: Path
) -> None:
    other = Query(log, tmp_path / "other", "another query")
    other.plan(0, 4, 7)
    comparison = compared(log, other)
    assert comparison.next_start is NextStart.REFUSED
    assert "belongs to 'spark.query'" in comparison.reason
    assert "group.takeover=true" in comparison.remedy


def test_query_without_txlog_sink_follows_its_checkpoint(tmp_path: Path) -> None:
    log = new_log()
    query = Query(log, tmp_path / "console")
    query.plan(0, 0, 4)
    assert compared(log, query).next_start is NextStart.REPLAY
    query.note(0)
    move_group(log, 9)
    comparison = compared(log, query)
    assert comparison.next_start is NextStart.NEW_BATCH
    assert "no txlog sink" in comparison.reason


def test_deleted_topic_has_no_log_end(log: MemoryLog, query: Query) -> None:
    log.admin.delete_topics(["numbers"])
    (part,) = compared(log, query).partitions
    assert (part.where.topic, part.log_end) == (SOURCE.topic, None)


def test_labelled_foreach_batch_write_may_skip_batches(tmp_path: Path) -> None:
    log = new_log()
    options = replace(Query(log, tmp_path / "a").options, label="first")
    query = Query(log, tmp_path / "b", options=options)
    query.run(log.process(), "first", 0, 0, 4)
    query.note(0)
    query.plan(1, 4, 4)
    query.note(1)
    assert compared(log, query).next_start is NextStart.NEW_BATCH


LOAD = """
import sys
import spark_plugin.checkpoints.checkpoint_comparison, txlog.cli.main
sys.exit("pyspark" in sys.modules or "py4j" in sys.modules)
"""


def test_cli_and_checkpoint_comparison_do_not_import_pyspark() -> None:
    assert subprocess.run([sys.executable, "-c", LOAD], cwd=ROOT, check=False).returncode == 0
