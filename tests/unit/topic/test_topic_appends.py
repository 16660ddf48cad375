"""Answers of a topic to an append: offsets, sequences and fencing (I2, I7, I8)."""

import pytest

from tests.unit.machine_without_journal import MachineHarness
from tests.unit.segments import segment
from tests.unit.topic_commands import ABORT, COMMIT, append, ends, marker, plain
from txlog.errors import InvalidProducerEpoch, InvariantViolated, OutOfOrderSequence
from txlog.model import TxId
from txlog.topic.events import NO_PRODUCER, AppendBatches, AppendResult, BatchesAppended
from txlog.topic.state import TopicState, apply

# Offsets.


def test_I2_offsets_are_assigned_in_slot_order_per_partition(
    topic: MachineHarness[TopicState],
) -> None:
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


def test_I2_segments_of_one_append_get_consecutive_offsets(
    topic: MachineHarness[TopicState],
) -> None:
    command = AppendBatches((segment({0: 2}, "a"), segment({0: 3, 1: 1}, "b")))
    assert topic.run(command).base_offsets == {0: 0, 1: 0}
    rows = [row for row in topic.state.tail if row.partition == 0]
    found = [(row.segment.rsplit("/")[-1], row.base_offset) for row in rows]
    assert found == [(f"{'0' * 20}a{'0' * 11}.arrow", 0), (f"{'0' * 20}b{'0' * 11}.arrow", 2)]


def test_I2_applying_an_event_with_a_wrong_base_offset_is_refused(
    topic: MachineHarness[TopicState],
) -> None:
    for base in (1, -1):
        with pytest.raises(InvariantViolated, match="I2"):
            apply(topic.state, BatchesAppended((segment({0: 2}),), {0: base}), 1)


def test_markers_take_no_offset(topic: MachineHarness[TopicState]) -> None:
    topic.run(append({0: 5}, tx=TxId(1, 0, 0)))
    topic.run(marker(TxId(1, 0, 0)))
    assert ends(topic) == [5, 0, 0]


# Sequences.


def test_I7_sequences_are_counted_per_partition(topic: MachineHarness[TopicState]) -> None:
    topic.run(append({0: 5, 1: 2}))
    command = append({0: 1, 1: 1}, base_sequences={0: 5, 1: 2})
    assert topic.run(command) == AppendResult({0: 5, 1: 2})


def test_I7_a_repeat_is_acknowledged_with_its_offset_and_not_stored(
    topic: MachineHarness[TopicState],
) -> None:
    topic.run(plain({0: 10}))
    first = topic.run(append({0: 5}))
    before = topic.state
    assert topic.run(append({0: 5})) == AppendResult({0: 10}, frozenset({0}))
    assert first.base_offsets == {0: 10}
    assert topic.state == before


def test_I7_repeat_older_than_kafka_remembers_is_recognised(
    topic: MachineHarness[TopicState],
) -> None:
    for number in range(8):
        topic.run(append({0: 2}, number * 2))
    assert topic.run(append({0: 2}, 0)) == AppendResult({0: -1}, frozenset({0}))
    assert topic.run(append({0: 2}, 6)) == AppendResult({0: 6}, frozenset({0}))
    assert ends(topic) == [16, 0, 0]


def test_I7_partly_repeated_append_stores_only_the_new_partition(
    topic: MachineHarness[TopicState],
) -> None:
    """One partition's records were stored by an earlier flush, the other's were not."""
    topic.run(append({0: 5}))
    result = topic.run(append({0: 5, 1: 3}, segments=(segment({0: 5, 1: 3}, "b"),)))
    assert result == AppendResult({0: 0, 1: 0}, frozenset({0}))
    assert ends(topic) == [5, 3, 0]
    assert [row.partition for row in topic.state.tail] == [0, 1]


@pytest.mark.parametrize(("sequence", "count"), [(6, 1), (4, 2), (3, 9)])
def test_I7_sequence_gap_or_partial_repeat_is_refused_and_not_stored(
    topic: MachineHarness[TopicState], sequence: int, count: int
) -> None:
    topic.run(append({0: 5, 1: 1}))
    before = topic.state
    with pytest.raises(OutOfOrderSequence, match="'t' partition 0, producer 7"):
        topic.run(append({0: count, 1: 1}, base_sequences={0: sequence, 1: 1}))
    assert topic.state == before


def test_I7_segments_of_one_append_share_one_sequence_range(
    topic: MachineHarness[TopicState],
) -> None:
    topic.run(append({0: 5}, segments=(segment({0: 2}, "a"), segment({0: 3}, "b"))))
    assert topic.run(append({0: 1}, sequence=5)).base_offsets == {0: 5}
    with pytest.raises(OutOfOrderSequence, match="a part is stored already"):
        topic.run(append({0: 8}, segments=(segment({0: 4}, "c"), segment({0: 4}, "d"))))


def test_I7_new_producer_must_start_at_sequence_0(topic: MachineHarness[TopicState]) -> None:
    with pytest.raises(OutOfOrderSequence):
        topic.run(append({0: 1}, 1))


def test_I7_new_epoch_must_restart_at_sequence_0(topic: MachineHarness[TopicState]) -> None:
    topic.run(append({0: 5}))
    with pytest.raises(OutOfOrderSequence):
        topic.run(append({0: 1}, 5, epoch=1))
    assert topic.run(append({0: 2}, 0, epoch=1)).base_offsets == {0: 5}


def test_I7_same_sequence_of_another_producer_is_not_a_repeat(
    topic: MachineHarness[TopicState],
) -> None:
    topic.run(append({0: 5}))
    assert topic.run(append({0: 5}, pid=8)).base_offsets == {0: 5}


def test_repeat_without_producer_id_is_stored_again(topic: MachineHarness[TopicState]) -> None:
    topic.run(plain({0: 5}))
    assert topic.run(plain({0: 5})) == AppendResult({0: 5})
    assert NO_PRODUCER not in topic.state.producers


# Fencing.


def test_I8_an_older_epoch_is_refused_once_a_newer_one_wrote(
    topic: MachineHarness[TopicState],
) -> None:
    topic.run(append({0: 1}, 0, epoch=3))
    with pytest.raises(InvalidProducerEpoch, match="epoch 3 of producer 7"):
        topic.run(append({0: 1}, 0, epoch=2))
    with pytest.raises(InvalidProducerEpoch):
        topic.run(append({1: 1}, 0, tx=TxId(7, 2, 9)))


def test_I8_an_abort_marker_fences_the_epochs_below_the_new_one(
    topic: MachineHarness[TopicState],
) -> None:
    """`init_transactions` has raised the epoch to 4 and aborts the open transaction of epoch 3."""
    topic.run(append({0: 1}, tx=TxId(7, 3, 0)))
    topic.run(marker(TxId(7, 3, 0), ABORT, fence_epoch=4))
    with pytest.raises(InvalidProducerEpoch):
        topic.run(append({0: 1}, 1, tx=TxId(7, 3, 1)))
    assert topic.run(append({0: 1}, 0, tx=TxId(7, 4, 0))).base_offsets == {0: 1}


def test_I8_a_marker_fences_even_where_its_transaction_wrote_nothing(
    topic: MachineHarness[TopicState],
) -> None:
    """R10: a fenced instance had added the topic, and its append comes after the marker."""
    topic.run(marker(TxId(7, 3, 0), ABORT, fence_epoch=4))
    with pytest.raises(InvalidProducerEpoch):
        topic.run(append({0: 1}, tx=TxId(7, 3, 0)))


def test_the_sequences_of_a_fenced_epoch_are_forgotten(topic: MachineHarness[TopicState]) -> None:
    topic.run(append({0: 3}, tx=TxId(7, 3, 0)))
    topic.run(marker(TxId(7, 3, 0), ABORT, fence_epoch=4))
    assert topic.state.producers[7].recent == {}
    assert topic.state.producers[7].epoch == 4


def test_sequences_of_an_epoch_continue_across_commits_and_aborts(
    topic: MachineHarness[TopicState],
) -> None:
    for number, decision in enumerate((COMMIT, ABORT, COMMIT)):
        topic.run(append({0: 3}, number * 3, tx=TxId(7, 0, number)))
        topic.run(marker(TxId(7, 0, number), decision))
    assert ends(topic) == [9, 0, 0]
