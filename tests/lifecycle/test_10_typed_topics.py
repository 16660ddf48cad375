"""Stage 10: a topic has columns of its own, and its schema grows under stored records."""

import datetime as dt

import pyarrow as pa
import pytest

from tests.lifecycle.log_place import LogPlace
from txlog.errors import IncompatibleSchema, InvalidRecord

FLIGHT = pa.schema(
    [
        pa.field("carrier", pa.string(), nullable=False),
        ("delay", pa.int16()),
        ("departed", pa.timestamp("us", "UTC")),
    ]
)


def test_records_stay_readable_after_schema_evolution(place: LogPlace) -> None:
    topic = place.topic("flights", 2, schema=FLIGHT, config={"key.column": "carrier"})
    departed = dt.datetime(2013, 1, 1, 5, 17, tzinfo=dt.UTC)
    producer = place.producer()
    producer.send(topic, {"carrier": "UA", "delay": 2, "departed": departed})
    producer.flush()
    with pytest.raises(InvalidRecord, match="'delay'"):
        producer.send(topic, {"carrier": "UA", "delay": 40_000})
    wider = FLIGHT.set(1, pa.field("delay", pa.int32())).append(pa.field("gate", pa.string()))
    assert place.admin().evolve_schema(topic, wider) == 1
    table = pa.table({"carrier": ["AA"], "delay": pa.array([40_000], pa.int32()), "gate": ["B6"]})
    place.producer().send_batch(topic, table)
    rows = sorted(place.values(topic), key=lambda row: row["delay"])
    assert rows == [
        {"carrier": "UA", "delay": 2, "departed": departed, "gate": None},
        {"carrier": "AA", "delay": 40_000, "departed": None, "gate": "B6"},
    ]
    with pytest.raises(IncompatibleSchema, match="'gate' .string. is missing"):
        place.admin().evolve_schema(topic, FLIGHT)


def test_poll_arrow_returns_the_newest_columns_for_old_records(place: LogPlace) -> None:
    topic = place.topic("flights", schema=FLIGHT)
    place.producer().send(topic, {"carrier": "UA"}).get()
    place.admin().evolve_schema(topic, FLIGHT.append(pa.field("gate", pa.string())))
    place.producer().send(topic, {"carrier": "AA", "gate": "B6"}).get()
    table = place.consumer(topic).poll_arrow()
    assert table is not None
    assert table.column_names[:4] == ["carrier", "delay", "departed", "gate"]
    assert table["gate"].to_pylist() == [None, "B6"]
