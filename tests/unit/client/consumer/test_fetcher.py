"""One partition read forward: what is read ahead, how much, and where the position is then."""

from collections.abc import Sequence

import pytest

from tests.logs.memory_log import SEGMENTS, MemoryLog
from tests.stores.scripted_store import unavailable
from txlog.client.consumer import fetcher as fetcher_module
from txlog.client.consumer.fetcher import PartitionFetcher, fill_together
from txlog.errors import OffsetOutOfRange, StoreUnavailable
from txlog.fan_out import SerialFanOut
from txlog.model import IsolationLevel, TopicPartition
from txlog.topic.read.reader import FetchedBatch

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
ALL = 1 << 30


@pytest.fixture
def log() -> MemoryLog:
    """Three partitions; the first has four batches of two records."""
    log = MemoryLog(SEGMENTS)
    log.admin.create_topic("t", 3)
    for _ in range(4):
        send(log, 2)
    return log


def send(log: MemoryLog, count: int, partition: int = 0) -> None:
    producer = log.producer()
    for _ in range(count):
        producer.send("t", b"x", partition=partition)
    producer.flush()


def abort(log: MemoryLog, count: int, partition: int = 0) -> None:
    producer = log.producer("aborted", transaction_records="in.log")
    producer.begin_transaction()
    for _ in range(count):
        producer.send("t", b"x", partition=partition)
    producer.flush()
    producer.abort_transaction()


def fetcher(
    log: MemoryLog,
    position: int = 0,
    partition: int = 0,
    isolation: IsolationLevel = COMMITTED,
) -> PartitionFetcher:
    topic = log.connection.cluster.present_topic("t")
    topic.catch_up()
    return PartitionFetcher(topic, partition, position, isolation)


def lengths(log: MemoryLog) -> list[int]:
    """The stored bytes of each batch of the first partition."""
    topic = log.connection.cluster.present_topic("t")
    state = topic.catch_up()
    return [row.length for row in topic.batches(state, 0, 0, state.end_offset(0))]


def offsets(taken: FetchedBatch | None) -> list[int]:
    if taken is None:
        return []
    return [taken.offset_at(row) for row in range(taken.batch.num_rows)]


def taken(reader: PartitionFetcher, records_max: int = 100) -> list[list[int]]:
    """The offsets of each batch that is left."""
    found = []
    while records := offsets(reader.take(records_max)):
        found.append(records)
    return found


def test_records_are_taken_in_parts_and_the_position_moves_past_each(log: MemoryLog) -> None:
    reader = fetcher(log, 1)
    assert (reader.begun_at, reader.take(5)) == (1, None)
    assert reader.fill(ALL) == sum(lengths(log))
    assert (reader.is_behind(), reader.unread_count) == (True, 0), "nothing of it is taken"
    assert [offsets(reader.take(n)) for n in (1, 1, 5, 2)] == [[1], [2], [3], [4, 5]]
    assert reader.position == 6
    assert taken(reader) == [[6, 7]]
    assert (reader.position, reader.is_behind(), reader.has_read_ahead) == (8, False, False)


@pytest.mark.parametrize(("batches", "more"), [(1, -1), (2, -1), (2, 0), (3, 0), (4, 0)])
def test_fill_reads_the_batches_that_reach_its_limit(
    log: MemoryLog, batches: int, more: int
) -> None:
    """At least one, whatever the limit is."""
    sizes = lengths(log)
    reader = fetcher(log)
    assert reader.unread_count == 8
    assert reader.fill(max(sum(sizes[:batches]) + more, 1)) == sum(sizes[:batches])
    assert reader.unread_count == 8 - 2 * batches
    assert taken(reader) == [[2 * n, 2 * n + 1] for n in range(batches)]
    assert reader.is_behind() is (batches < 4)
    assert reader.position == 2 * batches


def test_what_was_read_ahead_is_dropped_when_the_position_is_set(log: MemoryLog) -> None:
    for is_seek in (True, False):
        reader = fetcher(log)
        reader.fill(ALL)
        assert reader.has_read_ahead
        if is_seek:
            reader.seek(5)
        else:
            reader.position = 5
        assert not reader.has_read_ahead
        assert (reader.unread_count, reader.is_behind()) == (3, True)
        assert reader.take(5) is None
        reader.fill(ALL)
        assert taken(reader) == [[5], [6, 7]]


def test_position_above_the_end_is_beyond_it_and_cannot_be_read(log: MemoryLog) -> None:
    at_end, above = fetcher(log, 8), fetcher(log, 9)
    assert (at_end.is_beyond(), above.is_beyond()) == (False, True)
    assert (at_end.is_unread(), above.is_unread()) == (False, True)
    assert (at_end.is_behind(), above.is_behind()) == (False, False)
    assert at_end.fill(ALL) == 0
    with pytest.raises(OffsetOutOfRange):
        above.fill(ALL)
    send(log, 1)
    above.topic.catch_up()
    assert (above.is_beyond(), above.is_unread(), above.fill(ALL)) == (False, False, 0)


def test_position_that_was_deleted_cannot_be_read(log: MemoryLog) -> None:
    log.admin.delete_records({TopicPartition("t", 0): 3})
    reader = fetcher(log, 2)
    with pytest.raises(OffsetOutOfRange):
        reader.fill(ALL)
    reader.seek(3)
    reader.fill(ALL)
    assert taken(reader) == [[3], [4, 5], [6, 7]]


def test_aborted_records_are_passed_unless_they_are_to_be_read(log: MemoryLog) -> None:
    abort(log, 3)
    reader, every = fetcher(log, 6), fetcher(log, 6, isolation=UNCOMMITTED)
    assert reader.unread_count == every.unread_count == 5
    for each in (reader, every):
        each.fill(ALL)
    assert offsets(reader.take(2)) == [6, 7]
    assert (reader.position, reader.take(1)) == (11, None)
    assert taken(every) == [[6, 7], [8, 9, 10]]


def test_partition_is_read_out_once_all_of_its_present_state_is_taken(log: MemoryLog) -> None:
    reader = fetcher(log)
    assert not reader.is_read_out()
    reader.fill(1)
    taken(reader)
    assert not reader.is_read_out(), "there is more"
    reader.fill(ALL)
    assert not reader.is_read_out(), "it is not taken"
    taken(reader)
    assert (reader.is_read_out(), reader.is_unread()) == (True, False)
    send(log, 1)
    reader.topic.catch_up()
    assert (reader.is_read_out(), reader.is_unread()) == (False, True)


def test_nothing_of_a_deleted_topic_is_unread(log: MemoryLog) -> None:
    reader = fetcher(log)
    assert (reader.is_unread(), reader.unread_count) == (True, 8)
    log.admin.delete_topics(["t"])
    reader.topic.catch_up()
    assert (reader.is_unread(), reader.unread_count) == (False, 0)


def test_read_of_another_position_is_not_adopted(log: MemoryLog) -> None:
    reader = fetcher(log)
    early = reader.read(1)
    assert (early.start, early.end, early.is_cut, early.whole_of) == (0, 2, False, None)
    reader.seek(4)
    assert reader.adopt(early) == 0
    assert not reader.has_read_ahead
    assert reader.read(ALL).whole_of is reader.topic.state
    assert reader.adopt(reader.read(ALL)) == sum(lengths(log)[2:])


def test_reads_become_smaller_while_batches_are_large_in_memory(log: MemoryLog) -> None:
    """Bytes behind a cut were fetched in vain; each whole read doubles the limit again."""
    sizes = lengths(log)
    reader = fetcher(log)
    cut = reader.read(ALL, decoded_bytes_max=1)
    assert (cut.start, cut.end, cut.is_cut, cut.stored_bytes) == (0, 2, True, sizes[0])
    assert cut.whole_of is None
    assert reader.adopt(cut) == sizes[0]
    assert reader.fill(ALL) == sizes[1], "as much as fitted"
    assert reader.fill(ALL) == sum(sizes[2:]), "twice as much"
    assert [offsets(reader.take(9)) for _ in range(4)] == [[0, 1], [2, 3], [4, 5], [6, 7]]


# Several partitions.


def together(
    log: MemoryLog, fetchers: Sequence[PartitionFetcher], records: int = 100, limit: int = ALL
) -> int:
    return fill_together(fetchers, SerialFanOut(), records, limit)


@pytest.fixture
def readers(log: MemoryLog) -> list[PartitionFetcher]:
    """Of three partitions with 8, 2 and 2 records."""
    for partition in (1, 2):
        send(log, 2, partition)
    return [fetcher(log, partition=partition) for partition in range(3)]


@pytest.mark.parametrize(
    ("records", "read"), [(100, [0, 1, 2]), (11, [0, 1, 2]), (10, [0, 1]), (9, [0, 1]), (8, [])]
)
def test_as_many_partitions_are_read_together_as_the_records_need(
    log: MemoryLog, readers: list[PartitionFetcher], records: int, read: list[int]
) -> None:
    """One that is enough is read by its own fill."""
    stored = together(log, readers, records)
    assert [n for n, each in enumerate(readers) if each.has_read_ahead] == read
    assert (stored > 0) is bool(read)


def test_partitions_that_are_read_together_share_the_limit(
    log: MemoryLog, readers: list[PartitionFetcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = lengths(log)[0]
    assert together(log, readers, limit=3 * one) > 0
    assert [len(taken(each)) for each in readers] == [1, 1, 1]
    monkeypatch.setattr(fetcher_module, "FETCHED_TOGETHER_MAX", 2)
    fresh = [fetcher(log, partition=partition) for partition in range(3)]
    together(log, fresh)
    assert [each.has_read_ahead for each in fresh] == [True, True, False]


def test_nothing_is_read_while_records_are_in_memory_or_one_partition_has_more(
    log: MemoryLog, readers: list[PartitionFetcher]
) -> None:
    readers[2].fill(ALL)
    assert together(log, readers) == 0
    assert not readers[0].has_read_ahead
    ends = [fetcher(log, 2, partition) for partition in (1, 2)]
    assert together(log, [fetcher(log), *ends]) == 0


def test_partition_whose_read_fails_is_left_unless_all_of_them_fail(
    log: MemoryLog, readers: list[PartitionFetcher]
) -> None:
    log.store.on("get_ranges", "segments/", unavailable)
    assert together(log, readers) > 0
    assert sum(each.has_read_ahead for each in readers) == 2
    for each in readers:
        each.seek(0)
    log.store.on("get_ranges", "segments/", unavailable, times=1_000)
    with pytest.raises(StoreUnavailable):
        together(log, readers)
    assert not any(each.has_read_ahead for each in readers)
