"""Topics of a world: what their names say of them, and records as texts.

A topic whose name begins with `k` has Kafka's schema, any other one a column `v`; evolved ones have
more. It must not know who writes them.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from txlog.log.schema import KAFKA_SCHEMA
from txlog.testing.simulation.history import Record

TYPED = pa.schema([pa.field("v", pa.string())])


def schema_of(topic: str) -> pa.Schema:
    """The schema that a topic is created with."""
    return KAFKA_SCHEMA if topic.startswith("k") else TYPED


def payload(topic: str, value: str) -> Any:
    """A record's value as producers take it."""
    return value.encode() if topic.startswith("k") else {"v": value}


def text_of(record: Any) -> str:
    """The text of a record that a consumer was given."""
    value = record.value
    text: str = value["v"] if isinstance(value, dict) else value.decode()
    return text


def as_history(records: Any) -> list[Record]:
    """What `poll` answered, as the history keeps it."""
    return [
        [record.topic, record.partition, record.offset, text_of(record)]
        for where in sorted(records)
        for record in records[where]
    ]
