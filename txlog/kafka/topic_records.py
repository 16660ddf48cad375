"""Records of Kafka's clients as a topic stores them, and back.

A Kafka-shaped topic stores what it gets, byte for byte. A topic with columns has them in the value,
as a JSON object or as an Arrow IPC stream of one row, and its key column in the key, in the bytes
that Kafka's serializers make, so that both products hash the same. What a topic may not hold is
refused as a producer of txlog refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from txlog.arrow_columns import numbers_column, whole_numbers
from txlog.documents.column_values import json_column, json_value
from txlog.documents.record_json import json_rows
from txlog.errors import InvalidRecord
from txlog.kafka.record_batches import SentBatch
from txlog.topic.records.conversion import TIMESTAMP_COLUMN, TIMESTAMP_FIELD
from txlog.topic.records.python_rows import record_batch_from_rows
from txlog.topic.records.schema import KAFKA_SCHEMA, is_kafka_schema, physical_schema
from txlog.topic.topic_log import TopicLog
from txlog.topic.write.partitioner import serialized_keys
from txlog.topic.write.record_preparation import require_small_records, with_record_times

NO_TIMESTAMP = -1
"""Kafka's RecordBatch.NO_TIMESTAMP."""


# What is served.


def served(batch: pa.RecordBatch, key_column: str, as_arrow: bool) -> pa.RecordBatch:
    """Stored records, with `_timestamp`, as records of a Kafka-shaped topic."""
    columns = batch.drop_columns([TIMESTAMP_COLUMN])
    if is_kafka_schema(columns.schema):
        return batch
    count = batch.num_rows
    keys = serialized_keys(columns.column(key_column)) if key_column else [None] * count
    rows = _arrow_rows(columns) if as_arrow else json_rows(columns)
    schema = physical_schema(KAFKA_SCHEMA)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(keys, pa.binary()),
            pa.array(rows, pa.binary(), size=count),
            pa.nulls(count, schema.field("headers").type),
            batch.column(TIMESTAMP_COLUMN),
        ],
        schema=schema,
    )


def _arrow_rows(batch: pa.RecordBatch) -> Iterator[bytes]:
    for index in range(batch.num_rows):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch.slice(index, 1))
        yield sink.getvalue().to_pybytes()


# What is stored.


def stored_form(topic: TopicLog, batch: SentBatch, as_arrow: bool, now_ms: int) -> SentBatch:
    """The batch with the topic's columns, and times by its configuration. Raises InvalidRecord."""
    records = _timed(batch.records, now_ms)
    if not is_kafka_schema(topic.schema()):
        records = _typed(topic, records, as_arrow)
    records = with_record_times(topic, records, now_ms)
    require_small_records(topic, records)
    return replace(batch, records=records)


def _timed(records: pa.RecordBatch, now_ms: int) -> pa.RecordBatch:
    """The records; those without a time have the present one."""
    index = records.schema.get_field_index(TIMESTAMP_COLUMN)
    times_ms = whole_numbers(records.column(index).view(pa.int64()))
    if NO_TIMESTAMP not in times_ms:
        return records
    filled = numbers_column(
        np.where(times_ms == NO_TIMESTAMP, now_ms, times_ms), TIMESTAMP_FIELD.type
    )
    return records.set_column(index, TIMESTAMP_FIELD, filled)


def _typed(topic: TopicLog, records: pa.RecordBatch, as_arrow: bool) -> pa.RecordBatch:
    name, key_column = topic.name, topic.state.config.key_column
    if as_arrow:
        raise InvalidRecord(f"topic {name!r} is served as Arrow, and takes records as JSON only")
    if records.column("headers").null_count < records.num_rows:
        raise InvalidRecord(f"topic {name!r} has columns, and no headers")
    rows = [_row(name, value) for value in records.column("value").to_pylist()]
    batch = record_batch_from_rows(rows, topic.schema(), json_column)
    sent = records.column("key").to_pylist()
    own = serialized_keys(batch.column(key_column)) if key_column else [None] * len(sent)
    for key, expected in zip(sent, own, strict=True):
        if key is not None and key != expected:
            raise InvalidRecord(
                f"topic {name!r} has the key in "
                + (f"column {key_column!r}; send the same one" if key_column else "no column")
                + ", or none"
            )
    return batch.append_column(TIMESTAMP_COLUMN, records.column(TIMESTAMP_COLUMN))


def _row(topic: str, value: bytes | None) -> dict[str, object]:
    found = None if value is None else json_value(value)
    if not isinstance(found, dict):
        raise InvalidRecord(f"topic {topic!r} has columns: a value is a JSON object of them")
    return found
