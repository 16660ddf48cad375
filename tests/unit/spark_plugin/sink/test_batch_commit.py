"""The commit of a micro-batch without Spark: every crash, two runs at once, every replay."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from spark_plugin.checkpoints.checkpoint import Checkpoint, CheckpointFiles
from spark_plugin.sink.batch_commit import STAGED_TIMEOUT_MS, BatchCommitter
from spark_plugin.sink.staging import TaskMessage, batch_identity
from tests.logs.memory_log import MemoryLog
from tests.stores.faulty_stores import DyingStore, HookedStore, ProcessDied
from tests.unit.spark_plugin.spark_query import COUNT, GROUP, OPTIONS, SOURCE, Query, new_log
from txlog.engine import transaction_session
from txlog.engine.connection import Connection
from txlog.errors import CheckpointConflict, GroupOwned, InvalidOption, ProducerFenced
from txlog.model import TransactionOutcome, TxId


def copied(log: MemoryLog) -> list[int]:
    """All copied numbers."""
    return sorted(row["n"] for row in log.values("even", "odd"))


def position(log: MemoryLog) -> int:
    """The group's position, after finishing decided transactions."""
    committed = log.process().offsets.resolve_and_fetch(GROUP, [SOURCE])[SOURCE]
    return 0 if committed is None else committed.offset


def check(log: MemoryLog, end: int) -> None:
    """Check that the numbers below `end` were copied once, the group is at `end`, and the log is
    sound."""
    assert copied(log) == list(range(end))
    assert position(log) == end
    log.check()


def next_entry(log: MemoryLog, ahead: int = 0) -> str:
    """Path of the coordinator journal's next entry, or of a later one."""
    layout = log.connection.cluster.layout.transactions(0)
    return layout.entry(sum(path.startswith(layout.entries) for path in log.objects()) + ahead)


# Crashes.


def restart(log: MemoryLog, query: Query, batch: int, start: int, end: int) -> None:
    """Continue from the checkpoint: a new run replays the batch."""
    process = log.process()
    query.replay(process, "second", batch, start, end)
    query.run(process, "second", batch + 1, end, COUNT)


def restart_without_checkpoint(
    log: MemoryLog, query: Query, batch: int, start: int, end: int
) -> None:
    """Continue without the checkpoint: a new query takes over the group at its position."""
    log.clock.advance(STAGED_TIMEOUT_MS + 1)
    options = replace(query.options, group_takeover=True)
    fresh = Query(log, query.folder / "new", "another query", options)
    fresh.run(log.process(), "second", 0, position(log), COUNT)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pend and decision are separate entries, as for a batch that does not fit in one entry."""
    monkeypatch.setattr(transaction_session, "STORED_BATCH_BYTES", 1 << 30)


@pytest.mark.parametrize("recover", [restart, restart_without_checkpoint])
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("batch", [0, 1], ids=["first batch", "later batch"])
def test_I5_I10_driver_crash_at_any_write_loses_and_duplicates_nothing(
    tmp_path: Path, batch: int, is_after: bool, recover: Callable[..., None]
) -> None:
    """Registration (first batch only), pend with prepare, two topics, offsets with complete."""
    write = 0
    while dies_at(tmp_path / f"{write}", write, is_after, batch, recover):
        write += 1
    assert write >= 4 + 2 * (batch == 0)


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("recover", [restart, restart_without_checkpoint])
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("batch", [0, 1], ids=["first batch", "later batch"])
def test_I5_I10_driver_crash_with_separate_pend_entry_loses_and_duplicates_nothing(
    tmp_path: Path, batch: int, is_after: bool, recover: Callable[..., None]
) -> None:
    """Registration (first batch only), pend, prepare, two topics, offsets with complete."""
    write = 0
    while dies_at(tmp_path / f"{write}", write, is_after, batch, recover):
        write += 1
    assert write >= 5 + 2 * (batch == 0)


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("batch", [0, 1], ids=["first batch", "later batch"])
def test_I5_I10_driver_crash_in_batch_above_entry_limit_loses_and_duplicates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int, is_after: bool
) -> None:
    """Registration (first batch only), two manifests, pend with prepare, two markers, offsets with
    complete."""
    monkeypatch.setattr(Connection, "entry_batches_max", 1)
    write = 0
    while dies_at(tmp_path / f"{write}", write, is_after, batch, restart):
        write += 1
    assert write >= 6 + (batch == 0)


def test_batches_above_and_below_entry_limit_commit_in_sequence(
    log: MemoryLog, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large and small ones share a session: each number is used once."""
    process = log.process()
    for batch, batches_max in enumerate([1, 1, 4_000, 1, 4_000]):
        monkeypatch.setattr(Connection, "entry_batches_max", batches_max)
        query.run(process, "run", batch, 2 * batch, 2 * batch + 2)
    check(log, 10)


def dies_at(
    folder: Path, write: int, is_after: bool, batch: int, recover: Callable[..., None]
) -> bool:
    """Let a driver die at that write, and continue. Return whether the write existed."""
    log = new_log()
    query = Query(log, folder)
    store = DyingStore(log.memory)
    process = log.process(store)
    if batch:
        query.run(process, "first", 0, 0, 2)
    start, end = 2 * batch, 2 * batch + 5
    query.plan(batch, start, end)
    messages = query.tasks(process, "first", batch, start, end)
    store.die_at(write, after=is_after)
    try:
        query.commit(process, "first", batch, messages)
    except ProcessDied:
        assert copied(log) == list(range(start)) or is_decided(log)
    recover(log, query, batch, start, end)
    check(log, COUNT)
    return store.is_dead


def is_decided(log: MemoryLog) -> bool:
    """Whether the newest transaction of the query is decided COMMIT."""
    coordinator = log.process().coordinator(0)
    known = coordinator.catch_up().ids["spark.query"]
    newest = max([*known.open, known.last_tx_id or TxId(0, 0, -1)])
    return coordinator.outcome(newest) is TransactionOutcome.COMMITTED


# Replays.


def test_I10_replay_of_committed_batch_writes_nothing_and_fences_no_run(
    log: MemoryLog, query: Query
) -> None:
    first, second = log.process(), log.process()
    query.run(first, "first", 0, 0, 4)
    messages = query.tasks(second, "second", 0, 0, 4)
    before = log.objects()
    query.commit(second, "second", 0, messages)
    assert log.changed_since(before) == []
    query.run(first, "first", 1, 4, 6)
    check(log, 6)


@pytest.mark.parametrize("write", range(5))
def test_R23_replay_completes_watermark_only_batch_after_crash(
    log: MemoryLog, query: Query, write: int
) -> None:
    """Its offsets do not advance, so only the second test applies; a replay finds it complete."""
    store = DyingStore(log.memory)
    process = log.process(store)
    query.run(process, "first", 0, 0, 2)
    (query.folder / "offsets" / "1").write_text((query.folder / "offsets" / "0").read_text())
    messages = query.tasks(process, "first", 1, 2, 6)
    store.die_at(write, after=True)
    with suppress(ProcessDied):
        query.commit(process, "first", 1, messages)
    query.replay(log.process(), "second", 1, 2, 6)
    assert copied(log) == list(range(6))
    assert position(log) == 2
    log.check()


def test_R1_commit_for_a_rewritten_plan_is_refused(log: MemoryLog, query: Query) -> None:
    process = log.process()
    query.plan(0, 0, 2)
    old = query.tasks(process, "run", 0, 0, 2)
    query.plan(0, 0, 4)
    with pytest.raises(CheckpointConflict, match="was rewritten while the batch ran"):
        query.commit(process, "run", 0, old)
    mixed = [old[0], query.tasks(process, "run", 0, 0, 4)[1]]
    with pytest.raises(CheckpointConflict, match="ran for different plans"):
        query.commit(process, "run", 0, mixed)
    check(log, 0)


def test_R1_tasks_with_the_plan_of_another_batch_are_refused(log: MemoryLog, query: Query) -> None:
    """As in foreachBatch, where Spark gives the writer no batch id."""
    process = log.process()
    query.run(process, "newer", 0, 0, 2)
    query.plan(1, 2, 4)
    messages = query.tasks(process, "older", 0, 0, 1)
    with pytest.raises(CheckpointConflict, match="newest plan in the checkpoint was 1"):
        query.commit(process, "older", 0, messages)
    check(log, 2)


def replanned(log: MemoryLog, query: Query) -> list[TaskMessage]:
    """Batch 0 was committed with the end 2, and ends at 4 in the checkpoint; batch 1 follows."""
    process = log.process()
    query.plan_other(0, 2)
    query.replay(process, "first", 0, 0, 2)
    query.plan_other(0, 4)
    query.plan_other(1, 6)
    return query.tasks(process, "second", 1, 4, 6)


def test_R2_batch_of_other_source_after_replanned_batch_is_refused(
    log: MemoryLog, query: Query
) -> None:
    messages = replanned(log, query)
    with pytest.raises(CheckpointConflict, match="another batch 0, the one before it, than"):
        query.commit(log.process(), "second", 1, messages)
    assert copied(log) == [0, 1]
    query.plan_other(0, 2)
    query.replay(log.process(), "third", 1, 2, 6)
    assert copied(log) == list(range(6))
    log.check()


@dataclass
class ChangingFiles:
    """A checkpoint's folder that calls a function before one file is read."""

    files: CheckpointFiles
    name: str
    happens: Callable[[], None]

    def read(self, name: str) -> bytes | None:
        """See CheckpointFiles."""
        if name == self.name:
            self.happens()
        return self.files.read(name)

    def list_names(self, folder: str) -> list[str]:
        """See CheckpointFiles."""
        return self.files.list_names(folder)


def test_R1_checkpoint_restored_while_it_is_read_is_refused(log: MemoryLog, query: Query) -> None:
    """Batch 0 of the checkpoint matches the log again, but the plan of the tasks is gone."""
    messages = replanned(log, query)

    def put_back() -> None:
        query.plan_other(0, 2)
        (query.folder / "offsets" / "1").unlink()

    files = ChangingFiles(query.checkpoint.files, "offsets/0", put_back)
    checkpoint, identity = Checkpoint("changing", files), batch_identity(messages, 1)
    committer = BatchCommitter(log.process(), query.options, checkpoint, identity, messages)
    with pytest.raises(CheckpointConflict, match=r"offsets/1 is missing"):
        committer.commit()
    assert copied(log) == [0, 1]
    log.check()


def test_R24_the_checkpoint_of_another_query_is_refused(log: MemoryLog, query: Query) -> None:
    (query.folder / "metadata").write_text('{"id": "another"}')
    with pytest.raises(CheckpointConflict, match="is of query another"):
        query.run(log.process(), "run", 0, 0, 2)
    check(log, 0)


def test_R29_a_source_without_a_group_is_refused(log: MemoryLog, tmp_path: Path) -> None:
    query = Query(log, tmp_path / "checkpoint", group=None)
    with pytest.raises(InvalidOption, match="group.id"):
        query.run(log.process(), "run", 0, 0, 2)
    check(log, 0)


# One run in several processes, and two runs at once.


def test_commits_of_one_run_may_come_from_any_driver_process(log: MemoryLog, query: Query) -> None:
    """Spark gives a commit to any idle Python process, and queries share these."""
    one, other = log.process(), log.process()
    query.run(one, "run", 0, 0, 2)
    query.run(other, "run", 1, 2, 4)
    query.run(one, "run", 2, 4, 6)
    query.run(one, "run", 3, 6, 8)
    query.run(other, "run", 4, 8, 10)
    check(log, 10)


def test_R27_superseded_run_stays_fenced(log: MemoryLog, query: Query) -> None:
    older, newer = log.process(), log.process()
    query.run(older, "older", 0, 0, 2)
    query.run(newer, "newer", 1, 2, 4)
    with pytest.raises(ProducerFenced):
        query.run(older, "older", 2, 4, 6)
    with pytest.raises(ProducerFenced, match="run older .* was superseded by run newer"):
        query.run(older, "older", 2, 4, 6)
    query.run(newer, "newer", 2, 4, 6)
    check(log, 6)


def test_R12_run_stalled_before_combined_pend_and_prepare_is_refused(
    log: MemoryLog, query: Query
) -> None:
    stalls_while_a_newer_run_commits(log, query, 0, "before")


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize(
    ("ahead", "place"),
    [(0, "before"), (0, "after"), (1, "before")],
    ids=["before its pend", "after its pend", "before its prepare"],
)
def test_R12_run_stalled_at_separate_pend_or_prepare_is_refused(
    log: MemoryLog, query: Query, ahead: int, place: str
) -> None:
    stalls_while_a_newer_run_commits(log, query, ahead, place)


def stalls_while_a_newer_run_commits(log: MemoryLog, query: Query, ahead: int, place: str) -> None:
    """The older run is refused, and the newer one's batches are in the log once."""
    store = HookedStore(log.memory)
    older, newer = log.process(store), log.process()
    query.run(older, "older", 0, 0, 2)
    query.plan(1, 2, 4)
    messages = query.tasks(older, "older", 1, 2, 4)

    def overtake() -> None:
        query.replay(newer, "newer", 1, 2, 4)
        query.run(newer, "newer", 2, 4, 6)

    hook = store.before if place == "before" else store.after
    hook("create", next_entry(log, ahead), overtake)
    with pytest.raises((ProducerFenced, CheckpointConflict)):
        query.commit(older, "older", 1, messages)
    check(log, 6)


def test_I10_batch_of_stalled_run_committed_by_newer_run_is_already_in(
    log: MemoryLog, query: Query
) -> None:
    store = HookedStore(log.memory)
    older, newer = log.process(store), log.process()
    query.plan(0, 0, 4)
    messages = query.tasks(older, "older", 0, 0, 4)
    pend = next_entry(log, 1)  # After the registration.
    store.before("create", pend, lambda: query.replay(newer, "newer", 0, 0, 4))
    query.commit(older, "older", 0, messages)
    assert store.is_met
    check(log, 4)


# Pends of other transactions.


def test_R12_query_that_lost_its_group_releases_its_pend(
    log: MemoryLog, query: Query, tmp_path: Path
) -> None:
    store = HookedStore(log.memory)
    old = log.process(store)
    query.run(old, "old", 0, 0, 2)
    options = replace(OPTIONS, group_takeover=True)
    successor = Query(log, tmp_path / "new", "successor", options)

    def take_over() -> None:
        # Its first batch is empty: it then owns the group, whose position does not change.
        successor.run(log.process(), "new", 0, 2, 2)

    query.plan(1, 2, 4)
    messages = query.tasks(old, "old", 1, 2, 4)
    store.before("create", next_entry(log), take_over)
    with pytest.raises(GroupOwned, match="owned by 'spark.successor'"):
        query.commit(old, "old", 1, messages)
    assert not log.process().offsets.group(GROUP).pending
    slept = len(log.clock.slept_ms)
    successor.run(log.process(), "new", 1, 2, 4)
    assert len(log.clock.slept_ms) == slept
    check(log, 4)


@pytest.mark.usefixtures("apart")
def test_R3_commit_waits_for_pend_of_dead_query_until_timeout(
    log: MemoryLog, query: Query, tmp_path: Path
) -> None:
    store = DyingStore(log.memory)
    dead = log.process(store)
    query.run(dead, "dead", 0, 0, 2)
    query.plan(1, 2, 4)
    messages = query.tasks(dead, "dead", 1, 2, 4)
    store.die_at(0, after=True)
    with pytest.raises(ProcessDied):
        query.commit(dead, "dead", 1, messages)
    options = replace(OPTIONS, group_takeover=True)
    Query(log, tmp_path / "new", "successor", options).run(log.process(), "new", 0, 2, 4)
    assert sum(log.clock.slept_ms) >= STAGED_TIMEOUT_MS
    check(log, 4)


@pytest.mark.usefixtures("apart")
def test_R3_transaction_barred_before_its_decision_is_retried(log: MemoryLog, query: Query) -> None:
    """An operator barred it, or a reader after the run's timeout."""
    store = HookedStore(log.memory)
    process = log.process(store)
    query.run(process, "run", 0, 0, 2)
    query.plan(1, 2, 4)
    messages = query.tasks(process, "run", 1, 2, 4)

    def bar() -> None:
        log.clock.advance(STAGED_TIMEOUT_MS + 1)
        assert position(log) == 2

    store.before("create", next_entry(log, 1), bar)
    query.commit(process, "run", 1, messages)
    check(log, 4)
