"""The names and columns of the demo's topics."""

from __future__ import annotations

import pyarrow as pa

from examples.demo.flights import FLIGHTS_SCHEMA
from txlog.client.admin import NewTopic

FLIGHTS = "flights"
DELAYS = "delays"
CANCELLATIONS = "cancellations"
HOURLY = "hourly"
TOPICS = (FLIGHTS, DELAYS, CANCELLATIONS, HOURLY)

_INSTANT = pa.timestamp("us", "UTC")
"""Spark's only unit. `flights`, which Spark does not write, has seconds as its source does."""


def _columns(required: dict[str, pa.DataType], optional: dict[str, pa.DataType]) -> pa.Schema:
    fields = [pa.field(name, kind, nullable=False) for name, kind in required.items()]
    return pa.schema([*fields, *(pa.field(name, kind) for name, kind in optional.items())])


_FLIGHT = {"event_time": _INSTANT, "carrier": pa.string(), "flight": pa.int16()}
_ROUTE = {"origin": pa.string(), "dest": pa.string()}

DELAYS_SCHEMA = _columns(
    {**_FLIGHT, **_ROUTE, "delay_minutes": pa.int16(), "delay_class": pa.string()},
    {"tailnum": pa.string(), "arrival_delay_minutes": pa.int16()},
)
CANCELLATIONS_SCHEMA = _columns(
    {**_FLIGHT, **_ROUTE, "sched_dep_time": pa.int16()}, {"tailnum": pa.string()}
)
HOURLY_SCHEMA = _columns(
    {"hour": _INSTANT, "origin": pa.string(), "scheduled": pa.int64(), "departures": pa.int64()},
    {"mean_delay_minutes": pa.float64()},
)


def new_topics() -> list[NewTopic]:
    """The four topics, keyed so that records of one carrier or airport stay in order."""
    by_carrier = {"key.column": "carrier"}
    return [
        NewTopic(FLIGHTS, 4, FLIGHTS_SCHEMA, by_carrier),
        NewTopic(DELAYS, 4, DELAYS_SCHEMA, by_carrier),
        NewTopic(CANCELLATIONS, 2, CANCELLATIONS_SCHEMA, by_carrier),
        NewTopic(HOURLY, 2, HOURLY_SCHEMA, {"key.column": "origin"}),
    ]
