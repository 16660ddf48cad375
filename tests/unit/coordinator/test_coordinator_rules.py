"""The coordinator's rules, each with the history that it prevents."""

from dataclasses import replace

import pytest

from tests.unit.coordinator.coordinator_commands import (
    NAME,
    NEXT,
    OWN,
    PID,
    SITUATIONS,
    TOPIC_A,
    TOPIC_B,
    USED,
    abort,
    add,
    begin,
    commit,
    complete,
    init,
    new_coordinator,
    registered,
    transaction,
)
from tests.unit.segments import segment
from txlog.coordinator.events import (
    AbortPrepared,
    OffsetRange,
    Participant,
    ProducerInitialised,
    ReplayMark,
    StagingHorizonAdvanced,
)
from txlog.coordinator.state import merged_participants
from txlog.coordinator.transaction import TransactionState, transactional_ids
from txlog.errors import (
    CommitFailed,
    ConcurrentTransactions,
    GroupOwned,
    IllegalTransition,
    ProducerFenced,
    SegmentExpired,
    TransactionAborted,
)
from txlog.model import EPOCH_MAX, Decision, TxId

ONGOING, PREPARE_COMMIT, PREPARE_ABORT = (
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
)


def tx(number: int, epoch: int = 0) -> TxId:
    return TxId(PID, epoch, number)


# R2: micro-batches.


def mark(batch_id: int, end: int = 9, query_id: str = "q", label: str = "") -> ReplayMark:
    ranges = (OffsetRange("g", "a", 0, 0, end),)
    return ReplayMark(query_id, batch_id, ranges, "fingerprint", label)


def test_R2_a_micro_batch_is_stored_with_its_offsets_and_committed_once() -> None:
    coordinator = registered()
    coordinator.run(commit(tx(0), mark=mark(0)))
    coordinator.run(complete(tx(0)))
    assert coordinator.state.marks == {"q/": mark(0)}
    for again in (mark(0), mark(0, end=5)):
        with pytest.raises(CommitFailed, match="batch 0 of query q") as caught:
            coordinator.run(commit(tx(1), mark=again))
        assert caught.value.facts["newest_batch_id"] == 0
    coordinator.run(commit(tx(1), mark=mark(1, end=20)))
    assert coordinator.state.marks["q/"] == mark(1, end=20)


def test_R2_an_older_batch_of_a_restored_checkpoint_is_refused() -> None:
    coordinator = registered()
    for number in range(3):
        coordinator.run(commit(tx(number), mark=mark(number)))
        coordinator.run(complete(tx(number)))
    with pytest.raises(CommitFailed):
        coordinator.run(commit(tx(3), mark=mark(1)))


def test_R2_replay_mark_survives_its_forgotten_outcome_and_a_snapshot() -> None:
    coordinator = registered()
    coordinator.run(commit(tx(0), mark=mark(0)))
    coordinator.run(complete(tx(0)))
    coordinator.state = replace(coordinator.reopened(), outcomes=({},))
    with pytest.raises(CommitFailed):
        coordinator.run(commit(tx(1), mark=mark(0)))


def test_R2_replay_marks_are_kept_per_query_and_label() -> None:
    coordinator = registered()
    marks = [mark(5), mark(0, query_id="other"), mark(0, label="left"), mark(0, label="right")]
    for number, each in enumerate(marks):
        coordinator.run(commit(tx(number), mark=each))
        coordinator.run(complete(tx(number)))
    assert len(coordinator.state.marks) == 4


def test_R2_repeated_prepare_of_the_same_transaction_is_accepted() -> None:
    """The answer to PREPARE was lost; its own stored decision must not refuse the second try."""
    coordinator = registered()
    coordinator.run(commit(tx(0), mark=mark(0)))
    coordinator.run(commit(tx(0), mark=mark(0)))
    coordinator.run(complete(tx(0)))
    coordinator.run(commit(tx(0), mark=mark(0)))
    assert coordinator.state.outcome(tx(0))


# R3: aborting an unknown transaction bars it.


def test_R3_abort_of_an_unknown_transaction_bars_its_prepare() -> None:
    """Its run has pended and seems to have died before PREPARE. Before the pend is released, a
    PREPARE that may still arrive must be barred.
    """
    coordinator = registered()
    coordinator.run(abort(tx(0)))
    for command in (commit(tx(0)), begin(tx(0))):
        with pytest.raises(TransactionAborted):
            coordinator.run(command)
    outcome = coordinator.state.outcome(tx(0))
    assert outcome is not None
    assert outcome.decision is Decision.ABORT


def test_R3_the_bar_holds_after_its_outcome_is_forgotten() -> None:
    coordinator = registered()
    coordinator.run(abort(tx(0)))
    coordinator.state = replace(coordinator.state, outcomes=({},))
    with pytest.raises(TransactionAborted, match="barred"):
        coordinator.run(commit(tx(0)))
    coordinator.run(commit(tx(1)))


def test_R3_later_epoch_bars_a_prepare_without_an_event() -> None:
    coordinator = registered(1)
    count = len(coordinator.events)
    coordinator.run(abort(tx(0, epoch=0)))
    assert len(coordinator.events) == count
    with pytest.raises(ProducerFenced):
        coordinator.run(commit(tx(0, epoch=0)))


# R5: one entry, and one transaction after the other.


def test_R5_registration_aborts_ongoing_transactions_in_the_same_entry() -> None:
    coordinator = SITUATIONS["Ongoing"]()
    count = len(coordinator.events)
    answer = coordinator.run(init("newer"))
    assert [type(event) for event in coordinator.events[count:]] == [ProducerInitialised]
    found = transaction(coordinator, OWN)
    assert (found.state, found.fence_epoch) == (PREPARE_ABORT, 4)
    assert answer.to_finish == (OWN,)


def test_R5_nothing_begins_before_the_prepared_transaction_is_complete() -> None:
    """Otherwise its offsets would be applied after its successor's, and dropped as old."""
    coordinator = SITUATIONS["PrepareCommit"]()
    for command in (begin(NEXT), commit(NEXT), init("newer")):
        with pytest.raises(ConcurrentTransactions) as caught:
            coordinator.run(command)
        assert caught.value.facts == {"transactional_id": NAME, "tx_ids": (OWN,)}
    coordinator.run(complete(OWN))
    coordinator.run(begin(NEXT))


def test_R5_new_instance_begins_nothing_before_the_old_transaction_is_complete() -> None:
    coordinator = SITUATIONS["fenced"]()
    for command in (begin(tx(0, epoch=4)), commit(tx(0, epoch=4)), init("newest")):
        with pytest.raises(ConcurrentTransactions):
            coordinator.run(command)
    coordinator.run(complete(OWN))
    coordinator.run(commit(tx(0, epoch=4)))


def test_R5_concurrent_instance_also_waits_for_an_older_epoch() -> None:
    """A marker of epoch 0 is skipped once one of epoch 1 was applied (R6): whether its records
    count would never be decided in that topic.
    """
    coordinator = registered(concurrent=True)
    coordinator.run(begin(tx(0)))
    coordinator.run(init("newer", concurrent=True))
    for command in (begin(tx(0, epoch=1)), commit(tx(0, epoch=1))):
        with pytest.raises(ConcurrentTransactions) as caught:
            coordinator.run(command)
        assert caught.value.facts["tx_ids"] == (tx(0),)
    coordinator.run(complete(tx(0)))
    coordinator.run(begin(tx(0, epoch=1)))
    coordinator.run(begin(tx(1, epoch=1)))


def test_same_instance_gets_a_new_epoch_when_it_registers_again() -> None:
    """The instance's earlier process may have died while its PREPARE was being written."""
    coordinator = registered()
    answer = coordinator.run(init("i0"))
    assert answer.epoch == 1


# R7: several open transactions.


def test_R7_only_a_concurrent_instance_may_have_several_open_transactions() -> None:
    coordinator = registered(concurrent=True)
    for number in range(3):
        coordinator.run(begin(tx(number)))
    coordinator.run(commit(tx(1)))
    coordinator.run(begin(tx(3)))
    assert set(coordinator.state.ids[NAME].open) == {tx(n) for n in range(4)}
    one_by_one = registered()
    one_by_one.run(begin(tx(0)))
    with pytest.raises(IllegalTransition, match="open"):
        one_by_one.run(begin(tx(1)))


def test_R7_the_floor_stays_below_every_other_open_transaction() -> None:
    coordinator = registered(concurrent=True)
    for number in range(4):
        coordinator.run(begin(tx(number)))

    def floor(number: int) -> int:
        return coordinator.state.ids[NAME].floor(tx(number))

    assert [floor(number) for number in range(4)] == [0, -1, -1, -1]
    coordinator.run(commit(tx(2)))
    coordinator.run(complete(tx(2)))
    assert [floor(number) for number in (0, 1, 3)] == [0, -1, -1]
    coordinator.run(abort(tx(0)))
    coordinator.run(complete(tx(0)))
    assert [floor(number) for number in (1, 3)] == [2, 0]
    coordinator.run(abort(tx(1)))
    coordinator.run(complete(tx(1)))
    assert floor(3) == 3


def test_R7_begin_below_the_highest_begun_number_is_refused() -> None:
    """If 1 began after 2, a marker with floor 2 might already have declared it finished."""
    coordinator = registered(concurrent=True)
    coordinator.run(begin(tx(2)))
    with pytest.raises(TransactionAborted):
        coordinator.run(begin(tx(1)))


def test_R7_fence_aborts_every_ongoing_transaction_but_no_prepared_one() -> None:
    coordinator = registered(concurrent=True)
    for number in range(3):
        coordinator.run(begin(tx(number)))
    coordinator.run(commit(tx(0)))
    coordinator.run(abort(tx(1), fence=True))
    states = {number: transaction(coordinator, tx(number)).state for number in range(3)}
    assert states == {0: PREPARE_COMMIT, 1: PREPARE_ABORT, 2: PREPARE_ABORT}
    assert transaction(coordinator, tx(2)).fence_epoch == 1
    assert coordinator.state.ids[NAME].epoch == 1


# R12: owners of groups.


def test_R12_prepare_with_a_group_of_another_owner_is_refused() -> None:
    coordinator = registered(groups=("g",))
    coordinator.run(init(name="other", fresh_pid=8))
    with pytest.raises(GroupOwned, match="owned by 'x'") as caught:
        coordinator.run(commit(TxId(8, 0, 0), "other", groups=("g",)))
    assert caught.value.facts["owner"] == NAME
    coordinator.run(commit(TxId(8, 0, 0), "other", groups=("free",)))
    coordinator.run(commit(tx(0), groups=("g",)))


def test_R12_group_is_taken_over_only_on_explicit_request() -> None:
    coordinator = registered(groups=("g",))
    with pytest.raises(GroupOwned, match="take over"):
        coordinator.run(init(name="other", fresh_pid=8, groups=("g",)))
    coordinator.run(init(name="other", fresh_pid=8, groups=("g",), take_over=True))
    with pytest.raises(GroupOwned):
        coordinator.run(commit(tx(0), groups=("g",)))
    with pytest.raises(GroupOwned):
        coordinator.run(init("again", groups=("g",)))


def test_R12_commit_with_a_group_taken_over_since_its_declaration_is_refused() -> None:
    coordinator = registered(groups=("g",))
    coordinator.run(begin(tx(0)))
    coordinator.run(add(tx(0), TOPIC_A, groups=("g",)))
    coordinator.run(init(name="other", fresh_pid=8, groups=("g",), take_over=True))
    with pytest.raises(GroupOwned):
        coordinator.run(commit(tx(0)))


def test_R12_only_the_owner_of_a_group_can_declare_it() -> None:
    coordinator = registered(groups=("g",))
    coordinator.run(init(name="other", fresh_pid=8))
    coordinator.run(begin(TxId(8, 0, 0), "other"))
    with pytest.raises(GroupOwned):
        coordinator.run(add(TxId(8, 0, 0), TOPIC_A, name="other", groups=("g",)))


def test_R12_owners_are_in_the_snapshot() -> None:
    assert registered(groups=("g", "h")).reopened().owners == {"g": NAME, "h": NAME}


# R27: superseded runs.


def test_R27_superseded_run_cannot_register_again() -> None:
    coordinator = new_coordinator()
    for run in ("run 1", "run 2", "run 3"):
        coordinator.run(init(run, is_run=True))
    coordinator.run(init("run 3", is_run=True))
    for old in ("run 1", "run 2"):
        with pytest.raises(ProducerFenced, match="run 3") as caught:
            coordinator.run(init(old, is_run=True))
        assert caught.value.facts == {"instance": old, "current_instance": "run 3"}
    assert coordinator.reopened().ids[NAME].superseded == ("run 1", "run 2")


def test_R27_superseded_instance_that_is_not_a_run_can_register_again() -> None:
    coordinator = new_coordinator()
    for instance in ("a", "b", "a"):
        coordinator.run(init(instance))
    assert coordinator.state.ids[NAME].epoch == 2


# Epochs.


def test_the_last_epoch_is_followed_by_a_new_producer_id() -> None:
    coordinator = registered()
    state = coordinator.state.ids[NAME]
    coordinator.state = replace(
        coordinator.state, ids=transactional_ids({NAME: replace(state, epoch=EPOCH_MAX - 1)})
    )
    assert coordinator.run(init("a", fresh_pid=50)).epoch == EPOCH_MAX
    answer = coordinator.run(init("b", fresh_pid=51))
    assert (answer.pid, answer.epoch) == (51, 0)
    for old in (tx(0, epoch=EPOCH_MAX), tx(0, epoch=0)):
        with pytest.raises(ProducerFenced):
            coordinator.run(begin(old))
    coordinator.run(begin(TxId(51, 0, 0)))


def test_I8_abort_of_the_last_epoch_fences_it_under_a_new_producer_id() -> None:
    """The new producer id's epoch 0 would not fence the old producer id."""
    coordinator = registered()
    state = coordinator.state.ids[NAME]
    coordinator.state = replace(
        coordinator.state, ids=transactional_ids({NAME: replace(state, epoch=EPOCH_MAX)})
    )
    coordinator.run(begin(tx(0, epoch=EPOCH_MAX)))
    coordinator.run(init("b", fresh_pid=51))
    found = transaction(coordinator, tx(0, epoch=EPOCH_MAX))
    assert (found.state, found.fence_epoch) == (PREPARE_ABORT, EPOCH_MAX + 1)
    with pytest.raises(ConcurrentTransactions):
        coordinator.run(begin(TxId(51, 0, 0)))
    coordinator.run(complete(tx(0, epoch=EPOCH_MAX)))
    coordinator.run(begin(TxId(51, 0, 0)))


def test_open_transaction_of_an_earlier_producer_id_is_found_until_complete() -> None:
    """A blocked process can find the transaction only by that id."""
    coordinator = registered()
    state = coordinator.state.ids[NAME]
    coordinator.state = replace(
        coordinator.state, ids=transactional_ids({NAME: replace(state, epoch=EPOCH_MAX)})
    )
    left = tx(0, epoch=EPOCH_MAX)
    coordinator.run(begin(left))
    coordinator.run(init("b", fresh_pid=51))
    assert coordinator.state.find(left) == (NAME, coordinator.state.ids[NAME])
    coordinator.run(complete(left))
    assert coordinator.state.find(left) is None
    assert coordinator.state.find(TxId(51, 0, 0)) == (NAME, coordinator.state.ids[NAME])


def test_timeout_at_the_last_epoch_aborts_without_raising_the_epoch() -> None:
    coordinator = registered()
    state = coordinator.state.ids[NAME]
    coordinator.state = replace(
        coordinator.state, ids=transactional_ids({NAME: replace(state, epoch=EPOCH_MAX)})
    )
    coordinator.run(begin(tx(0, epoch=EPOCH_MAX)))
    coordinator.run(abort(tx(0, epoch=EPOCH_MAX), fence=True))
    assert coordinator.state.ids[NAME].epoch == EPOCH_MAX
    with pytest.raises(TransactionAborted):
        coordinator.run(commit(tx(0, epoch=EPOCH_MAX)))


def test_I8_timeout_fences_the_owner_and_resets_the_begun_number() -> None:
    coordinator = SITUATIONS["timed out"]()
    event = coordinator.events[-1]
    assert isinstance(event, AbortPrepared)
    assert event.epoch == 4
    assert coordinator.state.ids[NAME].begun_number == -1
    assert transaction(coordinator, OWN).fence_epoch == 4


# The horizon, participants.


def staged(name: str) -> Participant:
    return Participant(
        "00000001aaaaaaaa", "a", segments=(segment({0: 1}, name, "topics/a/00000001aaaaaaaa"),)
    )


def test_a_segment_below_the_staging_horizon_is_not_committed() -> None:
    coordinator = registered()
    coordinator.run(StagingHorizonAdvanced("05"))
    with pytest.raises(SegmentExpired, match="run the batch again"):
        coordinator.run(commit(tx(0), participants=(staged("04"),)))
    coordinator.run(commit(tx(0), participants=(staged("05"),)))


def test_segment_declared_before_the_horizon_rose_is_committed() -> None:
    coordinator = registered()
    coordinator.run(begin(tx(0), participants=(staged("04"),)))
    coordinator.run(StagingHorizonAdvanced("05"))
    coordinator.run(commit(tx(0)))
    (_, transaction), *others = coordinator.state.open_transactions()
    assert (transaction.state, others) == (TransactionState.PREPARE_COMMIT, [])
    assert transaction.participants == (staged("04"),)


def test_begin_with_a_segment_below_the_horizon_is_refused() -> None:
    coordinator = registered()
    coordinator.run(StagingHorizonAdvanced("05"))
    with pytest.raises(SegmentExpired):
        coordinator.run(begin(tx(0), participants=(staged("04"),)))


def test_repeated_prepare_is_accepted_after_the_horizon_rose() -> None:
    coordinator = registered()
    coordinator.run(commit(tx(0), participants=(staged("04"),)))
    coordinator.run(StagingHorizonAdvanced("05"))
    slot = coordinator.slot
    coordinator.run(commit(tx(0), participants=(staged("04"),)))
    assert coordinator.slot == slot, "it is not decided again"


def test_participants_of_one_topic_are_merged() -> None:
    more = (Participant("00000001aaaaaaaa", "a", (2, 0)), staged("s"), TOPIC_B)
    merged = merged_participants((TOPIC_A,), more)
    assert merged == (
        Participant(
            "00000001aaaaaaaa", "a", (0, 2), (segment({0: 1}, "s", "topics/a/00000001aaaaaaaa"),)
        ),
        TOPIC_B,
    )


def test_transaction_collects_participants_groups_and_tag() -> None:
    coordinator = SITUATIONS["Ongoing"]()
    coordinator.run(add(OWN, groups=("g",)))
    coordinator.run(add(OWN, Participant("00000001aaaaaaaa", "a", (1,)), groups=("g", "h")))
    coordinator.run(commit(OWN, participants=(staged("s"),), groups=("k",), tag="tag"))
    found = transaction(coordinator, OWN)
    assert [participant.topic_id for participant in found.participants] == [
        "00000001aaaaaaaa",
        "00000002bbbbbbbb",
    ]
    assert found.participants[0].partitions == (0, 1)
    assert (found.groups, found.tag) == (("g", "h", "k"), "tag")
    assert USED not in coordinator.state.ids[NAME].open


def test_repeated_begin_with_another_topic_adds_the_participant() -> None:
    """The first answer was lost. A topic that is left out never gets a marker, and its readers
    hang.
    """
    coordinator = SITUATIONS["Ongoing"]()
    coordinator.run(begin(OWN, participants=(TOPIC_A, TOPIC_B)))
    assert transaction(coordinator, OWN).participants == (TOPIC_A, TOPIC_B)
    count = len(coordinator.events)
    coordinator.run(begin(OWN, participants=(TOPIC_B,)))
    assert len(coordinator.events) == count


def test_R11_recreated_topic_of_same_name_is_a_separate_participant() -> None:
    another = Participant("00000003aaaaaaaa", "a", (0,))
    for command in (add(OWN, another), begin(OWN, participants=(another,))):
        coordinator = SITUATIONS["Ongoing"]()
        coordinator.run(command)
        assert transaction(coordinator, OWN).participants == (TOPIC_A, another)
