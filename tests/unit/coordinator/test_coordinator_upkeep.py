"""The coordinator's upkeep: its snapshots, forgotten ids, and races with an id's expiry."""

from functools import partial

import pytest

from tests.protocol.steps import (
    NAME,
    TIMEOUT_MS,
    coordinator,
    finish,
    participant,
    prepare,
    register,
    tx_of,
)
from tests.protocol.world import NAMES, Process, World
from txlog.coordinator.events import GroupReleased, StagingHorizonAdvanced
from txlog.errors import ProducerFenced, SegmentExpired
from txlog.model import TransactionOutcome


@pytest.fixture
def world() -> World:
    world = World()
    world.create_topics("a")
    return world


def commit_some(process: Process, count: int) -> None:
    registration = register(process, "i")
    for number in range(count):
        tx = tx_of(registration, number)
        prepare(process, tx, groups=())
        finish(process, tx)


def test_coordinator_snapshots_follow_the_log_settings(world: World) -> None:
    process = world.process()
    commit_some(process, 3)  # 7 entries; every fourth has a snapshot.
    layout = NAMES.transactions(0)
    assert world.store.get(layout.snapshot(3)) is not None
    assert world.store.get(layout.snapshot(4)) is None


def test_coordinator_journal_is_pruned_to_keep_entries(world: World) -> None:
    process = world.process()
    commit_some(process, 10)  # 22 entries with the first one.
    layout = NAMES.transactions(0)
    assert coordinator(process).journal.prune(keep_entries=15, apart_entries=100) == 0
    assert coordinator(process).journal.prune(keep_entries=16) == 6
    kept = [slot for slot in range(22) if world.store.get(layout.entry(slot)) is not None]
    assert kept == list(range(6, 22))
    assert coordinator(process).journal.prune(keep_entries=15) == 1


def test_expire_ids_forgets_idle_ids_but_no_run_or_open_transaction(world: World) -> None:
    process = world.process()
    register(process, "i", "run", is_run=True)
    register(process, "i", "idle")
    tx = tx_of(register(process, "i", "open"))
    coordinator(process).begin("open", tx, TIMEOUT_MS)
    at_ms = world.clock.wall_ms()
    assert coordinator(process).expire_ids(at_ms - 1) == []
    assert coordinator(process).expire_ids(at_ms) == ["idle"]
    assert set(coordinator(world.process()).catch_up().ids) == {"run", "open"}


def test_maintain_succeeds_if_an_id_expires_while_its_transaction_is_aborted(
    world: World,
) -> None:
    owner, helper, other = world.process(), world.process(), world.process()
    tx = tx_of(register(owner, "i"))
    coordinator(owner).begin(NAME, tx, TIMEOUT_MS)
    world.clock.advance(TIMEOUT_MS + 1)
    coordinator(helper).catch_up()

    def end_and_forget() -> None:
        coordinator(other).abort(NAME, tx)
        assert coordinator(other).expire_ids(world.clock.wall_ms()) == [NAME]

    entry = NAMES.transactions(0).entry(coordinator(helper).journal.next_slot)
    helper.store.before("create", entry, end_and_forget)
    assert coordinator(helper).maintain() == [tx]
    assert helper.store.is_met


def test_abort_by_the_owner_keeps_the_epoch(world: World) -> None:
    process = world.process()
    tx = tx_of(register(process, "i"))
    coordinator(process).begin(NAME, tx, TIMEOUT_MS)
    coordinator(process).prepare_abort(NAME, tx)
    finish(process, tx)
    assert coordinator(process).state.ids[NAME].epoch == tx.epoch


def test_R3_only_an_unknown_transaction_of_an_older_epoch_is_superseded(world: World) -> None:
    process = world.process()
    first, second = tx_of(register(process, "i")), tx_of(register(process, "newer"))
    assert coordinator(process).is_superseded(NAME, first)
    assert not coordinator(process).is_superseded(NAME, second)
    prepare(process, second, groups=())
    assert not coordinator(process).is_superseded(NAME, second), "open"
    finish(process, second)
    register(process, "newest")
    assert not coordinator(process).is_superseded(NAME, second), "its outcome is known"
    coordinator(process).expire_ids(world.clock.wall_ms())
    assert not coordinator(process).is_superseded(NAME, second), "that of a forgotten id, too"
    assert coordinator(process).is_superseded(NAME, first)


def test_transaction_without_a_tag_has_an_empty_tag(world: World) -> None:
    process = world.process()
    coordinator(process).begin(NAME, tx_of(register(process, "i")), TIMEOUT_MS)
    ((_, found),) = coordinator(process).state.open_transactions()
    assert found.tag == ""


def test_registration_with_take_over_and_may_skip_stores_both(
    world: World,
) -> None:
    process = world.process()
    register(process, "i", "old", groups=("g",))
    register(process, "i", NAME, groups=("g",), take_over=True, may_skip=True)
    state = coordinator(process).state
    assert state.owners == {"g": NAME}
    assert state.ids[NAME].may_skip


@pytest.mark.parametrize("step", ["begin", "prepare"])
def test_a_refused_segment_raises_the_horizon_of_its_topic(world: World, step: str) -> None:
    """The next attempt names its segments above the new horizon."""
    process = world.process()
    tx = tx_of(register(process, "i"))
    staged = participant(process, "a", 1)
    coordinator(world.process()).execute(StagingHorizonAdvanced("9" * 20))
    refused = {
        "begin": partial(coordinator(process).begin, NAME, tx, TIMEOUT_MS, (staged,)),
        "prepare": partial(prepare, process, tx, staged, groups=()),
    }
    with pytest.raises(SegmentExpired):
        refused[step]()
    assert world.process().topic("a").catch_up().horizon == "9" * 20


# Commands in one entry, and what is read.

HORIZON = "0" * 31 + "1"


def next_slot(process: Process) -> int:
    return coordinator(process).journal.next_slot


def test_begin_shares_one_entry_with_the_commands_before_it(world: World) -> None:
    process = world.process()
    tx = tx_of(register(process, "i"))
    slot = next_slot(process)
    before = (StagingHorizonAdvanced(HORIZON),)
    coordinator(process).begin(NAME, tx, TIMEOUT_MS, before=before)
    assert next_slot(process) == slot + 1
    assert coordinator(process).state.horizon == HORIZON
    assert tx in coordinator(process).state.ids[NAME].open


def test_commit_shares_one_entry_with_before_and_together_commands(
    world: World,
) -> None:
    process = world.process()
    register(process, "i", "other")
    registration = register(process, "i", groups=("g",))
    tx = tx_of(registration)
    slot = next_slot(process)
    coordinator(process).prepare_commit(
        NAME,
        tx,
        before=(StagingHorizonAdvanced(HORIZON),),
        together=(GroupReleased("g"),),
    )
    assert next_slot(process) == slot + 1
    state = coordinator(process).state
    assert (state.horizon, state.owners) == (HORIZON, {})
    assert coordinator(process).outcome(tx) is TransactionOutcome.COMMITTED


def test_commands_together_with_a_refused_commit_are_not_stored(world: World) -> None:
    process = world.process()
    fenced = tx_of(register(process, "i", groups=("g",)))
    register(process, "newer", groups=("g",))
    slot = next_slot(process)
    with pytest.raises(ProducerFenced):
        coordinator(process).prepare_commit(NAME, fenced, together=(GroupReleased("g"),))
    assert next_slot(process) == slot
    assert coordinator(process).state.owners == {"g": NAME}


def test_R15_coordinator_catch_up_is_linearizable(world: World) -> None:
    """The entry that the process would read next was pruned."""
    process, other = world.process(), world.process()
    register(process, "i", "first")
    names = [f"id {number}" for number in range(7)]
    for name in names:
        register(other, "i", name)
    coordinator(other).journal.prune(keep_entries=1)
    assert set(coordinator(process).journal.catch_up().transactions.ids) == {"first"}, (
        "this read may lag"
    )
    assert set(coordinator(process).catch_up().ids) == {"first", *names}
