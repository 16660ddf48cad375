"""Offsets of groups: a process finishes a blocking transaction or refuses the request."""

import pytest

from tests.protocol.steps import (
    GROUP,
    NAME,
    TIMEOUT_MS,
    coordinator,
    finish,
    participant,
    pend,
    position,
    prepare,
    register,
    shown,
    tx_of,
)
from tests.protocol.world import NAMES, Process, World
from txlog.errors import CommitFailed, UnknownGroup, UnstableOffsetCommit, UsageError
from txlog.groups.offsets import GroupOffsets
from txlog.groups.state import OFFSETS_BYTES_MAX, UNCHECKED, PendingOffset
from txlog.model import TopicPartition, TransactionOutcome, TxId
from txlog.topic.events import AdvanceHorizon, CloseTopic

SRC = TopicPartition("src", 0)


@pytest.fixture
def world() -> World:
    world = World()
    world.create_topics("a", "src")
    return world


def offsets(process: Process) -> GroupOffsets:
    return process.connection.offsets


def commit_position(process: Process, end: int, group: str = GROUP) -> None:
    """Commit a position outside of transactions."""
    topic_id = process.topic("src").topic_id
    offsets(process).commit(group, (PendingOffset("src", topic_id, 0, UNCHECKED, end),))


def pended(process: Process, name: str = NAME, number: int = 0) -> TxId:
    """A new instance of the id has pended offsets 0 to 5 and decided nothing."""
    tx = tx_of(register(process, "i", name), number)
    coordinator(process).begin(name, tx, TIMEOUT_MS)
    pend(process, tx, 0, 5, name)
    return tx


def recreate_src(world: World, process: Process) -> None:
    """Delete topic `src` and create another one with its name."""
    process.connection.cluster.delete_topics(["src"])
    world.create_topics("src")


# Transactions that block others.


def test_open_transaction_of_another_id_blocks_a_commit_until_its_timeout(world: World) -> None:
    process = world.process()
    tx = pended(process)
    for waited_ms in (0, TIMEOUT_MS / 2, TIMEOUT_MS / 2):
        world.clock.advance(waited_ms)
        with pytest.raises(UnstableOffsetCommit) as caught:
            commit_position(process, 9)
        assert caught.value.facts["tx_id"] == tx
    world.clock.advance(1)
    commit_position(process, 9)
    assert position(world) == 9
    assert coordinator(process).outcome(tx) is TransactionOutcome.ABORTED
    assert coordinator(process).state.ids[NAME].epoch == 1, "its owner is fenced"


def test_blocking_decided_transaction_is_finished_in_its_topics_first(world: World) -> None:
    process, other = world.process(), world.process()
    tx = pended(process)
    prepare(process, tx, participant(process, "a", 1))
    offsets(other).delete_offsets(GROUP, ())
    commit_position(other, 9)
    assert (shown(world, "a"), position(world)) == ([1], 9)
    assert coordinator(world.process()).outcome(tx) is TransactionOutcome.COMMITTED


def test_deletion_of_a_group_finishes_a_decided_transaction_and_not_an_open_one(
    world: World,
) -> None:
    """The process that decided it has died, and no maintenance runs."""
    process, other = world.process(), world.process()
    tx = pended(process)
    with pytest.raises(UnstableOffsetCommit):
        offsets(other).delete(GROUP)
    prepare(process, tx, participant(process, "a", 1))
    offsets(other).delete(GROUP)
    assert (shown(world, "a"), position(world)) == ([1], None)
    with pytest.raises(UnknownGroup):
        offsets(world.process()).delete(GROUP)


def test_blocking_transaction_with_decided_abort_is_finished(
    world: World,
) -> None:
    process, other = world.process(), world.process()
    tx = pended(process)
    coordinator(process).prepare_abort(NAME, tx)
    commit_position(other, 9)
    assert position(world) == 9
    assert list(coordinator(world.process()).catch_up().open_transactions()) == []


def test_committed_transaction_applies_its_pend_to_a_group_it_did_not_name(world: World) -> None:
    process = world.process()
    tx = pended(process)
    prepare(process, tx, groups=())
    finish(process, tx)
    (done,) = offsets(world.process()).maintain()
    assert (done, position(world)) == (tx, 5)


def test_earlier_transaction_of_the_same_id_is_aborted_at_once(world: World) -> None:
    process = world.process()
    registration = register(process, "i", concurrent=True)
    first, second = tx_of(registration), tx_of(registration, 1)
    for tx in (first, second):
        coordinator(process).begin(NAME, tx, TIMEOUT_MS)
    pend(process, first, 0, 5)
    pend(process, second, 0, 7)
    assert coordinator(process).outcome(first) is TransactionOutcome.ABORTED
    assert coordinator(process).state.ids[NAME].epoch == 0, "no producer is fenced"
    with pytest.raises(UnstableOffsetCommit):
        pend(process, first, 0, 5)
    assert list(offsets(process).group(GROUP).pending) == [second]


def test_an_earlier_transaction_of_another_id_is_not_aborted(world: World) -> None:
    process = world.process()
    first = pended(process, "other")
    second = tx_of(register(process, "i"))
    coordinator(process).begin(NAME, second, TIMEOUT_MS)
    assert first < second
    with pytest.raises(UnstableOffsetCommit):
        pend(process, second, 0, 5)


def test_blocking_transaction_that_ends_concurrently_is_no_error(world: World) -> None:
    process, other = world.process(), world.process()
    tx = pended(process)
    offsets(other).group(GROUP)

    def end() -> None:
        coordinator(process).abort(NAME, tx)
        offsets(process).release_pending(GROUP, tx)

    entry = NAMES.transactions(0).entry(coordinator(other).journal.next_slot)
    other.store.before("get", entry, end)
    commit_position(other, 9)
    assert other.store.is_met
    assert position(world) == 9


def test_next_blocking_transaction_is_finished_too(world: World) -> None:
    process, other = world.process(), world.process()
    tx = pended(process)
    following = tx_of(register(process, "i", "other"))
    coordinator(process).begin("other", following, TIMEOUT_MS)
    offsets(other).group(GROUP)

    def end() -> None:
        coordinator(process).abort(NAME, tx)
        offsets(process).release_pending(GROUP, tx)
        pend(process, following, 0, 7, "other")
        prepare(process, following, participant(process, "a", 1), name="other")

    entry = NAMES.transactions(0).entry(coordinator(other).journal.next_slot)
    # The refusal reads this slot first; another read then looks up the blocking transaction.
    other.store.before("get", entry, lambda: other.store.before("get", entry, end))
    commit_position(other, 9)
    assert other.store.is_met
    assert (shown(world, "a"), position(world)) == ([1], 9)


def test_abort_that_loses_to_a_commit_decision_applies_the_commit(world: World) -> None:
    process, other = world.process(), world.process()
    tx = pended(process)
    world.clock.advance(TIMEOUT_MS + 1)
    coordinator(other).catch_up()
    entry = NAMES.transactions(0).entry(coordinator(other).journal.next_slot)
    other.store.before("create", entry, lambda: prepare(process, tx))
    assert offsets(other).maintain() == [tx]
    assert (other.store.is_met, position(world)) == (True, 5)


def test_abort_of_a_concurrently_expired_id_is_no_error(world: World) -> None:
    process, other = world.process(), world.process()
    tx = pended(process)
    world.clock.advance(TIMEOUT_MS + 1)
    coordinator(other).catch_up()

    def end_and_forget() -> None:
        coordinator(process).abort(NAME, tx)
        assert coordinator(process).expire_ids(world.clock.wall_ms()) == [NAME]

    entry = NAMES.transactions(0).entry(coordinator(other).journal.next_slot)
    other.store.before("create", entry, end_and_forget)
    assert offsets(other).maintain() == [tx]
    assert (other.store.is_met, position(world)) == (True, None)


def test_settle_aborts_an_open_transaction_before_its_timeout(world: World) -> None:
    process = world.process()
    tx = pended(process)
    offsets(process).settle(GROUP, TxId(999, 0, 0))
    assert coordinator(process).outcome(tx) is TransactionOutcome.OPEN
    offsets(process).settle(GROUP, tx)
    assert coordinator(process).outcome(tx) is TransactionOutcome.ABORTED
    assert not offsets(process).group(GROUP).pending


# Reading.


def lagging_process(world: World, end: int) -> Process:
    """A process that lags by more than a snapshot, in a journal that was pruned since."""
    process, other = world.process(), world.process()
    commit_position(process, 1)
    for position_ in range(2, 2 + 6):
        commit_position(other, position_)
    commit_position(other, end)
    coordinator(other).journal.prune(keep_entries=1)
    return process


def test_R15_group_read_is_linearizable(world: World) -> None:
    process = lagging_process(world, end=40)
    assert offsets(process).group(GROUP).committed[SRC].offset == 40


def test_R15_read_of_all_groups_is_linearizable_on_request(world: World) -> None:
    process = lagging_process(world, end=40)
    assert offsets(process).groups()[GROUP].committed[SRC].offset == 1, "this look may lag"
    assert offsets(process).groups(linearizable=True)[GROUP].committed[SRC].offset == 40


def test_R11_group_advances_only_to_the_current_incarnation(world: World) -> None:
    process, other = world.process(), world.process()
    old = process.topic("src").topic_id
    commit_position(process, 5)
    committed = offsets(process).group(GROUP).committed[SRC]
    other.connection.cluster.delete_topics(["src"])
    with pytest.raises(CommitFailed, match="was deleted after its records were read"):
        offsets(process).replaced(SRC, "another", committed)
    world.create_topics("src")
    new = other.topic("src").topic_id
    assert offsets(process).replaced(SRC, new, committed) == old
    assert offsets(process).replaced(SRC, old, committed) == ""
    assert offsets(process).replaced(SRC, new, None) == ""
    with pytest.raises(CommitFailed):
        offsets(process).replaced(SRC, "another", committed)


# The journals.


def test_whole_commit_too_large_for_one_entry_is_refused(world: World) -> None:
    process = world.process()
    topic_id = process.topic("src").topic_id
    note = '"' * (OFFSETS_BYTES_MAX // 4)
    many = tuple(PendingOffset("src", topic_id, n, UNCHECKED, 5, note) for n in range(3))
    with pytest.raises(UsageError):
        offsets(process).commit(GROUP, many, whole=True)
    assert not offsets(process).group(GROUP).committed
    offsets(process).commit(GROUP, many)
    assert len(offsets(process).group(GROUP).committed) == 3


def test_coordinator_journal_is_snapshotted_and_pruned_as_requested(world: World) -> None:
    process = world.process()
    for end in range(10):
        commit_position(process, end)  # 11 entries with the first one; every fourth has a snapshot.
    layout, journal = NAMES.transactions(0), coordinator(process).journal
    assert world.store.get(layout.snapshot(3)) is not None
    assert journal.prune(keep_entries=7, apart_entries=100) == 0
    assert journal.prune(keep_entries=7) == 4
    assert journal.prune(keep_entries=6) == 1


def test_only_positions_of_the_given_partitions_are_deleted(world: World) -> None:
    process = world.process()
    commit_position(process, 5)
    commit_position(process, 5, "other")
    offsets(process).delete_offsets(GROUP, (TopicPartition("src", 1),))
    assert SRC in offsets(process).group(GROUP).committed
    offsets(process).delete_offsets(GROUP, (SRC,))
    assert not offsets(process).group(GROUP).committed
    assert SRC in offsets(process).group("other").committed


# What a process remembers, and positions of a topic that is created again.


def test_seen_returns_the_group_as_last_read(world: World) -> None:
    process, other = world.process(), world.process()
    commit_position(process, 5)
    commit_position(process, 6, "another")
    offsets(other).group(GROUP)
    commit_position(process, 7)
    assert offsets(other).seen(GROUP).committed[SRC].offset == 5
    assert offsets(process).seen(GROUP).committed[SRC].offset == 7


def test_R11_group_cannot_advance_to_an_incarnation_deleted_since(world: World) -> None:
    process, other = world.process(), world.process()
    commit_position(process, 5)
    first = offsets(process).group(GROUP).committed[SRC]
    recreate_src(world, other)
    second = process.connection.cluster.present_topic("src", linearizable=True).topic_id
    assert offsets(process).replaced(SRC, second, first) == first.topic_id
    recreate_src(world, other)
    with pytest.raises(CommitFailed):
        offsets(process).replaced(SRC, second, first)


def test_R15_deletion_hidden_by_pruning_is_seen_before_a_group_advances(
    world: World,
) -> None:
    """The entry that closed the topic was pruned: a read that may lag would not find it."""
    process, other = world.process(), world.process()
    commit_position(process, 5)
    first = offsets(process).group(GROUP).committed[SRC]
    recreate_src(world, other)
    second = process.connection.cluster.present_topic("src", linearizable=True).topic_id
    topic = other.topic("src")
    for count in range(6):
        topic.execute(AdvanceHorizon(f"{count:020d}"))
    topic.execute(CloseTopic())
    topic.journal.prune(keep_entries=1)
    with pytest.raises(CommitFailed, match="was deleted after its records were read"):
        offsets(process).replaced(SRC, second, first)


def test_many_positions_are_deleted_in_parts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txlog.groups.offsets.DELETED_POSITIONS_MAX", 2)
    world.create_topics("wide", partitions=5)
    process = world.process()
    topic_id = process.topic("wide").topic_id
    for partition in range(5):
        asked = (PendingOffset("wide", topic_id, partition, UNCHECKED, 5),)
        offsets(process).commit(GROUP, asked)
    places = tuple(TopicPartition("wide", partition) for partition in range(5))
    offsets(process).delete_offsets(GROUP, places)
    assert offsets(process).group(GROUP).committed == {}
