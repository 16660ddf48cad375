"""The coordinator as a library: it finishes what other processes left, and reports outcomes."""

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
from tests.protocol.world import NAMES, Process, World, committed
from txlog.coordinator.coordinator import coordinator_number_of
from txlog.coordinator.events import ParticipantsAdded
from txlog.errors import (
    CorruptData,
    DuplicateTransaction,
    IllegalTransition,
    StoreUnavailable,
    UnknownTransaction,
)
from txlog.groups.state import OffsetsPended, Pending, PendingOffset
from txlog.model import TransactionOutcome, TxId
from txlog.storage.store import CreateResult

OPEN, COMMITTED, ABORTED, UNKNOWN = (
    TransactionOutcome.OPEN,
    TransactionOutcome.COMMITTED,
    TransactionOutcome.ABORTED,
    TransactionOutcome.UNKNOWN_ID,
)


@pytest.fixture
def world() -> World:
    world = World()
    world.create_topics("a", "b", "src")
    return world


def test_journal_of_spreads_ids_by_a_fixed_hash() -> None:
    """A transactional id that moved to another journal would be decided twice."""
    assert [coordinator_number_of(key, 8) for key in ("", "a", "spark.query", "grün")] == [
        0,
        3,
        3,
        5,
    ]
    assert {coordinator_number_of(f"id {number}", 8) for number in range(200)} == set(range(8))


def test_outcome_is_open_until_the_decision_and_final_afterwards(world: World) -> None:
    process, reader = world.process(), world.process()
    registration = register(process, "i")
    for number, decided in enumerate([COMMITTED, ABORTED]):
        tx = tx_of(registration, number)
        assert coordinator(reader).outcome(tx) is OPEN, "it may still begin"
        coordinator(process).begin(NAME, tx, TIMEOUT_MS, tag=f"tag {number}")
        assert coordinator(reader).outcome(tx) is OPEN
        if decided is COMMITTED:
            prepare(process, tx, groups=())
        else:
            coordinator(process).prepare_abort(NAME, tx)
        assert coordinator(reader).outcome(tx) is decided
        assert coordinator(reader).outcome_of_tag(f"tag {number}") is decided
        finish(process, tx)
        assert coordinator(reader).outcome(tx) is decided
        assert coordinator(reader).outcome_of_tag(f"tag {number}") is decided
    assert coordinator(reader).outcome_of_tag("tag 2") is UNKNOWN


def test_committed_tag_stays_committed_while_a_repeat_is_open_or_aborted(
    world: World,
) -> None:
    process = world.process()
    registration = register(process, "i")
    first, repeat = tx_of(registration), tx_of(registration, 1)
    coordinator(process).begin(NAME, first, TIMEOUT_MS, tag="order")
    prepare(process, first, groups=())
    finish(process, first)
    coordinator(process).begin(NAME, repeat, TIMEOUT_MS, tag="order")
    assert coordinator(process).outcome_of_tag("order") is COMMITTED
    coordinator(process).abort(NAME, repeat)
    assert coordinator(process).outcome_of_tag("order") is COMMITTED


def test_tag_is_committed_before_its_transaction_is_complete(
    world: World,
) -> None:
    """A program that asks after a crash would otherwise write the transaction again."""
    process = world.process()
    attempt, winner = tx_of(register(process, "i")), tx_of(register(process, "i", "y"))
    coordinator(process).begin(NAME, attempt, TIMEOUT_MS, tag="order")
    coordinator(process).begin("y", winner, TIMEOUT_MS, tag="order")
    prepare(process, winner, name="y", groups=())
    asked = coordinator(world.process())
    assert asked.outcome_of_tag("order") is COMMITTED
    assert asked.state.committed_with_tag("order") == winner
    with pytest.raises(DuplicateTransaction, match=f"committed already .{winner}"):
        asked.prepare_commit(NAME, attempt)


def test_a_late_transaction_is_aborted_and_its_owner_fenced(world: World) -> None:
    owner, helper = world.process(), world.process()
    tx = tx_of(register(owner, "i"))
    declared = participant(owner, "a", logged=True)
    coordinator(owner).begin(NAME, tx, TIMEOUT_MS, (declared,))
    append(owner, "a", tx, 1)
    world.clock.advance(TIMEOUT_MS)
    assert coordinator(helper).maintain() == []
    world.clock.advance(1)
    assert coordinator(helper).maintain() == [tx]
    assert coordinator(helper).outcome(tx) is ABORTED
    assert coordinator(helper).state.ids[NAME].epoch == 1
    assert world.process().topic("a").catch_up().last_stable_offset(0) == 1
    assert shown(world, "a") == []


def test_I4_prepared_transaction_is_committed_after_its_timeout(world: World) -> None:
    owner, helper = world.process(), world.process()
    tx = tx_of(register(owner, "i"))
    prepare(owner, tx, participant(owner, "a", 1), groups=())
    world.clock.advance(TIMEOUT_MS * 1000)
    assert coordinator(helper).maintain() == [tx]
    assert shown(world, "a") == [1]


def test_I4_commit_that_wins_against_a_timeout_is_completed(world: World) -> None:
    """The pass continues: losing one transaction's race is not a reason to leave the others."""
    owner, helper = world.process(), world.process()
    tx, other = tx_of(register(owner, "i")), tx_of(register(owner, "i", "y"))
    coordinator(owner).begin(NAME, tx, TIMEOUT_MS)
    coordinator(owner).begin("y", other, TIMEOUT_MS)
    staged = participant(owner, "a", 1)
    world.clock.advance(TIMEOUT_MS + 1)
    coordinator(helper).catch_up()
    entry = NAMES.transactions(0).entry(coordinator(helper).journal.next_slot)
    helper.store.before("create", entry, lambda: prepare(owner, tx, staged, groups=()))
    assert coordinator(helper).maintain() == [tx, other]
    assert (shown(world, "a"), coordinator(helper).outcome(other)) == ([1], ABORTED)


def test_registration_does_not_wait_once_the_transaction_before_it_is_finished(
    world: World,
) -> None:
    dead, successor = world.process(), world.process()
    prepare(dead, tx_of(register(dead, "i")), participant(dead, "a", 1), groups=())
    begun_ms = world.clock.monotonic_ms()
    register(successor, "j")
    assert (shown(world, "a"), world.clock.monotonic_ms()) == ([1], begun_ms)


def test_transaction_that_cannot_be_completed_does_not_block_others(world: World) -> None:
    owner, helper = world.process(), world.process()
    stuck, sound = tx_of(register(owner, "i")), tx_of(register(owner, "i", "y"))
    prepare(owner, stuck, participant(owner, "a", 1), groups=())
    prepare(owner, sound, participant(owner, "b", 2), name="y", groups=())
    damage(world, owner, "a")
    with pytest.raises(CorruptData, match="topics/a/"):
        coordinator(helper).maintain()
    assert [known.tx_id for _, known in coordinator(helper).state.open_transactions()] == [stuck]
    assert shown(world, "b") == [2]


def test_pend_that_cannot_be_resolved_does_not_block_others(world: World) -> None:
    owner, helper = world.process(), world.process()
    offset = PendingOffset("src", owner.topic("src").topic_id, 0, 0, 5)
    for topic, group in [("a", "g1"), ("b", "g2")]:
        tx = tx_of(register(owner, "i", group))
        pending = Pending(group, 0, (offset,), owner.connection.runtime.clock.wall_ms(), TIMEOUT_MS)
        owner.connection.offsets.pend(OffsetsPended(group, tx, pending))
        prepare(owner, tx, participant(owner, topic, 1), name=group, groups=(group,))
    damage(world, owner, "a")
    with pytest.raises(CorruptData, match="topics/a/"):
        helper.connection.offsets.maintain()
    groups = world.process().connection.offsets.groups()
    assert {name: len(known.pending) for name, known in groups.items()} == {"g1": 1, "g2": 0}
    assert committed(world.process(), "g2", "src") == 5


def test_maintain_stops_at_the_first_store_unavailable_error(
    world: World,
) -> None:
    owner, helper = world.process(), world.process()
    for name in ("x", "y", "z"):
        tx = tx_of(register(owner, "i", name))
        prepare(owner, tx, participant(owner, "a", 1), name=name, groups=())
    coordinator(helper).catch_up()
    asked: list[str] = []

    def create(path: str, data: bytes) -> CreateResult:
        asked.append(path)
        raise StoreUnavailable("the store does not answer; call again.")

    helper.store.create = create  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        coordinator(helper).maintain()
    assert len(asked) == 1


def test_R9_pend_of_an_aborted_transaction_is_released(world: World) -> None:
    process = world.process()
    tx = tx_of(register(process, "i"))
    coordinator(process).begin(NAME, tx, TIMEOUT_MS)
    coordinator(process).execute(ParticipantsAdded(NAME, tx, groups=(GROUP,)))
    pend(process, tx, 0, 5)
    coordinator(process).prepare_abort(NAME, tx)
    finish(process, tx)
    group = world.process().connection.offsets.groups()[GROUP]
    assert (len(group.pending), position(world)) == (0, None)
    assert is_sound(world)


def damage(world: World, process: Process, topic: str) -> None:
    """Change one byte of the first entry of the topic's journal."""
    path = process.topic(topic).layout.entry(0)
    data = world.store.get(path)
    assert data is not None
    world.store.replace(path, data[:-5] + b"X" + data[-4:])


def test_committed_transaction_cannot_be_aborted(world: World) -> None:
    process = world.process()
    tx = tx_of(register(process, "i"))
    prepare(process, tx, participant(process, "a", 1), groups=())
    for _ in range(2):
        with pytest.raises(IllegalTransition, match="COMMIT"):
            coordinator(world.process()).abort(NAME, tx, fence=True)
        finish(process, tx)
    assert shown(world, "a") == [1]


def test_the_coordinator_of_an_open_transaction_is_found(world: World) -> None:
    process = world.process()
    tx = tx_of(register(process, "i"))
    coordinator(process).begin(NAME, tx, TIMEOUT_MS)
    assert process.connection.coordinator_with(tx)[1] == NAME
    with pytest.raises(UnknownTransaction, match="txlog txn list"):
        process.connection.coordinator_with(TxId(999, 0, 0))
