"""The index rows of rewritten batches, field by field (I2, I11)."""

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.clock import Runtime
from txlog.engine.connection import open_connection
from txlog.fan_out import SerialFanOut
from txlog.model import TxId
from txlog.settings import LogSettings, ProcessSettings
from txlog.testing.clock import SeededEntropy, StillBackground
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.events import AdvanceLogStart, SealIndex
from txlog.topic.topic_log import TopicLog
from txlog.topic.upkeep.compaction import CompactionLimits, compact
from txlog.topic.upkeep.leaf_groups import LeafGroup
from txlog.topic.upkeep.merging import MergeReport, merge_segments, next_group
from txlog.topic.upkeep.rewriting import kept_batches, rewrite, select_all

BATCH_BYTES = 1_000_000
ALL = CompactionLimits(keys_max=1_000, batch_bytes=BATCH_BYTES)


class Topic:
    """A topic `t` in a log that seals nothing by itself, and a topic `u`."""

    def __init__(self, **config: object) -> None:
        settings = LogSettings(journal_snapshot_entries=4_096, entry_records_max_bytes=0)
        self.log = MemoryLog(settings, transaction_records="in.log")
        self.log.admin.create_topic("t", 2, config=config)
        self.log.admin.create_topic("u", 1)
        self.topic: TopicLog = self.log.connection.cluster.topic("t")

    def plain(self, count: int, partition: int = 0, key: bytes = b"k", at_ms: int = 1_000) -> None:
        """Append batches of one record, each of a producer of its own."""
        for number in range(count):
            self.log.producer().send(
                "t", key=key, value=b"v", partition=partition, timestamp_ms=at_ms + number
            ).get()

    def transaction(self, *appends: int, commits: bool = True, also: str = "") -> TxId:
        """Append batches of so many records in one transaction, which also writes to `also`."""
        producer = self.log.producer("tx")
        tx_id = producer.begin_transaction()
        for count in appends:
            for _ in range(count):
                producer.send("t", key=b"x", value=b"v", partition=0, timestamp_ms=5_000)
            producer.flush()
        if also:
            producer.send(also, b"v").get()
        (producer.commit_transaction if commits else producer.abort_transaction)()
        producer.close()
        return tx_id

    def sealed(self) -> list[IndexedBatch]:
        """All rows, in sealed leaves."""
        self.topic.catch_up()
        self.topic.execute(SealIndex())
        return self.rows()

    def rows(self) -> list[IndexedBatch]:
        return list(self.topic.batches_from_slot(self.topic.catch_up(), 0))

    def merge(self, batch_bytes: int = BATCH_BYTES, segments_min: int = 1) -> MergeReport:
        return merge_segments(self.topic, batch_bytes, segments_min)

    def compact(self, after_ms: int = 0) -> None:
        now_ms = self.log.clock.wall_ms() + after_ms
        assert not compact(self.topic, now_ms, ALL, force=True).interrupted


def bytes_of(row: IndexedBatch) -> dict[str, object]:
    """What only the segment can tell."""
    names = ("segment", "position", "length", "crc32")
    return {name: getattr(row, name) for name in names}


def test_merged_plain_batches_name_no_producer_and_keep_offsets_and_times() -> None:
    topic = Topic()
    topic.plain(3)
    topic.plain(2, partition=1, at_ms=500)
    before = topic.sealed()
    report = topic.merge()
    first, second = topic.rows()
    plain = {"pid": -1, "epoch": -1, "base_sequence": -1}
    times = {"timestamp_min_ms": 1_000, "timestamp_max_ms": 1_002}
    assert first == replace(before[0], row_count=3, **plain, **times, **bytes_of(first))
    times = {"timestamp_min_ms": 500, "timestamp_max_ms": 501}
    assert second == replace(before[3], row_count=2, **plain, **times, **bytes_of(second))
    assert (first.stored_rows, first.delete_horizon_ms, first.crc32 != 0) == (-1, -1, True)
    assert first.segment == second.segment
    assert first.segment not in {row.segment for row in before}
    written = first.length + second.length
    assert report == MergeReport(segments_before=5, segments_after=1, bytes_written=written)
    topic.log.check()


@pytest.mark.parametrize("commits", [True, False])
def test_merged_batches_of_a_transaction_keep_its_name_and_decision(commits: bool) -> None:
    topic = Topic()
    tx_id = topic.transaction(2, 3, commits=commits, also="u")
    before = topic.sealed()
    assert [row.row_count for row in before] == [2, 3]
    topic.merge()
    (row,) = topic.rows()
    assert row == replace(before[0], row_count=5, base_sequence=-1, **bytes_of(row))
    assert (row.tx_id, row.aborted, len(row.topic_ids)) == (tx_id, not commits, 2)
    assert 0 < row.first_slot < row.decided_slot
    topic.log.check()


def test_compacted_batch_says_how_many_records_it_has_and_covers_all_offsets() -> None:
    topic = Topic(**{"cleanup.policy": "compact"})
    topic.plain(1, key=b"other")
    topic.plain(4, at_ms=2_000)
    before = topic.sealed()
    topic.compact()
    (row,) = topic.rows()
    expected = replace(
        before[0],
        row_count=5,
        stored_rows=2,
        pid=-1,
        epoch=-1,
        base_sequence=-1,
        timestamp_min_ms=1_000,
        timestamp_max_ms=2_003,
        **bytes_of(row),
    )
    assert row == expected
    assert (row.record_count, row.next_offset) == (2, 5)
    topic.log.check()


def test_rows_without_records_name_no_segment_producer_or_transaction() -> None:
    topic = Topic(**{"cleanup.policy": "compact"})
    topic.transaction(2, commits=False)
    topic.transaction(1, commits=False)
    before = topic.sealed()
    topic.compact()
    (row,) = topic.rows()
    nothing = {"segment": "", "position": 0, "length": 0, "crc32": 0, "stored_rows": 0}
    nameless = {"pid": -1, "epoch": -1, "number": -1, "first_slot": -1, "decided_slot": -1}
    expected = replace(
        before[0], row_count=3, base_sequence=-1, aborted=False, **nothing, **nameless
    )
    assert row == expected
    assert (row.record_count, row.tx_id) == (0, None)
    topic.log.check()


def test_empty_rows_have_the_times_of_all_that_they_cover() -> None:
    topic = Topic(**{"cleanup.policy": "compact"})
    for at_ms in (3_000, 1_000, 7_000, 2_000):
        topic.plain(1, at_ms=at_ms)
    topic.plain(1)
    topic.compact()
    first, second = topic.rows()
    assert (first.record_count, first.row_count) == (0, 4)
    assert (first.timestamp_min_ms, first.timestamp_max_ms) == (1_000, 7_000)
    assert (second.record_count, second.base_offset) == (1, 4)


def test_I11_empty_batch_of_a_transaction_over_several_topics_keeps_its_name() -> None:
    topic = Topic(**{"cleanup.policy": "compact"})
    tx_id = topic.transaction(2, also="u")
    topic.plain(1, key=b"x")
    before = topic.sealed()
    topic.compact()
    first, second = topic.rows()
    nothing = {"segment": "", "position": 0, "length": 0, "crc32": 0, "stored_rows": 0}
    assert first == replace(before[0], base_sequence=-1, **nothing)
    assert first.tx_id == tx_id
    assert second.record_count == 1
    topic.log.check()


def test_tombstones_that_expire_at_different_times_are_in_different_batches() -> None:
    topic = Topic(**{"cleanup.policy": "compact", "delete.retention.ms": 10_000})

    def tombstone(key: bytes) -> None:
        topic.log.producer().send("t", key=key, value=None, partition=0).get()

    tombstone(b"a")
    topic.sealed()
    topic.compact()
    topic.log.clock.advance(100)
    tombstone(b"b")
    topic.sealed()
    topic.compact()
    now_ms = topic.log.clock.wall_ms()
    horizons = [now_ms + 9_900, now_ms + 10_000]
    assert [row.delete_horizon_ms for row in topic.rows()] == horizons
    topic.plain(2)
    topic.sealed()
    topic.merge()
    assert [(row.delete_horizon_ms, row.row_count) for row in topic.rows()] == [
        (horizons[0], 1),
        (horizons[1], 1),
        (-1, 2),
    ]


def group_of(topic: Topic) -> LeafGroup:
    group = next_group(topic.topic, topic.topic.state, -1, 1)
    assert group is not None
    return group


@pytest.mark.parametrize(("less", "counts"), [(0, [2, 2, 2]), (1, [1] * 6)])
def test_batches_are_stored_as_one_up_to_batch_bytes(less: int, counts: list[int]) -> None:
    topic = Topic()
    topic.plain(6)
    topic.sealed()
    group = group_of(topic)
    parts = kept_batches(topic.topic, topic.topic.state, list(group.rows), select_all)
    (size,) = {part.kept.batch.nbytes for part in parts}
    rewritten = rewrite(topic.topic, group, parts, 2 * size - less)
    assert [row.row_count for row in rewritten.rows] == counts
    assert [row.base_offset for row in rewritten.rows] == [
        sum(counts[:number]) for number in range(len(counts))
    ]


@pytest.mark.parametrize(("count", "merges"), [(7, False), (8, True)])
def test_eight_segments_are_worth_merging_and_seven_are_not(count: int, merges: bool) -> None:
    topic = Topic()
    topic.plain(count)
    topic.sealed()
    before = topic.rows()
    done = merge_segments(topic.topic, BATCH_BYTES)
    assert (done.segments_before, done.segments_after) == ((count, 1) if merges else (0, 0))
    assert (topic.rows() != before) is merges
    assert done.interrupted == ""


def test_batches_below_the_log_start_do_not_count_and_are_left_out() -> None:
    topic = Topic()
    topic.plain(9)
    topic.sealed()
    topic.topic.execute(AdvanceLogStart({0: 2}))
    assert merge_segments(topic.topic, BATCH_BYTES).segments_before == 0
    assert merge_segments(topic.topic, BATCH_BYTES, 7).segments_before == 7
    assert [(row.base_offset, row.row_count) for row in topic.rows()] == [(2, 7)]
    topic.log.check()


def test_every_group_of_one_pass_is_merged() -> None:
    topic = Topic(**{"segment.bytes": 1_024})
    for _ in range(3):
        topic.plain(2)
        topic.sealed()
    done = topic.merge(segments_min=2)
    assert (done.segments_before, done.segments_after) == (6, 3)
    assert done.bytes_written == sum(row.length for row in topic.rows())
    assert [row.row_count for row in topic.rows()] == [2, 2, 2]
    assert topic.topic.state.cleaner.merged_slot == -1, "leaves may still form larger groups"


def test_rewritten_batch_is_divided_where_this_process_writes_smaller_ones() -> None:
    """Another process has written a larger one, from which compaction removes records."""
    topic = Topic(**{"cleanup.policy": "compact"})
    producer = topic.log.producer()
    for number in range(40):
        key = b"k" if number % 4 else b"%d" % number
        producer.send("t", key=key, value=b"x" * 100, partition=0)
    producer.flush()
    (stored,) = topic.sealed()
    runtime = Runtime(topic.log.clock, SeededEntropy(99), SerialFanOut(), StillBackground())
    small = ProcessSettings(batch_bytes=700)
    process = open_connection(topic.log.memory, runtime, process=small)
    compact(process.cluster.topic("t"), topic.log.clock.wall_ms(), ALL, force=True)
    rows = topic.rows()
    assert sum(row.record_count for row in rows) == 11
    assert len(rows) > 1
    kept = [number for number in range(40) if not number % 4 or number == 39]
    assert rows[0].base_offset == stored.base_offset
    assert rows[-1].next_offset == stored.next_offset
    done = 0
    for row, following in pairwise(rows):
        done += row.record_count
        assert row.next_offset == following.base_offset == kept[done - 1] + 1
    consumer = topic.log.consumer("t")
    assert [one.offset for one in next(iter(consumer.poll().values()))] == kept
    topic.log.check()
