"""Records as a consumer returns them: kafka-python's attributes, or Arrow tables. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from txlog.arrow_columns import numbers_column, text_column, whole_numbers
from txlog.errors import InvalidRecord
from txlog.topic.read.reader import FetchedBatch, sliced_records
from txlog.topic.records.conversion import TIMESTAMP_COLUMN
from txlog.topic.records.schema import is_kafka_schema


class ConsumerRecord(NamedTuple):
    """One record. In a typed topic `value` is a dict of its columns, and `key` is None."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970, UTC."""
    key: bytes | None
    value: Any
    headers: list[tuple[str, bytes | None]]


_new_record: Callable[[tuple[object, ...]], ConsumerRecord] = partial(tuple.__new__, ConsumerRecord)
"""Creates a record from its fields, without calling a Python function for each record."""


def records(topic: str, fetched: FetchedBatch) -> Iterator[ConsumerRecord]:
    """The records of one batch, in order of offset."""
    batch = fetched.batch
    stamps = whole_numbers(batch.column(TIMESTAMP_COLUMN).view(pa.int64())).tolist()
    offsets = fetched.offsets.tolist()
    user = batch.drop_columns([TIMESTAMP_COLUMN])
    if is_kafka_schema(user.schema):
        keys = user.column("key").to_pylist()
        values = user.column("value").to_pylist()
        headers = _headers(user.column("headers"))
    else:
        keys, headers = [None] * batch.num_rows, [[] for _ in offsets]
        values = user.to_pylist()
    names, partitions = repeat(topic), repeat(fetched.partition)
    # The first two are infinite; zip ends with the shortest of the others.
    columns = zip(names, partitions, offsets, stamps, keys, values, headers, strict=False)
    return map(_new_record, columns)


def readable(
    topic: str, fetched: FetchedBatch
) -> tuple[list[ConsumerRecord], InvalidRecord | None]:
    """The records before the first that Python cannot represent, and the error for that one.

    Arrow and Spark have dates and times beyond the year 9999; Python does not.
    """
    try:
        return list(records(topic, fetched)), None
    except (ArithmeticError, ValueError) as whole:
        if fetched.batch.num_rows == 1:
            return [], _unreadable(topic, fetched, whole)
    found: list[ConsumerRecord] = []
    for index in range(fetched.batch.num_rows):
        more, error = readable(topic, sliced_records(fetched, index, 1))
        if error is not None:
            return found, error
        found += more
    return found, None


def _unreadable(topic: str, fetched: FetchedBatch, error: Exception) -> InvalidRecord:
    offset = fetched.offset_at(0)
    return InvalidRecord(
        f"the record of {topic}-{fetched.partition} at offset {offset} has a value that Python "
        f"cannot hold: {error}. Read it with poll_arrow(), or seek() to offset {offset + 1}.",
        topic=topic,
        partition=fetched.partition,
        offset=offset,
    )


def _headers(column: pa.Array) -> list[list[tuple[str, bytes | None]]]:
    if column.null_count == len(column):
        return [[] for _ in range(len(column))]
    return [
        [(header["key"], header["value"]) for header in found or ()] for found in column.to_pylist()
    ]


def arrow_schema(physical: pa.Schema) -> pa.Schema:
    """The columns of `arrow_batch` for a topic's physical schema, whose last one is `_timestamp`:
    `_topic`, `_partition` and `_offset` come before it."""
    *columns, stamp = physical
    added = [
        pa.field("_topic", pa.dictionary(pa.int32(), pa.string())),
        pa.field("_partition", pa.int32()),
        pa.field("_offset", pa.int64()),
    ]
    return pa.schema([*columns, *added, stamp])


def arrow_batch(topic: str, fetched: FetchedBatch) -> pa.RecordBatch:
    """The batch with `_topic`, `_partition`, `_offset` before its `_timestamp`."""
    batch = fetched.batch
    last = batch.num_columns - 1
    added = added_columns(topic, fetched)
    columns = [*batch.columns[:last], *added.values(), batch.column(last)]
    names = [*batch.schema.names[:last], *added, batch.schema.names[last]]
    return pa.RecordBatch.from_arrays(columns, names=names)


def added_columns(topic: str, fetched: FetchedBatch) -> dict[str, pa.Array]:
    """Where each record is: `_topic`, `_partition`, `_offset`."""
    count = fetched.batch.num_rows
    return {
        "_topic": pa.DictionaryArray.from_arrays(
            numbers_column(np.zeros(count, dtype=np.int32)), text_column([topic])
        ),
        "_partition": numbers_column(np.full(count, fetched.partition, dtype=np.int32)),
        "_offset": numbers_column(fetched.offsets),
    }
