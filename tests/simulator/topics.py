"""Topics of a world: their kinds, by their names, and their records as texts.

A topic whose name begins with `k` or `c` has Kafka's schema, any other one a column `v`. An evolved
topic has more columns; a text that names one of these has its checksum in that column. A topic `c`
is compacted, `d` deletes old records, and `x` may be deleted and created again.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from tests.simulator.history import Record
from txlog.engine.connection import Connection
from txlog.topic.records.schema import KAFKA_SCHEMA

TYPED = pa.schema([pa.field("v", pa.string())])

KEYS = 3
"""Keys of a compacted topic: few, so that many records are superseded."""

ADDED = tuple(f"added_{number}" for number in range(4))
"""Columns that a typed topic may get."""

_TEXT = "text"
"""The header with a tombstone's text."""

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
    """The configuration that a topic is created with."""
    return _CONFIGS.get(topic[0], {})


def is_typed(topic: str) -> bool:
    """Whether the topic may get more columns."""
    return topic[0] not in "kc"


def is_mortal(topic: str) -> bool:
    """Whether the topic may be deleted and created again."""
    return topic[0] == "x"


def key_of(topic: str, value: str) -> str | None:
    """The key of a record in a compacted topic, from its text alone."""
    return f"key {zlib.crc32(value.encode()) % KEYS}" if topic[0] == "c" else None


def is_tombstone(topic: str, value: str) -> bool:
    """Whether the record is a tombstone."""
    return topic[0] == "c" and zlib.crc32(value.encode()) % 7 == 0


def payload(topic: str, value: str) -> Any:
    """A record's value as producers take it."""
    if is_tombstone(topic, value):
        return None
    if not is_typed(topic):
        return value.encode()
    added = _added(value)
    return {"v": value} if added is None else {"v": value, added: _number(value)}


def with_column(value: str, column: str) -> str:
    """The text of a record with a value in that column: `value&0`."""
    return f"{value}&{ADDED.index(column)}"


def _added(value: str) -> str | None:
    """The column that a text names. What follows `<` is another record's text."""
    found = re.search(r"&(\d)", value.partition("<")[0])
    return ADDED[int(found[1])] if found else None


def _number(value: str) -> int:
    return zlib.crc32(value.encode())


def _checked(row: Mapping[str, Any]) -> str:
    """The text of a row. If its columns do not fit the text: one that was never sent."""
    text: str = row["v"]
    added = _added(text)
    expected = {} if added is None else {added: _number(text)}
    found = {name: row[name] for name in ADDED if row.get(name) is not None}
    return text if found == expected else f"{text} with {found}"


def headers_of(topic: str, value: str) -> list[tuple[str, bytes]] | None:
    """A record's headers as producers take them."""
    return [(_TEXT, value.encode())] if is_tombstone(topic, value) else None


def text_of(record: Any) -> str:
    """The text of a record from a consumer."""
    value = record.value
    if value is None:
        value = dict(record.headers)[_TEXT]
    text: str = _checked(value) if isinstance(value, dict) else value.decode()
    return text


def texts_of(rows: pa.RecordBatch) -> Iterator[str]:
    """The texts of records as they are stored."""
    if "v" in rows.schema.names:
        kept = [name for name in rows.schema.names if name in ("v", *ADDED)]
        yield from map(_checked, rows.select(kept).to_pylist())
        return
    for value, headers in zip(rows.column("value"), rows.column("headers"), strict=True):
        found = value.as_py() or {h["key"]: h["value"] for h in headers.as_py()}[_TEXT]
        yield found.decode()


def as_history(records: Any) -> list[Record]:
    """The records of a `poll`, in the form of the history."""
    return [
        [record.topic, record.partition, record.offset, text_of(record)]
        for where in sorted(records)
        for record in records[where]
    ]


def require_topics(connection: Connection, names: Iterable[str]) -> None:
    """Raises UnknownTopic for a missing topic. A consumer would wait until one of that name
    exists."""
    for name in names:
        connection.cluster.present_topic(name, linearizable=True)
