"""The expected records of every topic, recomputed from the CSV with pyarrow alone.

It shares no code with the producer or the jobs, and infers the types of the columns, so that a
wrong type in `flights.py` shows as a difference.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

WATERMARK_DELAY_S = 600
"""The delay of the hourly job's watermark behind the newest flight."""

HOUR_S = 3_600


@dataclass(frozen=True, slots=True)
class Expected:
    """The content of each topic, in any order."""

    flights: pa.Table
    delays: pa.Table
    cancellations: pa.Table
    hourly: pa.Table
    """Only hours that the watermark has passed."""
    hours_open: int
    """Number of origins and hours that the watermark has not passed; they stay in the state."""


def expected_outputs(archive: Path, member: str = "flights.csv") -> Expected:
    """Recompute everything from the zipped CSV."""
    with zipfile.ZipFile(archive) as opened:
        text = pa.BufferReader(opened.read(member))
    nulls = csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    return outputs_of(csv.read_csv(text, convert_options=nulls))


def outputs_of(rows: pa.Table) -> Expected:
    """The expected topics for these rows of the CSV."""
    of_hour = pc.subtract(
        rows["sched_dep_time"], pc.multiply(pc.divide(rows["sched_dep_time"], 100), 100)
    )
    event_time = pc.add(rows["time_hour"], _seconds(pc.multiply(of_hour, 60)))
    flights = rows.append_column("event_time", event_time)
    is_flown = pc.is_valid(flights["dep_time"])
    hourly, hours_open = _hourly(flights)
    return Expected(
        flights,
        _delays(flights.filter(is_flown)),
        _cancellations(flights.filter(pc.invert(is_flown))),
        hourly,
        hours_open,
    )


def _delays(flown: pa.Table) -> pa.Table:
    minutes = flown["dep_delay"]
    cases = pc.make_struct(pc.less(minutes, 0), pc.less(minutes, 15), pc.less(minutes, 60))
    delay_class = pc.case_when(cases, "early", "on time", "late", "very late")
    named = {"dep_delay": "delay_minutes", "arr_delay": "arrival_delay_minutes"}
    columns = ["event_time", "carrier", "flight", "origin", "dest", "tailnum", *named]
    renamed = flown.select(columns).rename_columns([named.get(name, name) for name in columns])
    return renamed.append_column("delay_class", delay_class)


def _cancellations(cancelled: pa.Table) -> pa.Table:
    return cancelled.select(
        ["event_time", "carrier", "flight", "origin", "dest", "tailnum", "sched_dep_time"]
    )


def _hourly(flights: pa.Table) -> tuple[pa.Table, int]:
    hour = pc.floor_temporal(flights["event_time"], unit="hour")
    groups = (
        flights.append_column("hour_start", hour)
        .group_by(["hour_start", "origin"])
        .aggregate([([], "count_all"), ("dep_delay", "count"), ("dep_delay", "mean")])
        .select(["hour_start", "origin", "count_all", "dep_delay_count", "dep_delay_mean"])
        .rename_columns(["hour", "origin", "scheduled", "departures", "mean_delay_minutes"])
    )
    watermark = pc.subtract(pc.max(flights["event_time"]), _seconds(WATERMARK_DELAY_S))
    end = pc.add(groups["hour"], _seconds(HOUR_S))
    closed = groups.filter(pc.less_equal(end, watermark))
    return closed, groups.num_rows - closed.num_rows


def _seconds(count: object) -> object:
    return pc.cast(count, pa.duration("s"))
