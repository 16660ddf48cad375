"""Records for a fetch: from the log to Kafka's record batches, within the asked sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from kafka.errors import BrokerResponseError, OffsetOutOfRangeError

from txlog.engine.connection import Connection
from txlog.errors import TxlogError
from txlog.kafka.error_codes import code_of
from txlog.kafka.record_batches import empty_batch, encoded
from txlog.kafka.topic_records import served
from txlog.model import IsolationLevel
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.read.reader import batch_source, read_batches, sliced, visible_batches
from txlog.topic.topic_log import TopicLog

FETCH_BYTES_MAX = 55 << 20
"""A broker's fetch.max.bytes: an answer is in memory until its client has read it."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """The answer for one partition."""

    topic: str
    partition: int
    code: int = 0
    end: int = -1
    last_stable: int = -1
    log_start: int = -1
    records: bytes = b""
    """Not null: librdkafka takes null for a broken message set."""
    size: int = 0
    """Bytes of records, which the client may wait for."""


def fetched(
    connection: Connection, request: Any, isolation: IsolationLevel, as_arrow: bool
) -> list[Fetched]:
    """What each partition has now. The first one with records returns at least a batch."""
    found = []
    left = min(request.max_bytes, FETCH_BYTES_MAX)
    for asked in request.topics:
        for part in asked.partitions:
            one = _fetched(connection, asked.topic, part, isolation, left, as_arrow)
            left -= one.size
            found.append(one)
    return found


def _fetched(
    connection: Connection,
    name: str,
    part: Any,
    isolation: IsolationLevel,
    left: int,
    as_arrow: bool,
) -> Fetched:
    partition = part.partition
    try:
        topic = connection.cluster.present_topic(name)
        topic.check_partition(partition)
        state = topic.state
        bounds = state.bounds(partition)
        end = state.visible_end(partition, isolation)
        if not bounds.log_start <= part.fetch_offset <= bounds.next_offset:
            raise OffsetOutOfRangeError(f"offset {part.fetch_offset} of {name}-{partition}")
        limit = min(part.partition_max_bytes, left)
        parts = _batches(topic, partition, part.fetch_offset, end, isolation, limit, as_arrow)
        records = b"".join(parts)
    except (TxlogError, BrokerResponseError) as error:
        return Fetched(name, partition, code_of(error))
    return Fetched(
        name,
        partition,
        end=bounds.next_offset,
        last_stable=state.last_stable_offset(partition),
        log_start=bounds.log_start,
        records=records,
        size=len(records),
    )


def _batches(
    topic: TopicLog,
    partition: int,
    start: int,
    end: int,
    isolation: IsolationLevel,
    limit: int,
    as_arrow: bool,
) -> Iterator[bytearray]:
    """Batches from `start` on, up to `limit` bytes of the log and at least one."""
    if start >= end or limit <= 0:
        return
    state, taken = topic.state, 0
    chosen: list[IndexedBatch] = []
    for row in visible_batches(topic, state, partition, start, end, isolation):
        taken += row.length
        if chosen and taken > limit:
            break
        chosen.append(row)
    is_append_time, key = state.config.is_append_time, state.config.key_column
    size = 0
    for stored in read_batches(batch_source(topic, state, start), chosen):
        found = sliced(stored, start, end)
        found = replace(found, batch=served(found.batch, key, as_arrow))
        for data in encoded(found, is_append_time=is_append_time):
            yield data
            size += len(data)
            if size >= limit:
                return
    if not size:
        # Aborted, or compacted away: the client goes on behind them.
        yield empty_batch(start, chosen[-1].next_offset if chosen else end)
