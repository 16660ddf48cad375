"""The commit in a process that has committed a batch of its run before: rules R60 and R61.

Such a process decides on the states that it has in memory, and returns before the group's offsets
and COMMITTED are written. Here nothing runs in its background unless the test says so.
"""

import itertools
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_plugin.option_values import OffsetPoint, OffsetSpec
from spark_plugin.options import ReaderOptions
from spark_plugin.source.stream_reader import TxlogStreamReader
from tests.logs.memory_log import MemoryLog
from tests.stores.faulty_stores import HookedStore
from tests.unit.held_fan_out import HeldFanOut
from tests.unit.spark_plugin.sink.test_batch_commit import check, copied, next_entry, position
from tests.unit.spark_plugin.source.test_stream_reader import planned
from tests.unit.spark_plugin.spark_query import (
    COLUMNS,
    COUNT,
    GROUP,
    OPTIONS,
    SOURCE,
    Query,
    new_log,
)
from txlog.clock import Runtime
from txlog.engine.connection import open_connection
from txlog.errors import CheckpointConflict
from txlog.groups.state import UNCHECKED, PendingOffset
from txlog.settings import LogSettings
from txlog.storage import Store
from txlog.testing.clock import SeededEntropy

_SEEDS = itertools.count(1_000)


class Process:
    """A process of the driver, whose background work is held."""

    def __init__(self, log: MemoryLog, store: Store | None = None) -> None:
        self.background = HeldFanOut(holds_started=True)
        runtime = Runtime(log.clock, SeededEntropy(next(_SEEDS)), self.background)
        self.connection = open_connection(store or log.memory, runtime)


def two_batches(log: MemoryLog, query: Query) -> Process:
    """A process that has committed the numbers below 4 in two batches. The second one is decided,
    and visible."""
    process = Process(log)
    query.run(process.connection, "run", 0, 0, 2)
    query.run(process.connection, "run", 1, 2, 4)
    return process


def open_transactions(log: MemoryLog) -> int:
    return sum(len(list(c.state.open_transactions())) for c in log.process().caught_up())


def stored_position(log: MemoryLog) -> int:
    """The group's position as stored, whatever is decided."""
    return log.process().offsets.group(GROUP).committed[SOURCE].offset


def decisions(log: MemoryLog) -> int:
    """How many entries the coordinator's journal has."""
    folder = log.connection.cluster.layout.transactions(0).entries
    return sum(path.startswith(folder) for path in log.objects())


# R60: what is decided on the states in memory.


def test_R60_group_moved_since_the_batch_before_is_refused_with_its_position(
    log: MemoryLog, query: Query
) -> None:
    process = two_batches(log, query)
    topic_id = log.connection.cluster.topic(SOURCE.topic).topic_id
    moved = PendingOffset(SOURCE.topic, topic_id, 0, 4, 6)
    log.process().offsets.commit(GROUP, (moved,))
    with pytest.raises(CheckpointConflict, match=r"checkpoint \[4, 8\), group 6"):
        query.run(process.connection, "run", 2, 4, 8)
    assert copied(log) == list(range(4))
    assert position(log) == 6


def test_R60_batch_after_another_plan_of_the_batch_before_is_refused(
    log: MemoryLog, tmp_path: Path
) -> None:
    """The first process has not seen the batch that another one has committed under the same mark,
    with another transactional id, so that no epoch tells it."""
    labelled = replace(OPTIONS, label="copy", transactional_id="one")
    query = Query(log, tmp_path / "checkpoint", options=labelled, group=None)
    other = replace(labelled, transactional_id="two")
    first, second = Process(log), Process(log)
    query.plan_other(0, 2)
    query.replay(first.connection, "run", 0, 0, 2)
    query.plan_other(1, 4)
    query.options = other
    query.replay(second.connection, "other run", 1, 2, 4)
    # The checkpoint was restored, and batch 1 planned again, which the other run recorded as done.
    query.plan_other(1, 3)
    query.plan_other(2, 6)
    query.options = labelled
    with pytest.raises(CheckpointConflict, match="another batch 1, the one before it"):
        query.replay(first.connection, "run", 2, 3, 6)
    assert copied(log) == list(range(4))


def test_R60_batch_that_another_run_has_committed_is_stored_once(
    log: MemoryLog, query: Query
) -> None:
    """Nothing of it is in the memory of the run that it has superseded."""
    process = two_batches(log, query)
    query.run(log.process(), "newer", 2, 4, 8)
    query.replay(process.connection, "run", 2, 4, 8)
    check(log, 8)


def test_R60_batch_without_a_group_that_another_run_has_committed_is_stored_once(
    log: MemoryLog, tmp_path: Path
) -> None:
    """Of a source that is not txlog only the mark and the epoch say that."""
    query = Query(log, tmp_path / "checkpoint", group=None)
    process = Process(log)
    query.plan_other(0, 2)
    query.replay(process.connection, "run", 0, 0, 2)
    query.plan_other(1, 4)
    query.replay(log.process(), "newer", 1, 2, 4)
    query.replay(process.connection, "run", 1, 2, 4)
    assert copied(log) == list(range(4))
    log.check()


def test_R60_state_in_memory_that_allows_no_commit_is_read_again(
    log: MemoryLog, query: Query
) -> None:
    """This process has seen the group moved by hand, and not yet that it was moved back."""
    process = two_batches(log, query)
    topic_id = log.connection.cluster.topic(SOURCE.topic).topic_id
    for end in (6, 4):
        log.process().offsets.commit(
            GROUP, (PendingOffset(SOURCE.topic, topic_id, 0, UNCHECKED, end),)
        )
        if end == 6:
            process.connection.offsets.group(GROUP)
    query.run(process.connection, "run", 2, 4, 8)
    check(log, 8)


def test_R60_next_batch_is_decided_without_a_read(log: MemoryLog, query: Query) -> None:
    store = HookedStore(log.memory)
    process = Process(log, store)
    query.run(process.connection, "run", 0, 0, 2)
    query.run(process.connection, "run", 1, 2, 4)
    query.plan(2, 4, 6)
    messages = query.tasks(log.process(), "run", 2, 4, 6)
    entry = next_entry(log)
    read: list[str] = []
    store.before("get", entry, lambda: read.append("before the decision"))
    query.commit(process.connection, "run", 2, messages)
    assert not read
    check(log, 6)


# R61: what follows in the background.


def test_R61_process_waits_for_the_completion_of_its_first_batch_only(
    log: MemoryLog, query: Query
) -> None:
    process = Process(log)
    query.run(process.connection, "run", 0, 0, 2)
    assert (open_transactions(log), stored_position(log)) == (0, 2), "the process may end now"
    query.run(process.connection, "run", 1, 2, 4)
    assert (open_transactions(log), stored_position(log)) == (1, 2)
    assert copied(log) == list(range(4)), "its records are visible all the same"
    process.background.let_go()
    assert (open_transactions(log), stored_position(log)) == (0, 4)
    check(log, 4)


def test_R61_next_decision_includes_the_completion(log: MemoryLog, query: Query) -> None:
    process = two_batches(log, query)
    before = decisions(log)
    query.run(process.connection, "run", 2, 4, 6)
    assert decisions(log) == before + 1
    assert stored_position(log) == 4
    process.background.let_go()
    assert decisions(log) == before + 2
    check(log, 6)


def test_R61_source_takes_the_position_of_a_decided_batch(
    log: MemoryLog, query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: it warned that the group stays behind."""
    two_batches(log, query)
    options = ReaderOptions(
        OPTIONS.root,
        subscribe=(SOURCE.topic,),
        group_id=GROUP,
        starting_offsets=OffsetSpec(OffsetPoint.COMMITTED),
    )
    reader = TxlogStreamReader(options, COLUMNS)
    reader._connection = log.process()
    before = decisions(log)
    with caplog.at_level(logging.WARNING):
        end = reader.latestOffset(planned(query, 1), ReadAllAvailable())
    assert end["topics"][SOURCE.topic]["partitions"]["0"] == {"from": 4, "to": COUNT}
    assert caplog.messages == []
    assert decisions(log) == before, "the source writes nothing"


def new_run(log: MemoryLog, query: Query) -> None:
    """The driver was killed, and another one continues from the checkpoint."""
    query.run(log.process(), "second", 2, 4, COUNT)


def replayed(log: MemoryLog, query: Query) -> None:
    """The same, but Spark has not recorded the batch as done."""
    process = log.process()
    query.replay(process, "second", 1, 2, 4)
    query.run(process, "second", 2, 4, COUNT)


def other_process_of_the_run(log: MemoryLog, query: Query) -> None:
    query.run(log.process(), "run", 2, 4, COUNT)


def without_checkpoint(log: MemoryLog, query: Query) -> None:
    """A new query begins at the group's position, and takes the group over."""
    options = replace(query.options, group_takeover=True)
    fresh = Query(log, query.folder / "new", "another query", options)
    fresh.run(log.process(), "second", 0, position(log), COUNT)


@pytest.mark.parametrize(
    "following", [new_run, replayed, other_process_of_the_run, without_checkpoint]
)
def test_R61_next_process_completes_a_batch_whose_process_was_killed(
    log: MemoryLog, query: Query, following: Callable[[MemoryLog, Query], None]
) -> None:
    two_batches(log, query)
    assert open_transactions(log) == 1
    following(log, query)
    assert open_transactions(log) == 0
    check(log, COUNT)


def test_R61_killed_process_may_wake_after_its_successor(log: MemoryLog, query: Query) -> None:
    process = two_batches(log, query)
    query.run(log.process(), "second", 2, 4, 6)
    process.background.let_go()
    check(log, 6)


def test_R61_offsets_are_applied_after_every_marker(log: MemoryLog, query: Query) -> None:
    store = HookedStore(log.memory)
    process = Process(log, store)
    query.run(process.connection, "run", 0, 0, 2)
    seen = []
    for name in ("even", "odd"):
        layout = log.connection.cluster.topic(name).layout
        entry = layout.entry(sum(path.startswith(layout.entries) for path in log.objects()))
        store.before("create", entry, lambda: seen.append(stored_position(log)))
    query.run(process.connection, "run", 1, 2, 4)
    assert seen == [2, 2]
    process.background.let_go()
    check(log, 4)


def test_R61_completion_of_a_group_elsewhere_is_included_step_by_step(tmp_path: Path) -> None:
    """Its offsets go into the entry of its next pend, and COMMITTED into that of the decision."""
    log = new_log(LogSettings(transaction_state_log_num_partitions=7))
    query = Query(log, tmp_path / "checkpoint")
    process = two_batches(log, query)
    query.run(process.connection, "run", 2, 4, 6)
    assert stored_position(log) == 4
    process.background.let_go()
    process.background.let_go()
    check(log, 6)
