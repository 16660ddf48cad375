"""`check_log` finds decisions, markers and offsets that disagree, and names the invariant."""

from dataclasses import replace

import pytest

from tests.protocol.steps import (
    GROUP,
    NAME,
    TIMEOUT_MS,
    append,
    coordinator,
    participant,
    pend,
    prepare,
    register,
    tx_of,
)
from tests.protocol.world import Process
from tests.unit.verify.intact_log import (
    COORDINATOR,
    Events,
    IntactLog,
    adding,
    changing,
    dropping,
    first,
    invariants,
)
from txlog.coordinator.events import (
    AbortPrepared,
    CommitPrepared,
    ProducerInitialised,
    TransactionBegun,
    TransactionCompleted,
)
from txlog.groups.state import (
    OffsetsPended,
    PendingApplied,
    PendingReleased,
)
from txlog.model import Decision, TxId
from txlog.topic.events import MarkerWritten
from txlog.verify.facts import coordinator_facts
from txlog.verify.invariants import check_log


@pytest.fixture
def log() -> IntactLog:
    log = IntactLog()
    assert check_log(log.store) == []
    return log


# Decisions: I3, I4, I5, I9, I11.


def marker(tx: TxId, decision: Decision = Decision.COMMIT) -> MarkerWritten:
    return MarkerWritten(tx, decision, tx.number, 0)


def test_I4_marker_that_contradicts_the_decision_is_reported(log: IntactLog) -> None:
    log.edit(log.topic("b"), changing(MarkerWritten, 2, decision=Decision.COMMIT))
    assert invariants(log) == {"I4"}


def test_I4_marker_without_a_decision_is_reported(log: IntactLog) -> None:
    log.edit(log.topic("b"), adding(marker(TxId(500, 0, 0))))
    assert invariants(log) == {"I4"}


def test_I4_marker_before_the_decision_is_reported(log: IntactLog) -> None:
    tx = tx_of(log.producer, 2)
    declared = participant(log.process, "b", logged=True)
    coordinator(log.process).begin("p", tx, TIMEOUT_MS, (declared,))
    log.edit(log.topic("b"), adding(marker(tx)))
    assert invariants(log) == {"I4"}


def test_I4_two_decisions_of_one_transaction_are_reported(log: IntactLog) -> None:
    tx = tx_of(log.producer, 0)
    log.edit(COORDINATOR, adding(AbortPrepared("p", tx, 0, 0)))
    assert invariants(log) == {"I4", "I15"}


def test_I4_reused_transaction_number_is_reported(log: IntactLog) -> None:
    tx = tx_of(log.producer, 0)
    log.edit(COORDINATOR, adding(TransactionBegun("p", tx, 0, 1)))
    assert invariants(log) == {"I4"}


def test_I8_commit_of_a_superseded_epoch_is_reported(log: IntactLog) -> None:
    register(log.process, "j", "p")
    log.edit(COORDINATOR, adding(CommitPrepared("p", tx_of(log.producer, 9), 0)))
    assert invariants(log) == {"I8"}


@pytest.mark.parametrize(("pid", "epoch"), [(0, 5), (7, 1), (100_000, 0)])
def test_I8_registration_out_of_sequence_is_reported(log: IntactLog, pid: int, epoch: int) -> None:
    event = ProducerInitialised("fresh", pid, epoch, "i", 1, 0)
    log.edit(COORDINATOR, adding(event))
    assert invariants(log) == {"I8"}


def test_I3_records_whose_marker_never_comes_are_reported(log: IntactLog) -> None:
    """The records' transaction began without this topic, or did not begin at all."""
    tx = tx_of(log.producer, 2)
    coordinator(log.process).begin("p", tx, TIMEOUT_MS)
    append(log.process, "a", tx, 1)
    append(log.process, "a", TxId(400, 0, 0), 1)
    found = check_log(log.store)
    assert [finding.invariant for finding in found] == ["I3", "I3"]
    assert all("hangs" in finding.message for finding in found)


def test_I3_I4_I5_transactions_missing_from_pruned_coordinator_are_reported(
    log: IntactLog,
) -> None:
    """A coordinator keeps open transactions forever, and outcomes for long: none was forgotten."""
    assert coordinator(log.process).journal.prune(0) > 0
    assert check_log(log.store) == []
    append(log.process, "a", TxId(400, 0, 0), 1)
    log.edit(log.topic("b"), adding(marker(TxId(500, 0, 0))))
    tx = TxId(600, 0, 0)
    pended(log.process, tx)
    log.process.connection.offsets.apply_pending(GROUP, tx)
    found = [(finding.invariant, finding.message) for finding in check_log(log.store)]
    assert sorted(found, key=str) == [
        ("I3", f"{TxId(400, 0, 0)} hangs: it is open, and no coordinator knows it"),
        ("I4", f"{Decision.COMMIT} of {TxId(500, 0, 0)}, which no coordinator knows"),
        ("I5", f"LAST-COMMIT of {GROUP!r} is {tx}, not committed"),
        ("I5", f"offsets of {tx} are applied, and no coordinator knows it"),
    ]


def test_outcome_that_pruned_coordinator_may_have_forgotten_is_not_reported(
    log: IntactLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records without a marker are the exception: open transactions are never forgotten."""
    coordinator(log.process).journal.prune(0)
    monkeypatch.setattr(coordinator_facts, "OUTCOME_GENERATIONS_MAX", 0)
    log.edit(log.topic("b"), adding(marker(TxId(500, 0, 0))))
    assert check_log(log.store) == []
    append(log.process, "a", TxId(400, 0, 0), 1)
    assert [finding.invariant for finding in check_log(log.store)] == ["I3"]


def test_I9_marker_in_a_topic_that_is_no_participant_is_reported(log: IntactLog) -> None:
    log.edit(log.topic("src"), adding(marker(tx_of(log.producer, 0))))
    assert invariants(log) == {"I9"}


def test_I3_commit_marker_without_its_staged_records_is_reported(log: IntactLog) -> None:
    log.edit(log.topic("a"), changing(MarkerWritten, 1, segments=(), base_offsets={}))
    assert invariants(log) == {"I3"}


def test_I11_marker_with_wrong_topic_ids_is_reported(log: IntactLog) -> None:
    log.edit(log.topic("a"), changing(MarkerWritten, topic_ids=()))
    assert invariants(log) == {"I11"}


@pytest.mark.parametrize(("topic", "nth"), [("a", 1), ("b", 0), ("b", 2)])
def test_I5_complete_transaction_without_a_marker_is_reported(
    log: IntactLog, topic: str, nth: int
) -> None:
    log.edit(log.topic(topic), dropping(MarkerWritten, nth))
    assert invariants(log) == ({"I2", "I5"} if (topic, nth) == ("b", 0) else {"I5"})


def test_I15_missing_staged_segment_of_decided_transaction_is_reported(log: IntactLog) -> None:
    staged = participant(log.process, "a", 9)
    prepare(log.process, tx_of(log.query, 3), staged, groups=())
    log.store.delete(staged.segments[0].path)
    assert [(f.path, f.invariant) for f in check_log(log.store)] == [
        (staged.segments[0].path, "I15")
    ]


def test_I10_micro_batch_committed_twice_is_reported(log: IntactLog) -> None:
    def change(events: Events) -> None:
        entry, index = first(events, CommitPrepared, 1)
        entry[index] = replace(entry[index], mark=replace(entry[index].mark, batch_id=0))

    log.edit(COORDINATOR, change)
    assert invariants(log) == {"I10"}


@pytest.mark.parametrize(
    ("batch", "fingerprint", "label", "found"),
    [
        (1, "plan", "", set()),
        (2, "plan", "", {"I10"}),
        (5, "plan", "", {"I10"}),
        (5, "plan", "clicks", set()),
        (5, "", "", set()),
        (0, "", "clicks", {"I10"}),
    ],
)
def test_I10_skipped_micro_batches_are_reported(
    log: IntactLog, batch: int, fingerprint: str, label: str, found: set[str]
) -> None:
    """A write of a `foreachBatch` may skip some: it has a label, or does not see the plan."""

    def change(events: Events) -> None:
        for nth, batch_id in enumerate((0, batch)):
            entry, index = first(events, CommitPrepared, nth)
            told = {"batch_id": batch_id, "fingerprint": fingerprint, "label": label}
            entry[index] = replace(entry[index], mark=replace(entry[index].mark, **told))

    log.edit(COORDINATOR, change)
    assert invariants(log) == found


# Offsets: I5, I6.


def test_I6_gap_between_committed_ranges_is_reported(log: IntactLog) -> None:
    def change(events: Events) -> None:
        entry, index = first(events, OffsetsPended, 1)
        pending = entry[index].pending
        moved = replace(pending.offsets[0], start=1)
        entry[index] = replace(entry[index], pending=replace(pending, offsets=(moved,)))

    log.edit(COORDINATOR, change)
    (finding,) = check_log(log.store)
    assert finding.invariant == "I6"
    assert "[1, 3) of src-0 follows 2" in finding.message


def test_I6_range_that_goes_backwards_is_reported(log: IntactLog) -> None:
    def change(events: Events) -> None:
        entry, index = first(events, OffsetsPended, 1)
        pending = entry[index].pending
        moved = replace(pending.offsets[0], end=1)
        entry[index] = replace(entry[index], pending=replace(pending, offsets=(moved,)))

    log.edit(COORDINATOR, change)
    assert invariants(log) == {"I6"}


def test_I6_two_pends_on_one_partition_are_reported(log: IntactLog) -> None:
    def change(events: Events) -> None:
        entry, index = first(events, OffsetsPended, 0)
        other = replace(entry[index], tx_id=tx_of(log.query, 9))
        events.insert(events.index(entry) + 1, [other])

    log.edit(COORDINATOR, change)
    assert invariants(log) == {"I6"}


def test_I5_released_offsets_of_committed_transaction_are_reported(log: IntactLog) -> None:
    def change(events: Events) -> None:
        entry, index = first(events, PendingApplied, 1)
        entry[index] = PendingReleased(GROUP, entry[index].tx_id)

    log.edit(COORDINATOR, change)
    assert invariants(log) == {"I5"}


def test_I5_still_pending_offsets_of_committed_transaction_are_reported(
    log: IntactLog,
) -> None:
    log.edit(COORDINATOR, dropping(PendingApplied, 1))
    assert invariants(log) == {"I5"}


def test_I5_missing_pend_of_committed_transaction_is_reported(log: IntactLog) -> None:
    def change(events: Events) -> None:
        dropping(PendingApplied, 1)(events)
        dropping(OffsetsPended, 1)(events)

    log.edit(COORDINATOR, change)
    assert invariants(log) == {"I5"}


def pended(process: Process, tx: TxId) -> None:
    pend(process, tx, 3, 4)


def test_I5_applied_offsets_of_undecided_transaction_are_reported(log: IntactLog) -> None:
    tx = tx_of(log.query, 3)
    pended(log.process, tx)
    coordinator(log.process).begin(NAME, tx, TIMEOUT_MS)
    log.edit(COORDINATOR, adding(PendingApplied(GROUP, tx, 0)))
    found = {finding.message for finding in check_log(log.store)}
    assert any("LAST-COMMIT" in message for message in found)
    assert any("are applied: it is None" in message for message in found)


def test_I5_offsets_released_while_transaction_may_commit_are_reported(
    log: IntactLog,
) -> None:
    tx = tx_of(log.query, 3)
    pended(log.process, tx)
    log.edit(COORDINATOR, adding(PendingReleased(GROUP, tx)))
    (finding,) = check_log(log.store)
    assert (finding.invariant, "(R3)" in finding.message) == ("I5", True)


def test_I5_offsets_applied_before_the_markers_are_reported(log: IntactLog) -> None:
    tx = tx_of(log.query, 3)
    pended(log.process, tx)
    prepare(log.process, tx, participant(log.process, "a", 3))
    log.edit(COORDINATOR, adding(PendingApplied(GROUP, tx, 0)))
    (finding,) = check_log(log.store)
    assert (finding.invariant, "(R8)" in finding.message) == ("I5", True)


def test_I5_apply_without_a_pend_is_reported(log: IntactLog) -> None:
    log.edit(COORDINATOR, adding(PendingApplied(GROUP, tx_of(log.query, 0), 0)))
    assert invariants(log) == {"I5", "I15"}


def test_missing_COMMITTED_of_finished_transaction_is_not_reported(log: IntactLog) -> None:
    """A commit does not wait for COMMITTED: the process may die before it is written."""
    log.edit(COORDINATOR, dropping(TransactionCompleted, 3))
    assert check_log(log.store) == []


def test_deleted_committed_offset_is_not_reported(log: IntactLog) -> None:
    offsets = log.process.connection.offsets
    where = next(iter(offsets.group(GROUP).committed))
    offsets.delete_offsets(GROUP, (where,))
    assert where not in offsets.group(GROUP).committed
    assert check_log(log.store) == []
