"""The commit of micro-batches whose names exceed one entry: batches, segments, and the mark."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from spark_plugin.sink import batch_commit
from spark_plugin.source.offsets import encode
from tests.logs.memory_log import MemoryLog
from tests.unit.spark_plugin.offset_lines import offset_of
from tests.unit.spark_plugin.sink.test_batch_commit import position
from tests.unit.spark_plugin.spark_query import GROUP, Query
from txlog.clock import Runtime, segment_id
from txlog.coordinator.events import Participant
from txlog.topic.records.batch import Segment
from txlog.topic.records.conversion import with_timestamp
from txlog.topic.topic_log import TopicLog
from txlog.topic.write.segment_writer import SegmentWriter


def segment_of(topic: TopicLog, row: pa.RecordBatch, count: int) -> Segment:
    """A segment with that many batches of one record."""
    draft = SegmentWriter(
        topic.store,
        topic.layout.segment(segment_id(Runtime())),
        topic.catch_up().newest_schema_id,
        compression="none",
        batch_bytes_max=1,
    )
    for _ in range(count):
        draft.add(0, row)
    return draft.finish()


@pytest.mark.slow
def test_micro_batch_with_more_stored_batches_than_fit_an_entry_is_committed(
    log: MemoryLog, query: Query
) -> None:
    """The names of its stored batches alone exceed the megabyte that a store accepts."""
    process = log.process()
    query.plan(0, 0, 2)
    whole = query.tasks(process, "run", 0, 0, 2)
    empty = [replace(message, staged=()) for message in whole[1:]]
    topic = process.cluster.topic("even")
    row = with_timestamp(pa.RecordBatch.from_pydict({"n": [1]}), 0)
    segments = [segment_of(topic, row, 5_000) for _ in range(4)]
    staged = Participant(topic.topic_id, "even", segments=tuple(segments))
    query.commit(process, "run", 0, [replace(whole[0], staged=(staged,)), *empty])
    assert log.process().cluster.topic("even").catch_up().last_stable_offset(0) == 20_000
    assert position(log) == 2
    log.check()


def test_micro_batch_with_more_segments_than_fit_an_entry_is_committed(
    log: MemoryLog, query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    batch_commit._recommend_repartition.cache_clear()
    """Their paths exceed the megabyte, as of thousands of tasks with few rows each."""
    name = "even." + "e" * 240
    log.admin.create_topic(name, 1, pa.schema([("n", pa.int64())]))
    process = log.process()
    query.plan(0, 0, 2)
    messages = [replace(m, staged=()) for m in query.tasks(process, "run", 0, 0, 2)]
    topic = process.cluster.topic(name)
    row = with_timestamp(pa.RecordBatch.from_pydict({"n": [1]}), 0)
    segments = tuple(segment_of(topic, row, 1) for _ in range(2_700))
    participant = Participant(topic.topic_id, name, segments=segments)
    messages[0] = replace(messages[0], staged=(participant,))
    query.commit(process, "run", 0, messages)
    assert log.process().cluster.topic(name).catch_up().last_stable_offset(0) == 2_700
    assert position(log) == 2
    log.check()
    batch_commit._recommend_repartition()
    assert [one.getMessage().count(".repartition('topic')") for one in caplog.records] == [1]


def plan_wide(log: MemoryLog, query: Query, count: int) -> None:
    """Plan a batch that advances so many partitions of a topic with a long name."""
    source = "s" * 150
    log.admin.create_topic(source, count)
    cluster = log.connection.cluster
    ranges = dict.fromkeys(range(count), (0, 1))
    topic_id = cluster.topic(source).topic_id
    line = encode(offset_of(ranges, source, topic_id, GROUP, cluster.log_id))
    (query.folder / "offsets" / "0").write_text(f'v1\n{{"batchWatermarkMs":0}}\n{line}')


@pytest.mark.slow
def test_micro_batch_whose_mark_and_segments_exceed_an_entry_is_committed(
    log: MemoryLog, query: Query
) -> None:
    """The mark names every partition that the batch advances."""
    name = "even." + "e" * 145
    log.admin.create_topic(name, 1, pa.schema([("n", pa.int64())]))
    plan_wide(log, query, 4_000)
    process = log.process()
    messages = [replace(m, staged=()) for m in query.tasks(process, "run", 0, 0, 2)]
    topic = process.cluster.topic(name)
    row = with_timestamp(pa.RecordBatch.from_pydict({"n": [1]}), 0)
    segments = tuple(segment_of(topic, row, 1) for _ in range(1_300))
    participant = Participant(topic.topic_id, name, segments=segments)
    messages[0] = replace(messages[0], staged=(participant,))
    query.commit(process, "run", 0, messages)
    assert log.process().cluster.topic(name).catch_up().last_stable_offset(0) == 1_300
    assert len(log.process().offsets.group(GROUP).committed) == 4_000


def test_micro_batch_whose_positions_take_more_than_half_an_entry_is_committed(
    log: MemoryLog, query: Query
) -> None:
    """The decision's mark names the partitions of the pend a second time."""
    plan_wide(log, query, 3_000)
    process = log.process()
    messages = [replace(m, staged=()) for m in query.tasks(process, "run", 0, 0, 2)]
    query.commit(process, "run", 0, messages)
    assert len(log.process().offsets.group(GROUP).committed) == 3_000
