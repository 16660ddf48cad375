"""The failure traces that rules prevent, replayed over journals, with separate processes."""

from collections.abc import Callable

import pytest

from tests.protocol.steps import (
    GROUP,
    NAME,
    TIMEOUT_MS,
    append,
    coordinator,
    finish,
    is_sound,
    participant,
    pend,
    position,
    prepare,
    register,
    shown,
    tx_of,
)
from tests.protocol.world import NAMES, Process, World, visible
from tests.stores.faulty_stores import ProcessDied
from txlog.coordinator.events import (
    CommitPrepared,
    OffsetRange,
    ParticipantsAdded,
    ReplayMark,
)
from txlog.coordinator.transaction import PREPARED, TransactionState
from txlog.errors import (
    CommitFailed,
    ConcurrentTransactions,
    GroupOwned,
    InvalidProducerEpoch,
    OutcomeUnknown,
    ProducerFenced,
    SegmentExpired,
    TransactionAborted,
    UnknownTopic,
    UnstableOffsetCommit,
)
from txlog.model import IsolationLevel, TopicPartition, TransactionOutcome, TxId
from txlog.topic.events import AdvanceHorizon, AppendBatches

COMMITTED, ABORTED = TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED


@pytest.fixture
def world() -> World:
    world = World()
    world.create_topics("src", "a", "b")
    process = world.process()
    segment = process.stage("src", range(100))
    process.topic("src").execute(AppendBatches((segment,)))
    return world


def test_R2_restored_checkpoint_cannot_commit_the_same_batch_with_other_offsets(
    world: World,
) -> None:
    """Batch 0 was [0, 3). The checkpoint is restored, and a later run plans batch 0 as [0, 2)."""
    first = world.process()
    tx = tx_of(register(first, "run 1", is_run=True))

    def mark(end: int) -> ReplayMark:
        return ReplayMark("query", 0, (OffsetRange(GROUP, "src", 0, 0, end),))

    prepare(first, tx, participant(first, "a", 0, 1, 2), groups=(), mark=mark(3))
    finish(first, tx)
    second = world.process()
    again = tx_of(register(second, "run 2", is_run=True))
    with pytest.raises(CommitFailed, match="batch 0 of query"):
        prepare(second, again, participant(second, "a", 0, 1), groups=(), mark=mark(2))
    assert coordinator(second).catch_up().marks["query/"] == mark(3)
    assert shown(world, "a") == [0, 1, 2]
    assert is_sound(world)


def test_R3_pend_of_a_dead_run_is_released_after_the_bar_and_late_prepare_fails(
    world: World,
) -> None:
    stalled, other = world.process(), world.process()
    tx = tx_of(register(stalled, "run 1"))
    staged = participant(stalled, "a", 0, 1)
    pend(stalled, tx, 0, 2)
    own = tx_of(register(other, "i", "y"))
    with pytest.raises(UnstableOffsetCommit):
        pend(other, own, 0, 3, "y")
    world.clock.advance(TIMEOUT_MS + 1)
    pend(other, own, 0, 3, "y")
    assert coordinator(other).outcome(tx) is ABORTED, "the bar came before the release"
    with pytest.raises(TransactionAborted):
        prepare(stalled, tx, staged)
    prepare(other, own, participant(other, "a", 0, 1, 2), name="y")
    finish(other, own, "y")
    assert (shown(world, "a"), position(world)) == ([0, 1, 2], 3)
    assert is_sound(world)


def test_R3_pend_is_not_released_if_its_prepare_was_first(world: World) -> None:
    """The run is alive after all: its PREPARE wins the slot before the helper's bar."""
    slow, helper = world.process(), world.process()
    tx = tx_of(register(slow, "run 1"))
    staged = participant(slow, "a", 0, 1)
    pend(slow, tx, 0, 2)
    own = tx_of(register(helper, "i", "y"))
    world.clock.advance(TIMEOUT_MS + 1)
    journal = NAMES.transactions(0)
    slot = coordinator(helper).journal.next_slot
    helper.store.before("create", journal.entry(slot), lambda: prepare(slow, tx, staged))
    with pytest.raises(CommitFailed, match="committed 2"):
        pend(helper, own, 0, 3, "y")
    assert coordinator(helper).outcome(tx) is COMMITTED
    assert (shown(world, "a"), position(world)) == ([0, 1], 2)
    assert is_sound(world)


def test_R3_later_epoch_releases_an_unprepared_pend(world: World) -> None:
    old, new = world.process(), world.process()
    tx = tx_of(register(old, "run 1"))
    pend(old, tx, 0, 2)
    assert position(world) is None
    register(new, "run 2")
    where = TopicPartition("src", 0)
    assert new.connection.offsets.resolve_and_fetch(GROUP, [where]) == {where: None}
    with pytest.raises(ProducerFenced):
        prepare(old, tx, participant(old, "a", 0, 1))
    assert new.connection.offsets.group(GROUP).pending == {}
    assert is_sound(world)


def test_R3_late_pend_of_old_instance_does_not_abort_newer_transaction(
    world: World,
) -> None:
    """The transactional id is the same; only earlier transactions may be aborted as left over."""
    old, new = world.process(), world.process()
    zombie = tx_of(register(old, "run 1"))
    live = tx_of(register(new, "run 2"))
    staged = participant(new, "a", 0, 1)
    pend(new, live, 0, 2)
    with pytest.raises(UnstableOffsetCommit):
        pend(old, zombie, 0, 2)
    prepare(new, live, staged)
    finish(new, live)
    assert (shown(world, "a"), position(world)) == ([0, 1], 2)


def test_R3_pend_not_named_by_its_committed_transaction_does_not_block(
    world: World,
) -> None:
    """The answer to the pend was lost, and the client committed without naming the group."""
    process, other = world.process(), world.process()
    tx = tx_of(register(process, "i"))
    pend(process, tx, 0, 2)
    prepare(process, tx, participant(process, "a", 0, 1), groups=())
    finish(process, tx)
    own = tx_of(register(other, "i", "y"))
    pend(other, own, 2, 3, "y")
    assert other.connection.offsets.group(GROUP).last_commit == tx


def test_R4_late_process_cannot_decide_an_aborted_transaction_again(
    world: World,
) -> None:
    slow, quick = world.process(), world.process()
    tx = tx_of(register(slow, "i"))
    coordinator(quick).abort(NAME, tx)
    with pytest.raises(TransactionAborted):
        coordinator(slow).begin(NAME, tx, TIMEOUT_MS)
    with pytest.raises(TransactionAborted):
        prepare(slow, tx, participant(slow, "a", 1))
    assert coordinator(world.process()).outcome(tx) is ABORTED


def test_R5_new_instance_finishes_prepared_transactions_first(
    world: World,
) -> None:
    """Otherwise the old instance's records would come after the new one's marker, and be dropped as
    old."""
    dead, new = world.process(), world.process()
    tx = tx_of(register(dead, "i"))
    prepare(dead, tx, participant(dead, "a", 1), participant(dead, "b", 1), groups=())
    registration = register(new, "j")
    assert shown(world, "a") == shown(world, "b") == [1]
    assert coordinator(new).outcome(tx) is COMMITTED
    own = tx_of(registration)
    prepare(new, own, participant(new, "a", 2), groups=())
    finish(new, own)
    assert shown(world, "a") == [1, 2]
    assert is_sound(world)


def test_R5_entry_that_bumps_the_epoch_aborts_the_ongoing_transaction(world: World) -> None:
    old, new = world.process(), world.process()
    tx = tx_of(register(old, "i"))
    coordinator(old).begin(NAME, tx, TIMEOUT_MS, (participant(old, "a", logged=True),))
    append(old, "a", tx, 1)
    coordinator(new).catch_up()
    new.connection.cluster.producer_id()
    new.store.die_at(0, after=True)
    with pytest.raises(ProcessDied):
        register(new, "j")
    last = world.process()
    (found,) = coordinator(last).catch_up().open_transactions()
    assert (found[1].tx_id, found[1].state) == (tx, TransactionState.PREPARE_ABORT)
    with pytest.raises(ProducerFenced):
        coordinator(old).execute(ParticipantsAdded(NAME, tx, (participant(old, "b", logged=True),)))
    register(last, "k")
    assert visible(world.process(), "a", IsolationLevel.READ_UNCOMMITTED) == {0: 1}
    assert shown(world, "a") == []
    assert is_sound(world)


def test_R5_prepare_waits_for_the_previous_transaction(world: World) -> None:
    """The process died before `COMMITTED` was written: the next batch finishes the first one."""
    process = world.process()
    registration = register(process, "i")
    first, second = tx_of(registration, 0), tx_of(registration, 1)
    prepare(process, first, participant(process, "a", 1), groups=())
    with pytest.raises(ConcurrentTransactions):
        # The command of `prepare_commit`; that method finishes earlier transactions, and retries.
        coordinator(process).execute(CommitPrepared(NAME, second, 0))
    prepare(process, second, participant(process, "a", 2), groups=())
    assert shown(world, "a") == [1]
    finish(process, second)
    assert shown(world, "a") == [1, 2]


def decided(process: Process, tx: TxId, name: str = NAME) -> Callable[[], None]:
    """A helper's copy of a decided transaction, to be applied at any later time."""
    known = coordinator(process).catch_up().ids[name]
    transaction, floor = known.open[tx], known.floor(tx)
    assert transaction.state in PREPARED

    def apply() -> None:
        coordinator(process)._write_markers(transaction, floor)
        coordinator(process)._end_offsets(transaction)

    return apply


def test_R6_late_helper_changes_nothing(world: World) -> None:
    """The helper reads the first transaction, and applies it after the second one is complete."""
    process, helper = world.process(), world.process()
    registration = register(process, "i")
    first, second = tx_of(registration, 0), tx_of(registration, 1)
    pend(process, first, 0, 2)
    prepare(process, first, participant(process, "a", 0, 1), participant(process, "b", 0, 1))
    late = decided(helper, first)
    finish(process, first)
    pend(process, second, 2, 3)
    late()
    prepare(process, second, participant(process, "a", 2))
    late()
    assert position(world) == 3, "and the reader has finished the second one"
    finish(process, second)
    late()
    assert (shown(world, "a"), shown(world, "b"), position(world)) == ([0, 1, 2], [0, 1], 3)
    assert is_sound(world)


def test_R7_half_messages_are_finished_in_any_order(world: World) -> None:
    process, helper = world.process(), world.process()
    registration = register(process, "i", concurrent=True)
    transactions = [tx_of(registration, number) for number in range(4)]
    for tx in transactions:
        coordinator(process).begin(NAME, tx, TIMEOUT_MS)
    late = []
    for number in (2, 0, 3, 1):
        staged = participant(process, "a", number)
        prepare(process, transactions[number], staged, groups=())
        late.append(decided(helper, transactions[number]))
        finish(process, transactions[number])
        for apply in late:
            apply()
    assert shown(world, "a") == [2, 0, 3, 1]
    producer = world.process().topic("a").catch_up().producers[registration.pid]
    assert (producer.finished_floor, producer.finished_above) == (3, ())
    assert is_sound(world)


def test_R8_crash_between_topics_and_offsets_leaves_the_pend(
    world: World,
) -> None:
    dead = world.process()
    tx = tx_of(register(dead, "i"))
    pend(dead, tx, 0, 2)
    prepare(dead, tx, participant(dead, "a", 0, 1), participant(dead, "b", 0, 1))
    dead.store.die_at(2, after=False)
    with pytest.raises(ProcessDied):
        coordinator(dead).apply(NAME, tx)
    assert shown(world, "a") == shown(world, "b") == [0, 1]
    offsets = world.process().connection.offsets
    assert (set(offsets.group(GROUP).pending), offsets.group(GROUP).committed) == ({tx}, {})
    assert is_sound(world)
    assert position(world) == 2, "a reader of the offsets finishes it"
    assert is_sound(world)


def test_R8_offsets_are_applied_only_after_the_records_of_every_topic(world: World) -> None:
    process = world.process()
    tx = tx_of(register(process, "i"))
    pend(process, tx, 0, 2)
    prepare(process, tx, participant(process, "a", 0, 1), participant(process, "b", 0, 1))
    seen: list[list[int]] = []
    entry = NAMES.transactions(0).entry(process.connection.coordinator(0).journal.next_slot)
    process.store.before("create", entry, lambda: seen.extend([shown(world, t) for t in "ab"]))
    coordinator(process).apply(NAME, tx)
    assert seen == [[0, 1], [0, 1]]


def test_R8_maintenance_finishes_a_prepared_transaction_without_pends(world: World) -> None:
    dead, helper = world.process(), world.process()
    tx = tx_of(register(dead, "i"))
    prepare(dead, tx, participant(dead, "a", 7), groups=())
    assert coordinator(helper).maintain() == [tx]
    assert (shown(world, "a"), coordinator(helper).outcome(tx)) == ([7], COMMITTED)
    assert coordinator(helper).maintain() == []


def test_R9_append_is_known_absent_only_once_another_entry_holds_its_slot(
    world: World,
) -> None:
    """The answer is lost and the write is late: only the next entry in its slot decides."""
    process = world.process()
    tx = tx_of(register(process, "i"))
    coordinator(process).begin(NAME, tx, TIMEOUT_MS, (participant(process, "a", logged=True),))
    process.topic("a").catch_up()
    process.store.next_entry_is_late = True
    with pytest.raises(OutcomeUnknown):
        append(process, "a", tx, 1)
    (late,) = process.store.late
    append(process, "a", tx, 1)
    late.land()
    prepare(process, tx, groups=())
    finish(process, tx)
    assert shown(world, "a") == [1]
    assert is_sound(world)


def test_R10_records_after_the_abort_marker_are_refused(world: World) -> None:
    """The zombie has declared the topic and written nothing to it when its marker arrives."""
    zombie, new = world.process(), world.process()
    tx = tx_of(register(zombie, "i"))
    declared = participant(zombie, "a", logged=True)
    coordinator(zombie).begin(NAME, tx, TIMEOUT_MS, (declared,))
    coordinator(new).abort(NAME, tx)
    with pytest.raises(TransactionAborted):
        append(zombie, "a", tx, 1)
    register(new, "j")
    fenced = tx_of(register(new, "j"), 0)
    coordinator(new).begin(NAME, fenced, TIMEOUT_MS, (declared,))
    append(new, "a", fenced, 2)
    with pytest.raises(InvalidProducerEpoch):
        append(zombie, "a", TxId(tx.pid, tx.epoch, 1), 3)
    prepare(new, fenced, groups=())
    finish(new, fenced)
    assert shown(world, "a") == [2]
    assert is_sound(world)


def test_R11_R40_transaction_of_a_deleted_topic_is_refused_and_writes_nothing(
    world: World,
) -> None:
    process, slow, other = world.process(), world.process(), world.process()
    tx = tx_of(register(process, "i"))
    staged = participant(process, "a", 1), participant(process, "b", 1)
    old, segment = slow.topic("a"), slow.stage("a", [2])
    other.connection.cluster.delete_topics(["a"])
    world.create_topics("a")
    with pytest.raises(UnknownTopic, match="deleted while records for it waited"):
        prepare(process, tx, *staged, groups=())
    with pytest.raises(UnknownTopic, match="deleted while it was in use"):
        old.execute(AppendBatches((segment,)))
    assert world.process().topic("a").topic_id != old.topic_id
    assert (shown(world, "a"), shown(world, "b")) == ([], [])
    assert is_sound(world)


def test_R12_late_stale_run_fences_the_live_one_but_commits_nothing_twice(
    world: World,
) -> None:
    """This costs availability, not safety: the group's offsets decide which run may continue."""
    stale, live = world.process(), world.process()
    live_tx = tx_of(register(live, "run 2", is_run=True, groups=(GROUP,)))
    pend(live, live_tx, 0, 2)
    prepare(live, live_tx, participant(live, "a", 0, 1))
    finish(live, live_tx)
    stale_tx = tx_of(register(stale, "run 1", is_run=True, groups=(GROUP,)))
    with pytest.raises(ProducerFenced):
        prepare(live, TxId(live_tx.pid, live_tx.epoch, 1), participant(live, "a", 2))
    with pytest.raises(CommitFailed, match="committed 2"):
        pend(stale, stale_tx, 0, 1)
    with pytest.raises(GroupOwned):
        register(stale, "i", "another query", groups=(GROUP,))
    assert (shown(world, "a"), position(world)) == ([0, 1], 2)


def prune_all(process: Process, keep: int = 0) -> None:
    """Prune every journal of a transaction, after writing snapshots."""
    coordinator(process).journal.prune(keep)
    for topic in ("a", "b"):
        process.topic(topic).journal.prune(keep)


def test_R14_pruned_log_keeps_records_positions_and_outcomes(world: World) -> None:
    process = world.process()
    registration = register(process, "i")
    for number in range(12):
        tx = tx_of(registration, number)
        pend(process, tx, number, number + 1)
        prepare(process, tx, participant(process, "a", number))
        finish(process, tx)
        if number % 4 == 3:
            prune_all(world.process(), keep=number % 3)
            assert is_sound(world)
    assert (shown(world, "a"), position(world)) == (list(range(12)), 12)
    assert coordinator(world.process()).outcome(tx_of(registration, 0)) is COMMITTED


def test_R15_helper_does_not_mistake_a_pruned_pend_for_an_absent_one(world: World) -> None:
    """The helper stalled before the pend was made. The next slot is missing because it was
    pruned; if that counted as the journal's end, the transaction would be complete and its offsets
    lost.
    """
    helper, process = world.process(), world.process()
    registration = register(process, "i")
    for number in range(8):
        tx = tx_of(registration, number)
        pend(process, tx, number, number + 1)
        if number == 3:
            assert helper.connection.offsets.group(GROUP).last_commit == tx_of(registration, 2)
        prepare(process, tx, participant(process, "a", number))
        if number < 7:
            finish(process, tx)
    process.connection.coordinator(0).journal.prune(0)
    coordinator(helper).finish(NAME, tx_of(registration, 7))
    assert is_sound(world)
    assert position(world) == 8


def test_R15_committed_pend_is_not_released_by_a_helper_with_stale_state(world: World) -> None:
    """The helper's coordinator state is older than the epoch of the pend: it takes the pend's
    transaction for one that can never be prepared."""
    helper, process = world.process(), world.process()
    own = tx_of(register(helper, "i", "y"))
    coordinator(helper).catch_up()
    for number in range(5):
        register(process, f"i {number}")
    tx = tx_of(register(process, "i 5"))
    pend(process, tx, 0, 2)
    prepare(process, tx, participant(process, "a", 0, 1))
    coordinator(process).journal.prune(0)
    with pytest.raises(OutcomeUnknown):  # The freed slot may have been its own (R33).
        pend(helper, own, 0, 3, "y")
    with pytest.raises(CommitFailed, match="committed 2"):
        pend(helper, own, 0, 3, "y")
    assert (shown(world, "a"), position(world)) == ([0, 1], 2)
    assert is_sound(world)


def test_R16_journals_open_to_the_same_state_without_hints(world: World) -> None:
    process = world.process()
    tx = tx_of(register(process, "i"))
    pend(process, tx, 0, 2)
    prepare(process, tx, participant(process, "a", 0, 1))
    finish(process, tx)
    prune_all(process, keep=1)
    topic = NAMES.topic("a", process.topic("a").topic_id)
    for layout in (NAMES.transactions(0), topic):
        world.store.delete(layout.hint)
    fresh = world.process()
    assert coordinator(fresh).catch_up() == coordinator(process).catch_up()
    assert (shown(world, "a"), position(world)) == ([0, 1], 2)


def test_R17_append_below_the_horizon_is_refused_and_written_again(world: World) -> None:
    """No PREPARE_COMMIT protects its segment from the collector yet."""
    slow, collector = world.process(), world.process()
    tx = tx_of(register(slow, "i"))
    coordinator(slow).begin(NAME, tx, TIMEOUT_MS, (participant(slow, "a", logged=True),))
    segment = slow.stage("a", [1])
    world.clock.advance(1000)
    horizon = collector.stage("a", [0]).path.rsplit("/", 1)[-1].removesuffix(".arrow")
    collector.topic("a").execute(AdvanceHorizon(horizon))
    with pytest.raises(SegmentExpired):
        slow.topic("a").execute(AppendBatches((segment,), tx.pid, tx.epoch, tx, {0: 0}))
    world.clock.advance(1)
    append(slow, "a", tx, 1)
    prepare(slow, tx, groups=())
    finish(slow, tx)
    assert shown(world, "a") == [1]


def test_R27_superseded_run_is_fenced_when_it_registers_again(world: World) -> None:
    processes = [world.process() for _ in range(2)]
    register(processes[0], "run 1", is_run=True)
    register(processes[1], "run 2", is_run=True)
    with pytest.raises(ProducerFenced, match="run 2") as caught:
        register(processes[0], "run 1", is_run=True)
    assert caught.value.facts == {"instance": "run 1", "current_instance": "run 2"}
