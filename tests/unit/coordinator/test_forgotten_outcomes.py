"""R39: an outcome that the coordinator has forgotten is reported as unknown, never as aborted."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import answer_lost, never_lands
from tests.unit.coordinator.coordinator_commands import (
    NAME,
    PID,
    Coordinator,
    abort,
    begin,
    commit,
    complete,
    init,
    registered,
)
from txlog.coordinator import state as coordinator_state
from txlog.coordinator.events import ExpireTransactionalId, TransactionalIdExpired
from txlog.errors import (
    IllegalTransition,
    OutcomeUnknown,
    ProducerFenced,
    TransactionAborted,
)
from txlog.model import EPOCH_MAX, TransactionOutcome, TxId
from txlog.settings import LogSettings

COMMITTED, ABORTED, OPEN, UNKNOWN = (
    TransactionOutcome.COMMITTED,
    TransactionOutcome.ABORTED,
    TransactionOutcome.OPEN,
    TransactionOutcome.UNKNOWN_ID,
)


@pytest.fixture(autouse=True)
def few_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator remembers two to four outcomes, so that few transactions make it forget."""
    monkeypatch.setattr(coordinator_state, "OUTCOME_GENERATION", 2)
    monkeypatch.setattr(coordinator_state, "OUTCOME_GENERATIONS_MAX", 1)


def tx(number: int, epoch: int = 0, pid: int = PID) -> TxId:
    return TxId(pid, epoch, number)


def ended(coordinator: Coordinator, tx_id: TxId, name: str = NAME) -> None:
    for command in (begin(tx_id, name), commit(tx_id, name), complete(tx_id, name)):
        coordinator.run(command)


def after_others(coordinator: Coordinator, count: int = 5) -> None:
    """End `count` transactions of another id."""
    coordinator.run(init(name="other", fresh_pid=99))
    epoch = coordinator.state.ids["other"].epoch
    for number in range(count):
        ended(coordinator, tx(number, epoch, pid=99), "other")


def after_a_commit() -> Coordinator:
    """Transaction 3 is committed and forgotten; 0 to 2 were never begun."""
    coordinator = registered()
    ended(coordinator, tx(3))
    after_others(coordinator)
    assert coordinator.state.outcome(tx(3)) is None
    return coordinator


def in_the_same_epoch(coordinator: Coordinator) -> None:
    """Change nothing for the id."""


def in_a_later_epoch(coordinator: Coordinator) -> None:
    coordinator.run(init("newer"))


def with_another_producer_id(coordinator: Coordinator) -> None:
    known = coordinator.state.ids[NAME]
    last = replace(known, epoch=EPOCH_MAX)
    coordinator.state = replace(coordinator.state, ids=coordinator.state.ids.with_item(NAME, last))
    coordinator.run(init("newer", fresh_pid=50))
    assert coordinator.state.ids[NAME].pid == 50


def expired(coordinator: Coordinator) -> None:
    assert coordinator.run(ExpireTransactionalId(NAME, before_ms=10_000))


LATER = pytest.mark.parametrize(
    "later", [in_the_same_epoch, in_a_later_epoch, with_another_producer_id, expired]
)


@LATER
def test_R39_commit_with_a_forgotten_outcome_raises_outcome_unknown(
    later: Callable[[Coordinator], None],
) -> None:
    coordinator = after_a_commit()
    later(coordinator)
    for number in (0, 3):
        with pytest.raises(OutcomeUnknown, match=f"{tx(number)} ended so long ago"):
            coordinator.run(commit(tx(number)))
        assert coordinator.state.presumed_outcome(tx(number)) is UNKNOWN


@LATER
def test_R39_outcome_dropped_after_its_id_changed_raises_outcome_unknown(
    later: Callable[[Coordinator], None],
) -> None:
    coordinator = registered()
    ended(coordinator, tx(3))
    later(coordinator)
    after_others(coordinator)
    with pytest.raises(OutcomeUnknown):
        coordinator.run(commit(tx(3)))


def test_R39_may_have_forgotten_is_true_only_for_dropped_outcomes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinator_state, "OUTCOME_GENERATIONS_MAX", 2)
    coordinator = registered()
    for number in range(8):
        ended(coordinator, tx(number))
        state = coordinator.state
        dropped = [n for n in range(number + 1) if state.outcome(tx(n)) is None]
        assert dropped == [n for n in range(number + 1) if state.may_have_forgotten(tx(n))]
    assert dropped == [0, 1]


def test_R39_lower_new_producer_id_keeps_what_higher_ones_have_forgotten() -> None:
    coordinator = after_a_commit()
    coordinator.run(ExpireTransactionalId("other", before_ms=10_000))
    with_another_producer_id(coordinator)
    assert coordinator.state.may_have_forgotten(tx(0, pid=99))


@LATER
def test_R39_may_have_forgotten_survives_a_snapshot(
    later: Callable[[Coordinator], None],
) -> None:
    coordinator = after_a_commit()
    later(coordinator)
    assert coordinator.reopened() == coordinator.state
    assert coordinator.reopened().may_have_forgotten(tx(3))


@pytest.mark.parametrize("decide", [commit, abort])
def test_R39_oldest_outcomes_of_a_single_busy_id_are_forgotten(
    decide: Callable[[TxId], object],
) -> None:
    coordinator = registered()
    for number in range(6):
        if decide is commit:
            coordinator.run(begin(tx(number)))
        coordinator.run(decide(tx(number)))
        coordinator.run(complete(tx(number)))
    remembered = [n for n in range(6) if coordinator.state.outcome(tx(n)) is not None]
    assert remembered == [2, 3, 4, 5]
    assert coordinator.state.ids[NAME].forgotten == tx(1)


def test_R39_skipped_number_is_aborted_if_no_outcome_that_high_was_dropped() -> None:
    coordinator = registered()
    ended(coordinator, tx(3))
    coordinator.run(init("newer", concurrent=True))
    coordinator.run(begin(tx(1, epoch=1)))
    after_others(coordinator)
    for barred in (tx(4), tx(9), tx(0, epoch=1)):
        assert coordinator.state.presumed_outcome(barred) is ABORTED
    with pytest.raises(TransactionAborted):
        coordinator.run(commit(tx(0, epoch=1)))
    with pytest.raises(ProducerFenced):
        coordinator.run(commit(tx(4)))


def test_R39_next_number_is_open_and_unissued_epoch_or_producer_id_is_unknown() -> None:
    coordinator = after_a_commit()
    assert coordinator.state.presumed_outcome(tx(4)) is OPEN
    assert coordinator.state.presumed_outcome(tx(0, epoch=1)) is UNKNOWN
    assert coordinator.state.presumed_outcome(tx(0, pid=1234)) is UNKNOWN


def test_R39_dropped_outcomes_of_other_producer_ids_do_not_affect_a_live_one() -> None:
    """A live producer therefore gets its outcome, however many transactions others end."""
    coordinator = registered()
    coordinator.run(abort(tx(0)))
    for number in range(1, 4):
        ended(coordinator, tx(number))
    coordinator.run(init(name="new", fresh_pid=100, concurrent=True))
    coordinator.run(begin(tx(1, pid=100), "new"))
    after_others(coordinator)
    assert coordinator.state.may_have_forgotten(tx(3))
    assert not coordinator.state.may_have_forgotten(tx(0, pid=100))
    with pytest.raises(TransactionAborted):
        coordinator.run(commit(tx(0, pid=100), "new"))


def test_R39_abort_of_a_possibly_committed_transaction_raises_outcome_unknown() -> None:
    """Only the owner that has not requested a commit may abort: its transaction cannot have
    committed.
    """
    coordinator = after_a_commit()
    with pytest.raises(OutcomeUnknown):
        coordinator.run(abort(tx(3)))
    slot = coordinator.slot
    coordinator.run(abort(tx(3), undecided=True))
    assert coordinator.slot == slot


def one_coordinator(transaction_records: str) -> MemoryLog:
    settings = LogSettings(transaction_state_log_num_partitions=1)
    return MemoryLog(settings, transaction_records=transaction_records)


@pytest.mark.parametrize("step", ["abort", "prepare_abort"])
def test_R39_abort_of_a_forgotten_transaction_requires_undecided(step: str) -> None:
    log = one_coordinator("staged")
    log.admin.create_topic("t", 1)
    coordinator = log.connection.coordinator(0)
    producer, other = log.producer("a"), log.producer("b")
    tx_id = producer.begin_transaction()
    producer.send("t", b"x")
    producer.commit_transaction()
    for _ in range(5):
        with other.transaction():
            other.send("t", b"y")
    with pytest.raises(OutcomeUnknown):
        getattr(coordinator, step)("a", tx_id)
    getattr(coordinator, step)("a", tx_id, undecided=True)


@pytest.mark.both_ways
def test_R39_late_commit_retry_of_a_producer_raises_outcome_unknown(
    transaction_records: str,
) -> None:
    """The answer was lost and other transactions followed. The transaction was committed."""
    log = one_coordinator(transaction_records)
    log.admin.create_topic("t", 1)
    producer = log.producer("a")
    tx_id = producer.begin_transaction()
    producer.send("t", b"x").get()
    log.store.on("create", "transactions/.*/entries", never_lands, times=100)
    log.store.on("create", "transactions/.*/entries", answer_lost, holding="commit_prepared")
    with pytest.raises(OutcomeUnknown):
        producer.commit_transaction()
    log.store.heal()
    log.process().coordinator_of("a").maintain()
    assert log.values("t") == [b"x"]
    other = log.elsewhere("b")
    for _ in range(5):
        with other.transaction():
            other.send("t", b"y")
    assert log.admin.outcome(tx_id) is UNKNOWN
    for _ in range(2):
        with pytest.raises(OutcomeUnknown, match="may be committed"):
            producer.commit_transaction()
    producer.close()
    assert log.values("t") == [b"x", *[b"y"] * 5]
    log.check()


@pytest.mark.both_ways
def test_R39_abort_by_a_fenced_producer_is_fenced_after_outcomes_were_forgotten(
    transaction_records: str,
) -> None:
    """The producer has not requested a commit, so its transaction cannot have committed."""
    log = one_coordinator(transaction_records)
    log.admin.create_topic("t", 1)
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send("t", b"x").get()
    other = log.elsewhere("a")
    for _ in range(6):
        with other.transaction():
            other.send("t", b"y")
    with pytest.raises(ProducerFenced):
        producer.abort_transaction()
    producer.close()
    assert log.values("t") == [b"y"] * 6


# An id that has expired while its outcomes are still remembered.


def of_an_expired_id(**how: bool) -> Coordinator:
    coordinator = registered()
    coordinator.run(begin(tx(0)))
    coordinator.run(commit(tx(0), **how))
    coordinator.run(complete(tx(0)))
    expired(coordinator)
    return coordinator


def test_repeated_commit_of_an_expired_id_is_accepted_while_remembered() -> None:
    coordinator = of_an_expired_id()
    slot = coordinator.slot
    assert coordinator.run(commit(tx(0))) is None
    assert coordinator.slot == slot


@pytest.mark.parametrize("given_up", [True, False])
def test_repeated_commit_of_an_expired_id_with_other_dead_letter_flag_is_refused(
    given_up: bool,
) -> None:
    coordinator = of_an_expired_id(dead_letter=given_up)
    coordinator.run(commit(tx(0), dead_letter=given_up))
    with pytest.raises((TransactionAborted, IllegalTransition)):
        coordinator.run(commit(tx(0), dead_letter=not given_up))


def test_expired_id_cannot_commit_an_aborted_or_unknown_transaction() -> None:
    coordinator = registered()
    coordinator.run(abort(tx(0)))
    expired(coordinator)
    for number in (0, 1):
        with pytest.raises(ProducerFenced, match="was forgotten"):
            coordinator.run(commit(tx(number)))


# The highest number that was forgotten.


def test_R39_highest_forgotten_number_counts_if_transactions_end_out_of_order() -> None:
    coordinator = registered(concurrent=True)
    for number in (3, 5):
        coordinator.run(begin(tx(number)))
    for number in (5, 3):
        coordinator.run(commit(tx(number)))
        coordinator.run(complete(tx(number)))
    after_others(coordinator)
    assert coordinator.state.ids[NAME].forgotten == tx(5)


def test_R39_highest_forgotten_number_stays_if_a_lower_one_is_dropped_later() -> None:
    coordinator = registered(concurrent=True)
    for number in (3, 5):
        coordinator.run(begin(tx(number)))
    for number in (5, 3):
        coordinator.run(commit(tx(number)))
        coordinator.run(complete(tx(number)))
        after_others(coordinator)
    assert coordinator.state.ids[NAME].forgotten == tx(5)


def expire_other(coordinator: Coordinator) -> None:
    assert coordinator.run(ExpireTransactionalId("other", before_ms=10_000))


def test_R39_highest_forgotten_transaction_of_all_expired_ids_is_kept() -> None:
    coordinator = after_a_commit()
    expire_other(coordinator)
    highest = coordinator.state.forgotten
    assert highest is not None
    assert highest.pid == 99
    expired(coordinator)
    assert coordinator.state.forgotten == highest


def test_R39_outcome_dropped_after_expiry_does_not_lower_the_highest_forgotten() -> None:
    coordinator = registered()
    after_others(coordinator)
    expire_other(coordinator)
    ended(coordinator, tx(3))
    expired(coordinator)
    coordinator.run(init(name="third", fresh_pid=50))
    for number in range(5):
        ended(coordinator, tx(number, pid=50), "third")
    assert coordinator.state.forgotten == tx(4, pid=99)


def test_expiry_event_of_an_unknown_id_changes_nothing() -> None:
    coordinator = after_a_commit()
    before = coordinator.state
    coordinator.apply(TransactionalIdExpired("unknown"))
    assert coordinator.state == before
