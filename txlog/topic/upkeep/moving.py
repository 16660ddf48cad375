"""Moving records from entries of a topic's journal into segments (rule R65).

Records of a small append ride in its entry (docs/design/0037). The writer that fills a window of
slots writes those of the window into one segment for each schema, and then the event that names
these segments. Until then no chunk is sealed, and no boundary raised, above such an entry, so a
process that dies in between leaves a segment for vacuum, and the next window moves more. Keeps I2:
every record keeps its offset and its batch, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

from txlog.errors import MissingObject
from txlog.layout import is_entry
from txlog.storage.store import Store
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.events import RecordsMoved
from txlog.topic.read.reader import read_batches, source_of_schema, stored_bytes
from txlog.topic.records.batch import DECODED_BYTES_MAX, InlineSegment, Segment
from txlog.topic.records.schema import physical_schema
from txlog.topic.state import TopicState
from txlog.topic.topic_log import TopicLog
from txlog.topic.write.segment_writer import SegmentWriter


def move_records(topic: TopicLog, last_slot: int | None = None) -> None:
    """Move the records in entries up to that slot, by default in all, into segments.

    Raises PublishContention if another process was first, SegmentExpired, CorruptData, and the
    store's errors; the records are then where they were.
    """
    state = topic.state
    last = topic.next_slot - 1 if last_slot is None else last_slot
    if event := records_moved(topic, state, last, topic.store):
        topic.execute(event)


def records_moved(
    topic: TopicLog, state: TopicState, last_slot: int, store: Store
) -> RecordsMoved | None:
    """Write the records that this state has in entries up to that slot into segments of `store`;
    returns the event that names these. None if there are no such records."""
    rows = state.rows_in_entries(last_slot)
    segments = [
        _moved_rows(topic, state, schema_id, list(found), store)
        for schema_id, found in groupby(rows, key=lambda row: row.schema_id)
    ]
    return RecordsMoved(last_slot, tuple(segments)) if segments else None


def moved_segment(topic: TopicLog, segment: Segment, store: Store) -> Segment:
    """The segment, or for batches in an entry of a coordinator a segment in `store` with these.
    Raises MissingObject if the entry is gone, as after its transaction is complete."""
    if not is_entry(segment.path):
        return segment
    inlined = topic.for_marker((segment,))
    if inlined is None:
        raise MissingObject(f"{segment.path} was removed meanwhile; try again.", path=segment.path)
    schema = physical_schema(topic.schema(segment.schema_id))
    with _new_segment(topic, segment.schema_id, store) as writer:
        for one in inlined:
            data = memoryview(one.data) if isinstance(one, InlineSegment) else memoryview(b"")
            for part in one.batches:
                message = data[part.position : part.position + part.length]
                writer.add_stored(schema, part, (message,))
        return writer.finish()


def _moved_rows(
    topic: TopicLog, state: TopicState, schema_id: int, rows: Sequence[IndexedBatch], store: Store
) -> Segment:
    source = source_of_schema(topic, state, schema_id)
    schema = physical_schema(topic.schema(schema_id))
    with _new_segment(topic, schema_id, store) as writer:
        for row, data in stored_bytes(source, rows):
            if data is not None:
                writer.add_stored(schema, row.as_stored, (memoryview(data),))
                continue
            # Another process has moved them, and the entry is gone.
            for found in read_batches(source, [row]):
                writer.add(found.partition, found.batch)
                writer.end_batch(found.partition)
        return writer.finish()


@contextmanager
def _new_segment(topic: TopicLog, schema_id: int, store: Store) -> Iterator[SegmentWriter]:
    writer = SegmentWriter(
        store,
        topic.layout.segment(topic.new_name()),
        schema_id,
        compression=topic.state.config.compression_type,
        # Each batch stays one, whatever this process's `batch.bytes` is.
        batch_bytes_max=DECODED_BYTES_MAX,
    )
    try:
        yield writer
    except BaseException:
        writer.discard()
        raise
