"""Effects of a marker, and the last stable offset (I9, R6, R7, R10)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.machine_without_journal import MachineHarness, sections_of
from tests.unit.segments import segment
from tests.unit.topic_commands import ABORT, COMMIT, append, ends, marker, new_topic, plain, stable
from txlog.errors import IllegalTransition, InternalError, InvalidRecord, TransactionAborted
from txlog.model import Decision, TxId
from txlog.topic.events import AddPartitions, MarkerWritten, SealIndex
from txlog.topic.state import TopicState

# Markers.


@pytest.mark.parametrize("decision", [COMMIT, ABORT])
def test_I9_marker_ends_only_the_transaction_it_names(
    topic: MachineHarness[TopicState], decision: Decision
) -> None:
    own, other = TxId(1, 0, 0), TxId(2, 0, 0)
    topic.run(append({0: 1}, tx=own))
    topic.run(append({0: 1, 1: 1}, tx=other))
    assert topic.run(marker(own, decision)) is not None
    assert dict(topic.state.open_transactions()).keys() == {other}
    assert stable(topic) == [1, 0, 0]
    decided = [topic.state.decided(row) for row in topic.state.tail]
    assert [(row.decided_slot >= 0, row.aborted) for row in decided] == [
        (True, decision is ABORT),
        (False, False),
        (False, False),
    ]


def test_R10_a_marker_of_another_number_leaves_an_open_transaction_open(
    topic: MachineHarness[TopicState],
) -> None:
    """A marker ends only its own TxId, whatever other transaction the pid has open."""
    topic.run(append({0: 1}, tx=TxId(1, 0, 5)))
    topic.run(marker(TxId(1, 0, 6), COMMIT, floor=4))
    assert stable(topic)[0] == 0
    assert topic.run(marker(TxId(1, 0, 5), ABORT)) is not None
    assert stable(topic)[0] == 1


@pytest.mark.parametrize("again", [COMMIT, ABORT])
def test_R6_a_second_marker_changes_nothing(
    topic: MachineHarness[TopicState], again: Decision
) -> None:
    topic.run(append({0: 1}, tx=TxId(1, 0, 0)))
    topic.run(marker(TxId(1, 0, 0), COMMIT))
    before = topic.state
    assert topic.run(marker(TxId(1, 0, 0), again)) is None
    assert topic.state == before


def test_repeated_marker_returns_offsets_of_staged_records_until_sealed(
    topic: MachineHarness[TopicState],
) -> None:
    """Another process may have written it; the sealed index is not searched for it."""
    topic.run(plain({0: 2, 1: 1}))
    staged = (segment({0: [3, 2]}, "one"), segment({1: 4}, "two"))
    first = topic.run(marker(TxId(1, 0, 0), segments=staged))
    topic.run(plain({0: 2, 1: 1}))
    assert topic.run(marker(TxId(1, 0, 0), segments=staged)) == first == {0: 2, 1: 1}
    topic.run(SealIndex())
    assert topic.run(marker(TxId(1, 0, 0), segments=staged)) is None


@pytest.mark.parametrize("late", [TxId(1, 2, 4), TxId(1, 2, 3), TxId(1, 1, 9), TxId(1, 0, 500)])
def test_R6_marker_of_an_earlier_transaction_is_ignored(
    topic: MachineHarness[TopicState], late: TxId
) -> None:
    """Idempotence is by order: comparing with the last one alone would accept these again."""
    topic.run(marker(TxId(1, 2, 5), COMMIT))
    before = topic.state
    staged = (segment({0: 4}),)
    assert topic.run(marker(late, COMMIT, segments=staged)) is None
    assert topic.state == before


@pytest.mark.parametrize("late", [TxId(1, 2, 5), TxId(1, 2, 4), TxId(1, 2, 0)])
def test_R10_records_of_a_finished_transaction_are_refused(
    topic: MachineHarness[TopicState], late: TxId
) -> None:
    """The records would stay open forever: their marker is stored already, or never comes."""
    topic.run(marker(TxId(1, 2, 5), ABORT))
    with pytest.raises(TransactionAborted, match="finished in topic 't'"):
        topic.run(append({0: 1}, tx=late))


@pytest.mark.parametrize("decision", [COMMIT, ABORT])
@pytest.mark.parametrize("is_open", [True, False], ids=["open", "not open"])
def test_R10_every_marker_is_recorded_whether_or_not_its_transaction_is_open(
    topic: MachineHarness[TopicState], is_open: bool, decision: Decision
) -> None:
    tx = TxId(1, 0, 0)
    if is_open:
        topic.run(append({0: 1}, tx=tx))
    assert topic.run(marker(tx, decision)) is not None
    (written,) = [event for event in topic.events if isinstance(event, MarkerWritten)]
    assert (written.tx_id, written.decision) == (tx, decision)
    assert topic.reopened().producers[1].is_finished(tx)
    assert dict(topic.state.open_transactions()) == {}
    with pytest.raises(TransactionAborted, match="finished in topic 't'"):
        topic.run(append({0: 1}, sequence=1, tx=tx))


def test_R10_a_second_open_transaction_of_a_producer_is_refused(
    topic: MachineHarness[TopicState],
) -> None:
    topic.run(append({0: 1}, tx=TxId(1, 0, 0)))
    with pytest.raises(InternalError, match="R10"):
        topic.run(append({0: 1}, 1, tx=TxId(1, 0, 1)))
    with pytest.raises(InternalError, match="R10"):
        topic.run(append({1: 1}, 0, tx=TxId(1, 1, 0)))


def test_producer_cannot_append_outside_its_open_transaction(
    topic: MachineHarness[TopicState],
) -> None:
    topic.run(append({0: 1}, tx=TxId(7, 0, 0)))
    with pytest.raises(IllegalTransition, match="open transaction"):
        topic.run(append({1: 1}))


def test_R7_finished_numbers_above_the_floor_are_remembered_individually(
    topic: MachineHarness[TopicState],
) -> None:
    """Half messages: 1, 2 and 3 are open, 2 is finished first; 1 and 3 must still be accepted."""
    assert topic.run(marker(TxId(1, 0, 2), COMMIT, floor=0)) is not None
    assert topic.run(marker(TxId(1, 0, 2), COMMIT, floor=0)) is None
    assert (
        topic.run(marker(TxId(1, 0, 1), COMMIT, floor=2, segments=(segment({0: 1}),))) is not None
    )
    assert (
        topic.run(marker(TxId(1, 0, 3), COMMIT, floor=3, segments=(segment({0: 1}),))) is not None
    )
    producer = topic.state.producers[1]
    assert (producer.finished_floor, producer.finished_above) == (3, ())


def test_R7_the_floor_only_rises(topic: MachineHarness[TopicState]) -> None:
    """Another process with an old state of the coordinator writes a marker with an old floor."""
    topic.run(marker(TxId(1, 0, 4), COMMIT, floor=4))
    topic.run(marker(TxId(1, 0, 6), COMMIT, floor=1))
    producer = topic.state.producers[1]
    assert (producer.finished_floor, producer.finished_above) == (4, ((6, 6),))


def test_R7_finished_numbers_above_an_open_one_stay_one_range(
    topic: MachineHarness[TopicState],
) -> None:
    """Number 0 stays undecided: all numbers after it are remembered as one range."""
    for number in range(1, 1_001):
        topic.run(marker(TxId(1, 0, number), COMMIT, floor=-1))
    producer = topic.state.producers[1]
    assert (producer.finished_floor, producer.finished_above) == (-1, ((1, 1_000),))
    assert not producer.is_finished(TxId(1, 0, 0))
    assert topic.run(marker(TxId(1, 0, 0), COMMIT, floor=1_000)) is not None
    producer = topic.state.producers[1]
    assert (producer.finished_floor, producer.finished_above) == (1_000, ())


def test_R7_finished_numbers_are_stored_as_ranges(topic: MachineHarness[TopicState]) -> None:
    """While one transaction stays open there may be very many finished numbers."""
    for number in (5, 2, 3):
        topic.run(marker(TxId(1, 0, number), COMMIT, floor=0))
    (row,) = sections_of(topic.machine, topic.state)["producer"]
    assert row[1]["finished_above"] == [[2, 3], [5, 5]]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=40))
def test_R7_finished_numbers_match_a_model_set(steps: list[tuple[int, int]]) -> None:
    """Markers in any order, with floors that lag; a snapshot between them changes nothing."""
    topic, done, floor = new_topic(), set[int](), -1
    spanning: set[int] = set()
    for number, lag in steps:
        others = ("other", "another")[: 2 * (lag % 2)]
        low = max(number - lag, -1)
        written = topic.run(marker(TxId(1, 0, number), COMMIT, floor=low, topic_ids=others))
        if written is not None:
            done.add(number)
            floor = max(floor, low)
            spanning |= {number} if others else set()
        assert topic.reopened() == topic.state
        producer = topic.state.producers[1]
        for one in range(31):
            assert producer.is_finished(TxId(1, 0, one)) == (one <= floor or one in done)
        assert producer.last is not None
        known = {one.number for one in producer.earlier} - {producer.last.number}
        assert known == {one for one in spanning if one > floor} - {producer.last.number}


def test_R7_new_epoch_starts_with_a_new_floor(topic: MachineHarness[TopicState]) -> None:
    topic.run(marker(TxId(1, 0, 9), COMMIT))
    assert topic.run(marker(TxId(1, 1, 0), COMMIT)) is not None
    producer = topic.state.producers[1]
    assert (producer.finished_epoch, producer.finished_floor) == (1, 0)
    assert producer.is_finished(TxId(1, 0, 10))
    assert not producer.is_finished(TxId(1, 1, 1))


def test_staged_records_appear_with_their_commit_marker(topic: MachineHarness[TopicState]) -> None:
    topic.run(plain({0: 2}))
    topic.run(marker(TxId(1, 0, 0), COMMIT, segments=(segment({0: 3, 1: 1}),)))
    assert ends(topic) == stable(topic) == [5, 1, 0]
    row = topic.state.decided(topic.state.tail[-1])
    assert (row.tx_id, row.aborted, row.decided_slot, row.base_sequence) == (
        TxId(1, 0, 0),
        False,
        2,
        -1,
    )


def test_staged_records_of_an_aborted_transaction_never_appear(
    topic: MachineHarness[TopicState],
) -> None:
    topic.run(marker(TxId(1, 0, 0), ABORT, segments=(segment({0: 3}),)))
    assert ends(topic) == [0, 0, 0]
    assert topic.state.tail == ()


def test_marker_with_staged_records_of_unknown_partition_is_refused(
    topic: MachineHarness[TopicState],
) -> None:
    """A process that applies the decision then reads the tip first: the topic has grown."""
    command = marker(TxId(1, 0, 0), COMMIT, segments=(segment({3: 1}),))
    with pytest.raises(InvalidRecord):
        topic.run(command)
    topic.run(AddPartitions(4))
    topic.run(command)
    assert ends(topic) == [0, 0, 0, 1]


def test_transaction_may_have_both_in_log_and_staged_records(
    topic: MachineHarness[TopicState],
) -> None:
    tx = TxId(1, 0, 0)
    topic.run(append({0: 1}, tx=tx))
    topic.run(plain({0: 1}))
    topic.run(marker(tx, COMMIT, segments=(segment({0: 2}),)))
    assert [(row.base_offset, row.tx_id) for row in topic.state.tail] == [
        (0, tx),
        (1, None),
        (2, tx),
    ]
    assert stable(topic)[0] == 4


# The last stable offset.


def test_the_lso_is_the_first_offset_of_the_oldest_open_transaction(
    topic: MachineHarness[TopicState],
) -> None:
    topic.run(plain({0: 2, 1: 2}))
    topic.run(append({0: 1}, tx=TxId(1, 0, 0)))
    topic.run(append({0: 1, 1: 1}, tx=TxId(2, 0, 0)))
    topic.run(plain({0: 5, 1: 5}))
    topic.run(append({0: 1}, 1, tx=TxId(1, 0, 0)))
    assert stable(topic) == [2, 2, 0]
    topic.run(marker(TxId(1, 0, 0), ABORT))
    assert stable(topic) == [3, 2, 0]
    topic.run(marker(TxId(2, 0, 0), COMMIT))
    assert stable(topic) == ends(topic) == [10, 8, 0]


def test_transaction_blocks_each_partition_from_its_first_record_there(
    topic: MachineHarness[TopicState],
) -> None:
    tx = TxId(1, 0, 0)
    topic.run(append({0: 1}, tx=tx))
    topic.run(plain({1: 7}))
    topic.run(append({1: 1}, 0, tx=tx))
    assert stable(topic) == [0, 7, 0]


def test_lso_without_an_open_transaction_is_the_log_end(topic: MachineHarness[TopicState]) -> None:
    topic.run(plain({0: 4}))
    assert stable(topic) == [4, 0, 0]
