"""Topics of a world: what their names say of them, and records as texts.

A topic whose name begins with `k` or `c` has Kafka's schema, any other one a column `v`; evolved
ones have more. `c` is compacted, `d` deletes what is old, and `x` may be deleted and created again.
It must not know who writes them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from txlog.log.schema import KAFKA_SCHEMA
from txlog.testing.simulation.history import Record

TYPED = pa.schema([pa.field("v", pa.string())])

KEYS = 3
"""Keys of a compacted topic: few, so that much is superseded."""

_TEXT = "text"
"""The header that tells a tombstone's text."""

_CONFIGS: Mapping[str, Mapping[str, object]] = {
    "c": {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": 0.01,
        "delete.retention.ms": 4_000,
    },
    "d": {"retention.ms": 10_000},
}


def schema_of(topic: str) -> pa.Schema:
    """The schema that a topic is created with."""
    return KAFKA_SCHEMA if topic[0] in "kc" else TYPED


def config_of(topic: str) -> Mapping[str, object]:
    """What it is created with besides."""
    return _CONFIGS.get(topic[0], {})


def is_mortal(topic: str) -> bool:
    """Whether it may be deleted and created again."""
    return topic[0] == "x"


def key_of(topic: str, value: str) -> str | None:
    """The key of a record, in a compacted topic: by its text alone."""
    return f"key {zlib.crc32(value.encode()) % KEYS}" if topic[0] == "c" else None


def is_tombstone(topic: str, value: str) -> bool:
    """Whether the record says that its key is gone."""
    return topic[0] == "c" and zlib.crc32(value.encode()) % 7 == 0


def payload(topic: str, value: str) -> Any:
    """A record's value as producers take it."""
    if is_tombstone(topic, value):
        return None
    return value.encode() if topic[0] in "kc" else {"v": value}


def headers_of(topic: str, value: str) -> list[tuple[str, bytes]] | None:
    """A record's headers as producers take them."""
    return [(_TEXT, value.encode())] if is_tombstone(topic, value) else None


def text_of(record: Any) -> str:
    """The text of a record that a consumer was given."""
    value = record.value
    if value is None:
        value = dict(record.headers)[_TEXT]
    text: str = value["v"] if isinstance(value, dict) else value.decode()
    return text


def texts_of(rows: pa.RecordBatch) -> Iterator[str]:
    """The texts of records as they are stored."""
    if "v" in rows.schema.names:
        yield from rows.column("v").to_pylist()
        return
    for value, headers in zip(rows.column("value"), rows.column("headers"), strict=True):
        found = value.as_py() or {h["key"]: h["value"] for h in headers.as_py()}[_TEXT]
        yield found.decode()


def as_history(records: Any) -> list[Record]:
    """What `poll` answered, as the history keeps it."""
    return [
        [record.topic, record.partition, record.offset, text_of(record)]
        for where in sorted(records)
        for record in records[where]
    ]
