"""What a buffered record counts towards `buffer.memory`."""

from typing import Any

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.producer.sender import new_batch
from txlog.engine.append.producer_batch import ROW_OVERHEAD_BYTES

TYPED = pa.schema([("n", pa.int64()), ("text", pa.string())])
RECORDS: list[tuple[str, Any, bytes | None, list[tuple[str, bytes]] | None, int]] = [
    # topic, value, key, headers, bytes of these at least
    ("plain", b"", None, None, 0),
    ("plain", b"value", b"key", None, 8),
    ("plain", b"value", None, [("name", b"12345")], 14),
    ("typed", {"n": 1}, None, None, 8),
    ("typed", {"n": 1, "text": "x" * 100}, b"key", None, 111),
]


@pytest.mark.parametrize(("topic", "value", "key", "headers", "size"), RECORDS)
def test_record_counts_its_bytes_and_the_overhead_of_each_record(
    log: MemoryLog,
    topic: str,
    value: Any,
    key: bytes | None,
    headers: list[tuple[str, bytes]] | None,
    size: int,
) -> None:
    log.admin.create_topic("plain", 1)
    log.admin.create_topic("typed", 1, TYPED)
    batch = new_batch(log.connection.cluster.present_topic(topic), lambda: None)
    for number in (1, 2):
        batch.add(value, key, headers, None, 1)
        least = number * (size + ROW_OVERHEAD_BYTES)
        assert least <= batch.size_bytes <= least + 64 * number


@pytest.mark.parametrize(("topic", "value"), [("plain", b""), ("typed", {"n": None})])
def test_buffer_of_empty_records_becomes_full_and_is_flushed(
    log: MemoryLog, topic: str, value: Any
) -> None:
    log.admin.create_topic("plain", 1)
    log.admin.create_topic("typed", 1, TYPED)
    producer = log.producer(buffer_memory=10 * ROW_OVERHEAD_BYTES)
    sent = [producer.send(topic, value, partition=0) for _ in range(30)]
    assert sent[0].is_done
    assert not sent[-1].is_done
    producer.flush()
