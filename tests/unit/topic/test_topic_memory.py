"""State that a topic keeps about its producers and transactions."""

from dataclasses import replace

from tests.unit.machine_without_journal import MachineHarness
from tests.unit.segments import segment
from tests.unit.topic_commands import ABORT, OPENED, append, marker, plain
from txlog.layout import segment_id_at
from txlog.model import TxId
from txlog.settings import TopicConfig
from txlog.topic.events import AppendBatches, CloseTopic, SealIndex
from txlog.topic.machine import TopicMachine
from txlog.topic.producer_state import AppliedTransaction, ProducerStateEntry, RecentBatch
from txlog.topic.state import PartitionState, TopicState, TxDecision, sealed_at

FIRST, SECOND, NEWER = TxId(7, 0, 0), TxId(7, 0, 1), TxId(7, 1, 0)


def producer(topic: MachineHarness[TopicState]) -> ProducerStateEntry:
    return topic.state.producers[7]


def decisions(state: TopicState) -> dict[TxId, TxDecision]:
    return {TxId(*key): decision for key, decision in state.decisions.items()}


def test_bounds_of_unknown_partition_are_empty(topic: MachineHarness[TopicState]) -> None:
    topic.run(plain({2: 4}))
    assert topic.state.bounds(2).next_offset == 4
    assert [topic.state.bounds(number) for number in (3, 9)] == [PartitionState()] * 2


def test_row_without_producer_has_no_transaction_or_sequence(
    topic: MachineHarness[TopicState],
) -> None:
    topic.run(plain({0: 4}))
    (row,) = topic.state.tail
    assert (row.pid, row.epoch, row.number, row.base_sequence) == (-1, -1, -1, -1)
    assert (row.tx_id, row.slot, row.first_slot, row.decided_slot) == (None, 1, -1, -1)
    assert topic.state.decided(row) == row


def test_a_staged_row_has_its_transaction_and_no_sequence(
    topic: MachineHarness[TopicState],
) -> None:
    topic.run(marker(FIRST, segments=(segment({0: 4}),), topic_ids=("0123456789abcdef", "other")))
    (row,) = topic.state.tail
    assert (row.tx_id, row.base_sequence) == (FIRST, -1)
    found = topic.state.decided(row)
    assert (found.first_slot, found.decided_slot, found.aborted) == (1, 1, False)
    assert found.topic_ids == ("0123456789abcdef", "other")


def test_sequences_are_consecutive_within_each_partition(topic: MachineHarness[TopicState]) -> None:
    topic.run(append({0: 10, 1: 10}))
    command = append({0: 4, 1: 2}, sequence=10)
    topic.run(replace(command, segments=(segment({0: 4}), segment({0: 3, 1: 2}, "b"))))
    rows = [(row.partition, row.base_offset, row.base_sequence) for row in topic.state.tail[2:]]
    assert rows == [(0, 10, 10), (0, 14, 14), (1, 10, 10)]
    first = RecentBatch(0, 9, 0)
    assert producer(topic).recent == {
        0: (first, RecentBatch(10, 16, 10)),
        1: (first, RecentBatch(10, 11, 10)),
    }


def test_sequences_of_an_older_epoch_are_forgotten(topic: MachineHarness[TopicState]) -> None:
    topic.run(append({0: 4, 1: 4}))
    topic.run(append({0: 2}, epoch=1))
    assert producer(topic).recent == {0: (RecentBatch(0, 1, 4),)}
    assert [producer(topic).last_sequence(p, 1) for p in (0, 1, 2)] == [1, -1, -1]
    assert producer(topic).last_sequence(0, 0) == -1


def test_last_stored_time_of_a_producer_never_decreases(topic: MachineHarness[TopicState]) -> None:
    for sequence, millis in enumerate((5000, 4000)):
        staged = segment({0: 1}, segment_id_at(millis))
        topic.run(replace(append({0: 1}, sequence=sequence), segments=(staged,)))
    assert producer(topic).stored_ms == 5000


def test_marker_records_first_offsets_of_its_transaction(topic: MachineHarness[TopicState]) -> None:
    topic.run(append({0: 2}, tx=FIRST))
    topic.run(append({1: 3}, sequence=0, tx=FIRST))
    staged = segment({0: 1, 2: 5}, "staged")
    topic.run(marker(FIRST, segments=(staged,), topic_ids=("0123456789abcdef", "other")))
    assert decisions(topic.state) == {FIRST: TxDecision(3, 1, False, ("0123456789abcdef", "other"))}
    assert producer(topic).open is None
    last = producer(topic).last
    assert last is not None
    assert last.first_offsets == {0: 0, 1: 0, 2: 0}


def test_single_topic_transaction_keeps_no_first_offsets(topic: MachineHarness[TopicState]) -> None:
    topic.run(append({0: 2}, tx=FIRST))
    topic.run(marker(FIRST, ABORT))
    expected = AppliedTransaction(0, 0, 2, ABORT, (), 0, {})
    assert producer(topic).last == expected
    assert decisions(topic.state) == {FIRST: TxDecision(2, 1, True, ())}


def test_marker_of_another_transaction_leaves_the_open_one_open(
    topic: MachineHarness[TopicState],
) -> None:
    topic.run(append({0: 2}, tx=SECOND))
    staged = segment({1: 1}, "staged")
    topic.run(marker(FIRST, floor=-1, segments=(staged,), topic_ids=("0123456789abcdef", "other")))
    assert decisions(topic.state) == {FIRST: TxDecision(2, 2, False, ("0123456789abcdef", "other"))}
    opened, last = producer(topic).open, producer(topic).last
    assert opened is not None
    assert last is not None
    assert (opened.number, opened.first_slot) == (1, 1)
    assert last.first_offsets == {1: 0}


def test_R6_every_transaction_of_an_older_epoch_counts_as_finished(
    topic: MachineHarness[TopicState],
) -> None:
    topic.run(marker(NEWER, floor=-1))
    known = producer(topic)
    assert [known.is_finished(tx) for tx in (FIRST, TxId(7, 0, 99), NEWER)] == [True] * 3
    assert not known.is_finished(TxId(7, 1, 1))
    assert not known.is_finished(TxId(7, 2, 0))


def test_R7_finished_numbers_of_an_older_epoch_do_not_carry_over(
    topic: MachineHarness[TopicState],
) -> None:
    topic.run(marker(TxId(7, 0, 5), floor=-1))
    topic.run(marker(TxId(7, 1, 3), floor=-1))
    assert not producer(topic).is_finished(TxId(7, 1, 5))
    assert producer(topic).is_finished(TxId(7, 1, 3))


def test_R10_a_marker_fences_and_never_lowers_the_epoch(topic: MachineHarness[TopicState]) -> None:
    topic.run(marker(FIRST, fence_epoch=4))
    assert producer(topic).epoch == 4
    topic.run(marker(SECOND))
    assert producer(topic).epoch == 4
    topic.run(marker(TxId(7, 6, 0)))
    assert producer(topic).epoch == 6


def test_closed_topic_keeps_only_identity_config_schemas_and_partitions(
    topic: MachineHarness[TopicState],
) -> None:
    topic.run(plain({0: 4}))
    config = topic.state.config
    topic.run(CloseTopic())
    assert topic.state == TopicState(
        "0123456789abcdef",
        "t",
        closed=True,
        config=config,
        schemas=topic.state.schemas,
        partitions=topic.state.partitions,
    )
    assert isinstance(config, TopicConfig)


# Sealing.


def test_sealing_drops_the_decisions_of_sealed_rows_and_no_others(
    topic: MachineHarness[TopicState],
) -> None:
    opened = TxId(8, 0, 0)
    topic.run(append({0: 1}, tx=FIRST))
    topic.run(marker(FIRST))
    topic.run(plain({0: 1}))
    topic.run(append({1: 1}, tx=opened))
    topic.run(append({0: 1}, sequence=1, tx=SECOND))
    topic.run(marker(SECOND, ABORT))
    later = topic.state.tail[2:]
    topic.run(SealIndex())
    assert topic.state.sealed_slot == 3
    (leaf,) = topic.state.sealed.roots()
    assert (leaf.first_slot, leaf.last_slot) == (0, 3)
    assert topic.state.tail == later
    assert decisions(topic.state) == {SECOND: TxDecision(6, 5, aborted=True)}
    topic.run(marker(opened))
    topic.run(SealIndex())
    assert (topic.state.tail, decisions(topic.state)) == ((), {})


def test_decision_is_kept_while_its_transaction_has_rows_in_the_tail(
    topic: MachineHarness[TopicState],
) -> None:
    topic.run(append({0: 1}, tx=FIRST))
    topic.run(append({1: 1}, tx=TxId(8, 0, 0)))
    topic.run(append({0: 1}, sequence=1, tx=FIRST))
    topic.run(marker(FIRST))
    topic.run(SealIndex())
    assert topic.state.sealed_slot == 1
    assert set(decisions(topic.state)) == {FIRST}
    topic.run(marker(TxId(8, 0, 0)))
    topic.run(SealIndex())
    assert topic.state.sealed_slot == 6
    assert decisions(topic.state) == {}


def test_sealing_without_new_rows_adds_no_chunk(topic: MachineHarness[TopicState]) -> None:
    topic.run(plain({0: 1}))
    topic.run(SealIndex())
    leaves = topic.state.sealed.roots()
    topic.run(SealIndex())
    assert topic.state.sealed.roots() == leaves


def test_multi_topic_transactions_above_the_floor_are_remembered(
    topic: MachineHarness[TopicState],
) -> None:
    """Four transactions are open at once; the first one is finished last."""
    for number in (1, 2, 3):
        topic.run(marker(TxId(7, 0, number), floor=-1, topic_ids=("0123456789abcdef", "other")))
    assert [one.number for one in producer(topic).earlier] == [1, 2]
    topic.run(marker(TxId(7, 0, 0), floor=1, topic_ids=("0123456789abcdef", "other")))
    assert [one.number for one in producer(topic).earlier] == [2, 3]


def test_multi_topic_transaction_at_the_floor_is_forgotten(
    topic: MachineHarness[TopicState],
) -> None:
    topic.run(marker(TxId(7, 0, 0), topic_ids=("0123456789abcdef", "other")))
    topic.run(marker(TxId(7, 0, 2), floor=0, topic_ids=("0123456789abcdef", "other")))
    assert producer(topic).earlier == ()


def test_decision_is_kept_until_its_marker_slot_is_sealed(
    topic: MachineHarness[TopicState],
) -> None:
    topic.run(append({0: 1}, tx=FIRST))
    topic.run(marker(FIRST))
    state = sealed_at(topic.state, slot=3, window_slots=2)
    assert (state.sealed_slot, state.tail) == (1, ())
    assert list(decisions(state)) == [FIRST]
    assert decisions(sealed_at(state, slot=4, window_slots=2)) == {}


def test_sealing_slots_without_rows_adds_no_leaf(topic: MachineHarness[TopicState]) -> None:
    state = sealed_at(topic.state, slot=9, window_slots=1)
    assert (state.sealed_slot, state.sealed.roots()) == (8, ())


def test_first_sequence_is_0_and_rows_without_producer_have_none(
    topic: MachineHarness[TopicState],
) -> None:
    two = (segment({0: 2}, "a"), segment({0: 3}, "b"))
    topic.run(append({0: 5}, segments=two))
    topic.run(AppendBatches(two))
    assert [row.base_sequence for row in topic.state.tail] == [0, 2, -1, -1]


def test_a_topic_has_the_configuration_that_it_was_opened_with() -> None:
    harness = MachineHarness(TopicMachine())
    harness.run(replace(OPENED, config=TopicConfig(retention_ms=5)))
    assert harness.state.config == TopicConfig(retention_ms=5)
