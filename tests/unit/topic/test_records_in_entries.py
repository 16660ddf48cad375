"""Small records ride in the entry that names them, until they are moved into a segment (R65)."""

from collections.abc import Callable

import pytest

from tests.logs.memory_log import MemoryLog
from tests.unit.topic.inline_log import WINDOW, findings, flush, log_with, read, topic_of
from txlog.backup.log_copy import copy_log
from txlog.client.consumer.consumer import Consumer
from txlog.coordinator.events import Participant, StagingHorizonAdvanced
from txlog.coordinator.marker_carrier import decided_markers, with_records
from txlog.engine.connection import open_connection
from txlog.errors import CorruptData, MissingObject, ProducerFenced
from txlog.journal.entry import decode_entry, encode_entry
from txlog.layout import is_entry, is_segment
from txlog.maintenance.expiry import retirable_producers
from txlog.model import TxId
from txlog.storage.memory import MemoryStore
from txlog.testing.clock import manual_runtime
from txlog.topic.events import AdvanceHorizon
from txlog.topic.records.batch import InlineSegment
from txlog.topic.records.conversion import with_timestamp
from txlog.topic.records.python_rows import record_batch_from_rows


def paths(log: MemoryLog, wanted: Callable[[str], bool]) -> list[str]:
    return [one.path for one in log.memory.list_after("topics/a/") if wanted(one.path)]


def test_small_flush_is_one_object_and_is_read_by_every_process() -> None:
    log = log_with()
    flush(log, b"1", b"2")
    assert paths(log, is_segment) == []
    assert {row.segment for row in topic_of(log.process()).state.tail} == {
        topic_of(log.connection).layout.entry(slot) for slot in (1, 2)
    }
    assert read(log.connection) == read(log.process()) == [b"1", b"2"]
    assert findings(log.process()) == []


@pytest.mark.parametrize(("limit", "segments"), [(0, 1), (200, 1), (4_000, 0)])
def test_limit_of_the_log_says_which_records_are_in_entries(limit: int, segments: int) -> None:
    log = log_with(limit)
    flush(log, b"x" * 100)
    assert len(paths(log, is_segment)) == segments
    assert read(log.process()) == [b"x" * 100]


def test_follower_has_the_records_with_the_entry() -> None:
    log = log_with()
    other = log.process(log.store)
    consumer = Consumer("a", root=other, auto_offset_reset="latest")
    consumer.poll()
    topic = topic_of(other)
    flush(log, b"1")
    topic.catch_up()
    row = topic.state.tail[0]
    assert topic.recent_ranges(row.segment, []) is not None


def test_records_of_a_transaction_are_in_its_decision_and_in_its_markers() -> None:
    log = log_with()
    producer = log.producer("id")
    with producer.transaction():
        producer.send("a", b"1")
        producer.send("b", b"2")
    assert [o.path for o in log.memory.list_after("topics/") if is_segment(o.path)] == []
    assert read(log.process(), "a", "b") == [b"1", b"2"]


def test_R65_boundary_stays_below_entries_whose_records_are_named() -> None:
    log = log_with()
    flush(log, b"1", b"2", b"3")
    topic = topic_of(log.process())
    assert topic.journal.prune(0) == 1
    assert topic.journal.prune(0) == 0
    assert read(log.process()) == [b"1", b"2", b"3"]


def test_R65_filled_window_moves_its_records_into_one_segment() -> None:
    log = log_with()
    values = sorted(b"%d" % number for number in range(3 * WINDOW))
    flush(log, *values)
    state = topic_of(log.process()).state
    assert all(row.slot > state.sealed_slot for row in state.tail if row.is_in_entry)
    assert state.sealed.roots()
    assert 2 <= len(paths(log, is_segment)) <= 3
    assert topic_of(log.process()).journal.prune(0) > WINDOW
    assert read(log.process()) == values
    assert findings(log.process()) == []


def test_R65_number_of_a_moved_entry_that_is_filled_again_is_not_read() -> None:
    log = log_with()
    flush(log, *(b"%d" % number for number in range(WINDOW - 2)))
    reader = log.process()
    rows = topic_of(reader).state.tail
    flush(log, *(b"later %d" % number for number in range(2 * WINDOW)))
    writer = topic_of(log.process())
    writer.journal.prune(0)
    path = rows[0].segment
    assert log.memory.get(path) is None
    log.memory.create(path, b"{" * 4_000)
    fresh = log.process()
    topic = topic_of(fresh)
    assert len(read(fresh)) == 3 * WINDOW - 2
    assert topic.for_marker(()) == ()


def test_I15_named_entry_with_other_bytes_is_damage_that_is_named() -> None:
    log = log_with()
    flush(log, b"1")
    path = topic_of(log.process()).state.tail[0].segment
    topic_of(log.process()).journal.snapshot()
    data = log.memory.get(path)
    assert data is not None
    log.memory.delete(path)
    log.memory.create(path, data[:300] + bytes([data[300] ^ 1]) + data[301:])
    with pytest.raises(CorruptData, match=path):
        read(log.process())
    assert any(path in str(found) for found in findings(log.process()))


def decided(log: MemoryLog, value: bytes = b"1") -> TxId:
    """A transaction of "id" that is decided, with a record in its entry; no topic has it yet."""
    producer = log.producer("id")
    registered = producer._session("").registration
    tx_id = TxId(registered.pid, registered.epoch, 0)
    commit(log, tx_id, value)
    return tx_id


def commit(log: MemoryLog, tx_id: TxId, value: bytes) -> None:
    topic = topic_of(log.connection)
    rows = [{"key": None, "value": value, "headers": None}]
    batch = with_timestamp(record_batch_from_rows(rows, topic.schema()), 5)
    inline = topic.encode_inline({0: [batch]}, 0, topic.inline_bytes_max)
    assert inline is not None
    participants = (Participant(topic.topic_id, "a", segments=(inline,)),)
    log.connection.coordinator_of("id").prepare_commit("id", tx_id, participants)


def test_R35_commit_with_other_records_in_its_entry_is_fenced() -> None:
    log = log_with()
    tx_id = decided(log)
    commit(log, tx_id, b"1")
    with pytest.raises(ProducerFenced):
        commit(log, tx_id, b"2")
    log.process().coordinator_of("id").finish("id", tx_id)
    with pytest.raises(ProducerFenced):
        commit(log, tx_id, b"2")
    assert read(log.process()) == [b"1"]


def test_R65_entry_of_a_decision_stays_until_every_topic_has_its_records() -> None:
    log = log_with()
    tx_id = decided(log)
    other = log.process().coordinator_of("id")
    other.catch_up()
    slot = other.journal.next_slot - 1
    other.journal.prune(0)
    assert log.memory.get(other.journal.layout.entry(slot)) is not None
    log.process().coordinator_of("id").finish("id", tx_id)
    assert read(log.process()) == [b"1"]
    other.journal.prune(0)
    assert log.memory.get(other.journal.layout.entry(slot)) is None
    assert findings(log.process()) == []


def test_decided_records_survive_a_raised_staging_horizon() -> None:
    log = log_with()
    log.connection.coordinator_of("id").execute(StagingHorizonAdvanced("f" * 10))
    topic_of(log.connection).execute(AdvanceHorizon("f" * 10))
    log.process().coordinator_of("id").finish("id", decided(log))
    flush(log, b"2")
    assert read(log.process()) == [b"1", b"2"]


def test_I15_lost_entry_of_a_decision_is_named() -> None:
    log = log_with()
    tx_id = decided(log)
    coordinator = log.process().coordinator_of("id")
    coordinator.catch_up()
    path = coordinator.journal.layout.entry(coordinator.journal.next_slot - 1)
    coordinator.execute(StagingHorizonAdvanced("1"))
    lost = log.process().coordinator_of("id")
    lost.catch_up()
    lost.journal._options.recent._records.clear()
    log.memory.delete(path)
    with pytest.raises(MissingObject, match=path):
        lost.finish("id", tx_id)


def test_R44_carrier_brings_the_records_that_it_has_in_memory() -> None:
    log = log_with()
    decided(log)
    topic, other = topic_of(log.process()), log.process()
    coordinator = other.coordinator_of("id")
    markers = tuple(decided_markers(topic.topic_id, coordinator.number, coordinator.catch_up(), 5))
    (brought,) = with_records(topic_of(other), markers)
    assert isinstance(brought.segments[0], InlineSegment)
    assert with_records(topic, markers) == ()


def test_copy_of_a_log_has_records_of_a_decision_in_a_segment() -> None:
    log = log_with()
    tx_id = decided(log)
    target = MemoryStore(manual_runtime())
    copy_log(log.process(), target)
    copy = open_connection(target, manual_runtime())
    assert read(copy) == []
    copy.coordinator_of("id").finish("id", tx_id)
    assert read(copy) == [b"1"]
    assert findings(copy) == []


def test_commands_with_too_many_records_for_one_entry_share_none() -> None:
    log = log_with(1_500)
    producer = log.producer()
    producer.send("a", b"x" * 600)
    producer.send("b", b"y" * 600)
    producer.flush()
    flush(log, b"z" * 600)
    for one in log.memory.list_after("topics/"):
        if is_entry(one.path):
            data = log.memory.get(one.path)
            assert data is not None
            entry, _ = decode_entry(data, one.path, int(one.path[-25:-5]))
            assert len(entry.records) <= 1_500


def test_copy_of_a_log_has_records_of_entries_in_segments() -> None:
    log = log_with()
    flush(log, b"1", b"2")
    target = MemoryStore(manual_runtime())
    copy_log(log.process(), target)
    copy = open_connection(target, manual_runtime())
    assert read(copy) == [b"1", b"2"]
    assert not any(row.is_in_entry for row in topic_of(copy).state.tail)
    assert findings(copy) == []


def test_entry_with_records_round_trips_and_chains() -> None:
    log = log_with()
    flush(log, b"1")
    path = topic_of(log.connection).layout.entry(1)
    data = log.memory.get(path)
    assert data is not None
    entry, crc32 = decode_entry(data, path, 1)
    assert encode_entry(entry) == (data, crc32)


def test_producer_of_records_in_entries_is_as_young_as_its_last_append() -> None:
    log = log_with()
    flush(log, b"1")
    now_ms = log.clock.wall_ms()
    topic = topic_of(log.process())
    assert retirable_producers(log.process(), topic, now_ms) == ()
    assert len(retirable_producers(log.process(), topic, now_ms + 1)) == 1
