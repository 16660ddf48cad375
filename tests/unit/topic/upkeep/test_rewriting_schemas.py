"""With several schemas, as in an evolving topic, rewriting leaves each record at its offset
(I2)."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.logs.memory_log import MemoryLog
from txlog.settings import LogSettings
from txlog.topic.events import AppendBatches, SealIndex
from txlog.topic.records.schema import physical_schema
from txlog.topic.topic_log import TopicLog
from txlog.topic.upkeep.compaction import CompactionLimits, compact
from txlog.topic.upkeep.merging import merge_segments

PARTITIONS = 2
OLD = pa.schema([("key", pa.int64()), ("number", pa.int64())])
NEW = OLD.append(pa.field("note", pa.string()))
BATCH_BYTES = 100

Write = tuple[int, int, list[int]]
"""Schema, partition, and the keys of records that are stored as one batch."""


class Topic:
    """A topic whose records have unique numbers; with schema 1 they have notes."""

    def __init__(self, **config: str) -> None:
        self.log = MemoryLog(LogSettings(journal_snapshot_entries=8))
        self.log.admin.create_topic("t", PARTITIONS, schema=OLD, config=config)
        self.log.admin.evolve_schema("t", NEW)
        self.records: dict[int, list[dict[str, Any]]] = {p: [] for p in range(PARTITIONS)}
        self.count = 0

    @property
    def topic(self) -> TopicLog:
        return self.log.connection.cluster.topic("t")

    def write(self, schema_id: int, partition: int, keys: Sequence[int]) -> None:
        """Write a batch; with schema 0, as a producer that has not read schema 1 yet."""
        numbers = range(self.count, self.count + len(keys))
        self.count += len(keys)
        notes = [f"note {n}" if schema_id else None for n in numbers]
        columns: list[Any] = [list(keys), list(numbers), *([notes] if schema_id else [])]
        self.topic.catch_up()
        schema = physical_schema(self.topic.schema(schema_id))
        columns.append([0] * len(keys))
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        batch = pa.record_batch(arrays, schema=schema)
        segment = self.topic.stage({partition: [batch]}, schema_id)
        self.topic.execute(AppendBatches((segment,)))
        for row in zip(keys, numbers, notes, strict=True):
            self.records[partition].append(dict(zip(NEW.names, row, strict=True)))

    def merge(self) -> None:
        """Merge small segments."""
        self.topic.execute(SealIndex())
        assert not merge_segments(self.topic, BATCH_BYTES, segments_min=1).interrupted

    def compact(self) -> None:
        """Compact the topic."""
        limits = CompactionLimits(keys_max=1_000, batch_bytes=BATCH_BYTES)
        now_ms = self.log.clock.wall_ms()
        assert not compact(self.topic, now_ms, limits, force=True).interrupted

    def newest(self) -> dict[int, list[tuple[int, dict[str, Any]]]]:
        """Partition -> offset and record of the newest of each key."""
        found = {}
        for partition, records in self.records.items():
            last = {record["key"]: offset for offset, record in enumerate(records)}
            found[partition] = [(at, records[at]) for at in sorted(last.values())]
        return found

    def all(self) -> dict[int, list[tuple[int, dict[str, Any]]]]:
        """Partition -> offset and record of all records."""
        return {p: list(enumerate(records)) for p, records in self.records.items()}

    def read(self) -> dict[int, list[tuple[int, dict[str, Any]]]]:
        """The records of a new consumer."""
        consumer = self.log.consumer("t")
        found: dict[int, list[tuple[int, dict[str, Any]]]] = {p: [] for p in range(PARTITIONS)}
        while polled := consumer.poll(max_records=1_000):
            for where, records in polled.items():
                found[where.partition].extend((r.offset, r.value) for r in records)
        return found

    def check_index(self) -> None:
        """Check the order of the journal: in each partition a batch begins where the previous one
        ends."""
        rows = list(self.topic.batches_from_slot(self.topic.catch_up(), 0))
        assert [row.slot for row in rows] == sorted(row.slot for row in rows)
        for partition in range(PARTITIONS):
            own = [row for row in rows if row.partition == partition]
            assert all(one.next_offset == other.base_offset for one, other in pairwise(own))
            assert sum(row.row_count for row in own) == len(self.records[partition])


WRITES = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.integers(0, PARTITIONS - 1),
        st.lists(st.integers(0, 5), min_size=1, max_size=4),
    ),
    max_size=30,
)


@given(WRITES, st.integers(1, 3))
@settings(max_examples=examples(30), derandomize=True, deadline=None)
def test_I2_merging_leaves_records_of_mixed_schemas_at_their_offsets(
    writes: list[Write], passes: int
) -> None:
    topic = Topic()
    for number, write in enumerate(writes):
        topic.write(*write)
        if number % passes == 0:
            topic.merge()
    topic.merge()
    assert topic.read() == topic.all()
    topic.check_index()
    topic.log.check()


@given(WRITES, st.integers(1, 10))
@settings(max_examples=examples(30), derandomize=True, deadline=None)
def test_I2_compaction_leaves_the_newest_records_of_mixed_schemas_at_their_offsets(
    writes: list[Write], passes: int
) -> None:
    topic = Topic(**{"cleanup.policy": "compact", "key.column": "key"})
    for number, write in enumerate(writes):
        topic.write(*write)
        if number % passes == 0:
            topic.compact()
    topic.compact()
    assert topic.read() == topic.newest()
    topic.check_index()
    topic.log.check()


def test_records_stay_readable_beside_an_emptied_batch_of_another_schema() -> None:
    topic = Topic(**{"cleanup.policy": "compact", "key.column": "key"})
    for schema_id, keys in ((1, [0, 1, 2, 3]), (0, [9]), (1, [9])):
        topic.write(schema_id, 0, keys)
    topic.compact()
    assert topic.read() == topic.newest()


def test_merging_writes_one_segment_per_schema_and_keeps_record_order() -> None:
    topic = Topic()
    for number in range(24):
        topic.write(number // 3 % 2, number % PARTITIONS, [number])
    topic.merge()
    assert topic.read() == topic.all()
    rows = list(topic.topic.batches_from_slot(topic.topic.state, 0))
    stored = {(row.segment, row.schema_id) for row in rows}
    assert sorted(schema_id for _, schema_id in stored) == [0, 1], "a segment for each"


def test_merging_keeps_records_of_a_transaction_spanning_a_schema_change() -> None:
    log = MemoryLog()
    log.admin.create_topic("t", 1, schema=OLD)
    producer = log.producer("a")
    rows = [{"key": 0, "number": number} for number in range(4)]
    with producer.transaction():
        for number, row in enumerate(rows):
            if number == 2:
                log.admin.evolve_schema("t", NEW)
            producer.send("t", row, partition=0).get()
    topic = log.connection.cluster.topic("t")
    topic.execute(SealIndex())
    assert merge_segments(topic, BATCH_BYTES, segments_min=1).segments_after == 2
    assert log.values("t") == [{**row, "note": None} for row in rows]
    log.check()
