"""Rules for the commands of maintenance: log starts, chunks, producers."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.machine_without_journal import MachineHarness
from tests.unit.topic_commands import ABORT, append, ends, marker, new_topic, plain
from txlog.errors import (
    CorruptData,
    InvariantViolated,
    OffsetOutOfRange,
    PublishContention,
    SegmentExpired,
    UnknownPartition,
    UnknownProducerId,
)
from txlog.model import TxId
from txlog.settings import TopicConfig
from txlog.topic.batch_index import ChunkKey, SealedIndex
from txlog.topic.events import (
    AdvanceCleaner,
    AdvanceHorizon,
    AdvanceLogStart,
    AlterConfig,
    ChunksReplaced,
    CleanerCheckpoint,
    CloseTopic,
    HorizonAdvanced,
    ReplaceChunks,
    RetireProducers,
    SealIndex,
)
from txlog.topic.producer_state import holds, with_numbers
from txlog.topic.state import TopicState, tail_of_rows

TX = TxId(9, 0, 0)
LATER_MS = 1 << 50


@pytest.fixture
def topic() -> MachineHarness[TopicState]:
    """Three partitions; 5 records in the first, 2 in the second."""
    topic = new_topic()
    topic.run(plain({0: 3, 1: 2}))
    topic.run(plain({0: 2}))
    return topic


# Log starts.


def test_advancing_log_start_drops_whole_batches_below_it(
    topic: MachineHarness[TopicState],
) -> None:
    assert topic.run(AdvanceLogStart({0: 3, 1: 1})) == {0: 3, 1: 1}
    assert [part.log_start for part in topic.state.partitions] == [3, 1, 0]
    assert [(row.partition, row.base_offset) for row in topic.state.tail] == [(1, 0), (0, 3)]
    assert ends(topic) == [5, 2, 0]


def test_lowering_log_start_is_a_no_op(topic: MachineHarness[TopicState]) -> None:
    topic.run(AdvanceLogStart({0: 4}))
    slot = topic.slot
    assert topic.run(AdvanceLogStart({0: 2})) == {0: 4}
    assert topic.slot == slot, "nothing was written"


def test_I12_log_start_cannot_advance_past_an_open_transaction(
    topic: MachineHarness[TopicState],
) -> None:
    topic.run(append({0: 4}, tx=TX))
    with pytest.raises(OffsetOutOfRange, match="up to offset 5"):
        topic.run(AdvanceLogStart({1: 1, 0: 6}))
    assert [part.log_start for part in topic.state.partitions] == [0, 0, 0]
    topic.run(marker(TX))
    assert topic.run(AdvanceLogStart({0: 6})) == {0: 6}


@pytest.mark.parametrize("partition", [0, 1])
def test_I15_state_is_that_of_its_snapshot_after_a_log_start_rose_within_an_entry(
    topic: MachineHarness[TopicState], partition: int
) -> None:
    topic.run(plain({0: [1, 1], 1: [1, 1]}))
    topic.run(AdvanceLogStart({partition: ends(topic)[partition] - 1}))
    assert topic.reopened() == topic.state


def test_log_start_of_unknown_partition_is_refused(topic: MachineHarness[TopicState]) -> None:
    with pytest.raises(UnknownPartition):
        topic.run(AdvanceLogStart({3: 0}))


def test_sealed_chunks_below_all_log_starts_are_dropped(topic: MachineHarness[TopicState]) -> None:
    topic.run(SealIndex())
    assert len(topic.state.sealed.roots()) == 1
    topic.run(AdvanceLogStart({0: 5}))
    assert len(topic.state.sealed.roots()) == 1, "the second partition has records in it still"
    topic.run(AdvanceLogStart({1: 2}))
    assert topic.state.sealed.roots() == ()


# Chunks.


def test_sealing_stops_before_an_open_transaction(topic: MachineHarness[TopicState]) -> None:
    topic.run(append({0: 1}, tx=TX))
    topic.run(plain({0: 1}))
    topic.run(SealIndex())
    assert [row.base_offset for row in topic.state.tail] == [5, 6]
    topic.run(marker(TX, ABORT))
    topic.run(SealIndex())
    assert topic.state.tail == ()


@pytest.mark.parametrize("sealed_slots_less", [0, 1])
def test_I2_snapshot_with_a_batch_in_a_chunk_and_in_the_tail_is_refused(
    topic: MachineHarness[TopicState], sealed_slots_less: int
) -> None:
    """If it were accepted, a reader would get the records of the batch twice."""
    newest = topic.state.tail[-1]
    topic.run(SealIndex())
    (ref,) = topic.state.sealed.roots()
    assert ref.last_slot == topic.state.sealed_slot == newest.slot
    sealed_slot = newest.slot - sealed_slots_less
    topic.state = replace(topic.state, unsealed=tail_of_rows([newest]), sealed_slot=sealed_slot)
    with pytest.raises(CorruptData, match="index"):
        topic.reopened()


def test_I15_snapshot_with_a_chunk_that_covers_no_batch_is_refused(
    topic: MachineHarness[TopicState],
) -> None:
    """Readers would skip the chunk's records, and maintenance would fail."""
    topic.run(SealIndex())
    (ref,) = topic.state.sealed.roots()
    topic.state = replace(topic.state, sealed=SealedIndex(((replace(ref, spans=()),),)))
    with pytest.raises(CorruptData, match="covers no batch"):
        topic.reopened()


def test_I2_event_with_a_chunk_of_more_slots_than_it_replaces_is_refused(
    topic: MachineHarness[TopicState],
) -> None:
    """The tail has the batches of the slots above."""
    topic.run(SealIndex())
    (ref,) = topic.state.sealed.roots()
    topic.run(plain({0: 1}))
    with pytest.raises(InvariantViolated, match="other slots"):
        topic.apply(ChunksReplaced((ref.key,), (replace(ref, last_slot=topic.slot),)))


def test_replacing_chunks_not_in_the_index_is_refused(topic: MachineHarness[TopicState]) -> None:
    topic.run(SealIndex())
    (ref,) = topic.state.sealed.roots()
    with pytest.raises(PublishContention, match="changed by another process"):
        topic.run(ReplaceChunks((ChunkKey(7, 8),), (ref,), ()))
    topic.run(ReplaceChunks((ref.key,), (), ()))
    assert topic.state.sealed.roots() == ()
    with pytest.raises(PublishContention):
        topic.run(ReplaceChunks((ref.key,), (), ()))


def test_R17_event_that_lowers_the_horizon_is_refused(topic: MachineHarness[TopicState]) -> None:
    """Segments between the two horizons may be deleted already."""
    topic.run(AdvanceHorizon("0" * 31 + "2"))
    with pytest.raises(CorruptData, match="horizon falls"):
        topic.apply(HorizonAdvanced("0" * 31 + "1"))


@pytest.mark.parametrize("segment_ids", [("0" * 31 + "1",), ()])
def test_R17_rewritten_chunks_below_the_horizon_are_refused(
    topic: MachineHarness[TopicState], segment_ids: tuple[str, ...]
) -> None:
    topic.run(SealIndex())
    (ref,) = topic.state.sealed.roots()
    topic.run(AdvanceHorizon("0" * 31 + "2"))
    old = type(ref)(ref.first_slot, ref.last_slot, 0, 1, 1, ref.spans, name="0" * 31 + "1")
    with pytest.raises(SegmentExpired):
        topic.run(ReplaceChunks((ref.key,), (old,), segment_ids))


# Compaction.

CLEANED = CleanerCheckpoint(merged_slot=1, cleaned_slot=2, delete_horizon_ms=3)


def test_changing_key_column_resets_cleaner_checkpoint(topic: MachineHarness[TopicState]) -> None:
    topic.run(AdvanceCleaner(CLEANED, ""))
    topic.run(AlterConfig(TopicConfig(retention_ms=1), topic.state.config))
    assert topic.state.cleaner == CLEANED, "the key is the same"
    topic.run(AlterConfig(TopicConfig(key_column="carrier"), topic.state.config))
    assert topic.state.cleaner == CleanerCheckpoint(merged_slot=1)
    assert topic.reopened().cleaner == CleanerCheckpoint(merged_slot=1)


def test_compaction_by_a_previous_key_column_is_refused(topic: MachineHarness[TopicState]) -> None:
    topic.run(SealIndex())
    (ref,) = topic.state.sealed.roots()
    topic.run(AlterConfig(TopicConfig(key_column="carrier"), topic.state.config))
    slot = topic.slot
    for late in (ReplaceChunks((ref.key,), (), (), ""), AdvanceCleaner(CLEANED, "")):
        with pytest.raises(PublishContention, match="from '' to 'carrier' meanwhile"):
            topic.run(late)
    assert topic.slot == slot
    topic.run(ReplaceChunks((ref.key,), (), ()))
    topic.run(AdvanceCleaner(CLEANED, "carrier"))


def test_progress_of_merging_and_of_an_older_compaction_never_goes_back(
    topic: MachineHarness[TopicState],
) -> None:
    began = topic.state.cleaner
    topic.run(AdvanceCleaner(CLEANED, "", began))
    topic.run(AdvanceCleaner(CleanerCheckpoint(merged_slot=5)))
    assert topic.state.cleaner == CleanerCheckpoint(5, 2, 3)
    slot = topic.slot
    topic.run(AdvanceCleaner(CleanerCheckpoint(cleaned_slot=1), "", began))
    topic.run(AdvanceCleaner(CleanerCheckpoint(merged_slot=4)))
    assert topic.slot == slot, "nothing was written"


def test_tombstones_of_two_concurrent_compactions_expire_at_the_earlier_time(
    topic: MachineHarness[TopicState],
) -> None:
    began = topic.state.cleaner
    for found_ms, expected_ms in ((20, 20), (10, 10), (30, 10), (-1, 10)):
        topic.run(AdvanceCleaner(CleanerCheckpoint(-1, 2, found_ms), "", began))
        assert topic.state.cleaner.delete_horizon_ms == expected_ms


def test_compaction_that_nothing_overtook_says_when_tombstones_expire(
    topic: MachineHarness[TopicState],
) -> None:
    for found_ms in (20, 30, -1):
        began = topic.state.cleaner
        topic.run(AdvanceCleaner(CleanerCheckpoint(merged_slot=topic.slot)))
        topic.run(AdvanceCleaner(CleanerCheckpoint(-1, 2, found_ms), "", began))
        assert topic.state.cleaner.delete_horizon_ms == found_ms


# Producers.


def test_R11_a_retired_producer_is_refused_and_its_markers_have_no_effect() -> None:
    topic = new_topic()
    topic.run(append({0: 2}))
    topic.run(append({0: 1}, tx=TX))
    topic.run(marker(TX))
    assert topic.run(RetireProducers((7, 9), LATER_MS)) == (7, 9)
    assert topic.state.producers == {}
    with pytest.raises(UnknownProducerId, match="forgotten producer 7"):
        topic.run(append({0: 2}))
    with pytest.raises(UnknownProducerId):
        topic.run(append({0: 1}, tx=TxId(9, 5, 0)))
    assert topic.run(marker(TX)) is None
    assert topic.run(marker(TxId(9, 1, 4), segments=append({0: 3}).segments)) is None
    assert ends(topic) == [3, 0, 0]


def test_R11_producer_with_open_transaction_is_not_retired() -> None:
    topic = new_topic()
    topic.run(append({0: 1}, tx=TX))
    assert topic.run(RetireProducers((9, 1234), LATER_MS)) == ()
    topic.run(append({0: 1}, sequence=1, tx=TX))


def test_R11_producers_without_open_transactions_are_retired(
    topic: MachineHarness[TopicState],
) -> None:
    topic.run(append({0: 1}, tx=TX))
    for pid in (8, 10):
        topic.run(append({0: 1}, pid=pid))
    assert topic.run(RetireProducers((8, 9, 10), LATER_MS)) == (8, 10)


def test_R11_recently_active_idempotent_producer_is_not_retired() -> None:
    topic = new_topic()
    topic.run(append({0: 1}))
    stored_ms = topic.state.producers[7].stored_ms
    assert topic.run(RetireProducers((7,), stored_ms)) == ()
    assert topic.run(RetireProducers((7,), stored_ms + 1)) == (7,)


def test_deleted_topic_keeps_name_and_configuration_but_no_tail_or_producers(
    topic: MachineHarness[TopicState],
) -> None:
    topic.run(append({0: 1}, tx=TX))
    topic.run(AlterConfig(TopicConfig(retention_ms=1), topic.state.config))
    topic.run(CloseTopic())
    state = topic.state
    assert state.config == TopicConfig(retention_ms=1)
    assert (state.closed, state.name, state.tail, state.producers) == (True, "t", (), {})


@given(st.lists(st.sets(st.integers(0, 40), max_size=10), max_size=8))
def test_ranges_hold_exactly_the_retired_producer_ids(groups: list[set[int]]) -> None:
    ranges: tuple[tuple[int, int], ...] = ()
    retired: set[int] = set()
    for group in groups:
        ranges = with_numbers(ranges, group)
        retired |= group
        assert [pid for pid in range(42) if holds(ranges, pid)] == sorted(retired)
    assert all(left[1] + 1 < right[0] for left, right in pairwise(ranges))
