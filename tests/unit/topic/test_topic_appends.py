"""Answers of a topic to an append: offsets, sequences and fencing (I2, I7, I8)."""

import pytest

from tests.unit.machine_without_journal import Fold
from tests.unit.segments import segment
from tests.unit.topic_commands import ABORT, COMMIT, append, ends, marker, new_topic, plain
from txlog.errors import InvalidProducerEpoch, InvariantViolated, OutOfOrderSequence
from txlog.model import TxId
from txlog.topic.events import NO_PRODUCER, AppendBatches, AppendResult, BatchesAppended
from txlog.topic.state import TopicState, apply


@pytest.fixture
def topic() -> Fold[TopicState]:
    return new_topic()


# Offsets.


def test_I2_offsets_are_given_in_slot_order_for_each_partition(topic: Fold[TopicState]) -> None:
    assert topic.run(plain({0: [2, 3], 2: 4})).base_offsets == {0: 0, 2: 0}
    assert topic.run(plain({0: 1, 1: 1})).base_offsets == {0: 5, 1: 0}
    assert ends(topic) == [6, 1, 4]
    assert [(r.partition, r.base_offset, r.row_count) for r in topic.state.tail] == [
        (0, 0, 2),
        (0, 2, 3),
        (2, 0, 4),
        (0, 5, 1),
        (1, 0, 1),
    ]


def test_I2_several_segments_of_one_append_follow_each_other(topic: Fold[TopicState]) -> None:
    command = AppendBatches((segment({0: 2}, "a"), segment({0: 3, 1: 1}, "b")))
    assert topic.run(command).base_offsets == {0: 0, 1: 0}
    assert [(r.segment[-7:], r.base_offset) for r in topic.state.tail if r.partition == 0] == [
        ("a.arrow", 0),
        ("b.arrow", 2),
    ]


def test_I2_an_event_that_would_leave_a_gap_is_refused_by_the_fold(
    topic: Fold[TopicState],
) -> None:
    for base in (1, -1):
        with pytest.raises(InvariantViolated, match="I2"):
            apply(topic.state, BatchesAppended((segment({0: 2}),), {0: base}), 1)


def test_markers_take_no_offset(topic: Fold[TopicState]) -> None:
    topic.run(append({0: 5}, tx=TxId(1, 0, 0)))
    topic.run(marker(TxId(1, 0, 0)))
    assert ends(topic) == [5, 0, 0]


# Sequences.


def test_I7_sequences_are_counted_for_each_partition_apart(topic: Fold[TopicState]) -> None:
    topic.run(append({0: 5, 1: 2}))
    command = append({0: 1, 1: 1}, base_sequences={0: 5, 1: 2})
    assert topic.run(command) == AppendResult({0: 5, 1: 2})


def test_I7_a_repeat_is_acknowledged_with_its_offset_and_not_stored(
    topic: Fold[TopicState],
) -> None:
    topic.run(plain({0: 10}))
    first = topic.run(append({0: 5}))
    before = topic.state
    assert topic.run(append({0: 5})) == AppendResult({0: 10}, frozenset({0}))
    assert first.base_offsets == {0: 10}
    assert topic.state == before


def test_I7_a_repeat_is_known_after_more_batches_than_kafka_remembers(
    topic: Fold[TopicState],
) -> None:
    for number in range(8):
        topic.run(append({0: 2}, number * 2))
    assert topic.run(append({0: 2}, 0)) == AppendResult({0: -1}, frozenset({0}))
    assert topic.run(append({0: 2}, 6)) == AppendResult({0: 6}, frozenset({0}))
    assert ends(topic) == [16, 0, 0]


def test_I7_a_flush_that_is_half_a_repeat_stores_the_other_half(topic: Fold[TopicState]) -> None:
    """One partition's records were stored by an earlier flush, the other's were not."""
    topic.run(append({0: 5}))
    result = topic.run(append({0: 5, 1: 3}, segments=(segment({0: 5, 1: 3}, "b"),)))
    assert result == AppendResult({0: 0, 1: 0}, frozenset({0}))
    assert ends(topic) == [5, 3, 0]
    assert [row.partition for row in topic.state.tail] == [0, 1]


@pytest.mark.parametrize(("sequence", "count"), [(6, 1), (4, 2), (3, 9)])
def test_I7_a_gap_or_a_half_repeat_is_refused_and_nothing_is_stored(
    topic: Fold[TopicState], sequence: int, count: int
) -> None:
    topic.run(append({0: 5, 1: 1}))
    before = topic.state
    with pytest.raises(OutOfOrderSequence, match="'t' partition 0, producer 7"):
        topic.run(append({0: count, 1: 1}, base_sequences={0: sequence, 1: 1}))
    assert topic.state == before


def test_I7_the_segments_of_an_append_count_together(topic: Fold[TopicState]) -> None:
    topic.run(append({0: 5}, segments=(segment({0: 2}, "a"), segment({0: 3}, "b"))))
    assert topic.run(append({0: 1}, sequence=5)).base_offsets == {0: 5}
    with pytest.raises(OutOfOrderSequence, match="a part is stored already"):
        topic.run(append({0: 8}, segments=(segment({0: 4}, "c"), segment({0: 4}, "d"))))


def test_I7_a_producer_without_a_past_begins_at_0(topic: Fold[TopicState]) -> None:
    with pytest.raises(OutOfOrderSequence):
        topic.run(append({0: 1}, 1))


def test_I7_a_new_epoch_begins_at_0_again(topic: Fold[TopicState]) -> None:
    topic.run(append({0: 5}))
    with pytest.raises(OutOfOrderSequence):
        topic.run(append({0: 1}, 5, epoch=1))
    assert topic.run(append({0: 2}, 0, epoch=1)).base_offsets == {0: 5}


def test_I7_the_same_sequences_of_two_producers_are_two_records(topic: Fold[TopicState]) -> None:
    topic.run(append({0: 5}))
    assert topic.run(append({0: 5}, pid=8)).base_offsets == {0: 5}


def test_without_a_producer_id_a_repeat_is_stored_again(topic: Fold[TopicState]) -> None:
    topic.run(plain({0: 5}))
    assert topic.run(plain({0: 5})) == AppendResult({0: 5})
    assert NO_PRODUCER not in topic.state.producers


# Fencing.


def test_I8_an_older_epoch_is_refused_once_a_newer_one_wrote(topic: Fold[TopicState]) -> None:
    topic.run(append({0: 1}, 0, epoch=3))
    with pytest.raises(InvalidProducerEpoch, match="epoch 3 of producer 7"):
        topic.run(append({0: 1}, 0, epoch=2))
    with pytest.raises(InvalidProducerEpoch):
        topic.run(append({1: 1}, 0, tx=TxId(7, 2, 9)))


def test_I8_an_abort_marker_fences_the_epochs_below_the_new_one(topic: Fold[TopicState]) -> None:
    """`init_transactions` has raised the epoch to 4 and aborts the open transaction of epoch 3."""
    topic.run(append({0: 1}, tx=TxId(7, 3, 0)))
    topic.run(marker(TxId(7, 3, 0), ABORT, fence_epoch=4))
    with pytest.raises(InvalidProducerEpoch):
        topic.run(append({0: 1}, 1, tx=TxId(7, 3, 1)))
    assert topic.run(append({0: 1}, 0, tx=TxId(7, 4, 0))).base_offsets == {0: 1}


def test_I8_a_marker_fences_even_where_its_transaction_wrote_nothing(
    topic: Fold[TopicState],
) -> None:
    """R10: a fenced instance had added the topic, and its append comes after the marker."""
    topic.run(marker(TxId(7, 3, 0), ABORT, fence_epoch=4))
    with pytest.raises(InvalidProducerEpoch):
        topic.run(append({0: 1}, tx=TxId(7, 3, 0)))


def test_the_sequences_of_a_fenced_epoch_are_forgotten(topic: Fold[TopicState]) -> None:
    topic.run(append({0: 3}, tx=TxId(7, 3, 0)))
    topic.run(marker(TxId(7, 3, 0), ABORT, fence_epoch=4))
    assert topic.state.producers[7].recent == {}
    assert topic.state.producers[7].epoch == 4


def test_the_sequences_of_an_epoch_go_on_after_a_commit_and_after_an_abort(
    topic: Fold[TopicState],
) -> None:
    for number, decision in enumerate((COMMIT, ABORT, COMMIT)):
        topic.run(append({0: 3}, number * 3, tx=TxId(7, 0, number)))
        topic.run(marker(TxId(7, 0, number), decision))
    assert ends(topic) == [9, 0, 0]
