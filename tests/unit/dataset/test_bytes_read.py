"""A filter on offset or time that selects 1% of a topic reads at most 3% of its bytes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator

import datafusion
import duckdb
import ibis
import polars
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import txlog
from tests.unit.dataset.orders_log import (
    BATCHES,
    FIRST_MS,
    RECORDS,
    ROWS,
    ReadBytes,
    orders_log,
    stored_bytes,
)
from txlog.dataset.scan import Scan
from txlog.testing.s3_server import S3Server, S3ServerKind

PERCENT = RECORDS // 100
SHARE_MAX = 0.03


@pytest.fixture(scope="module", params=["disk", pytest.param("s3", marks=pytest.mark.s3)])
def source(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Scan, ReadBytes, int]]:
    if request.param == "disk":
        connection, counted = orders_log(str(tmp_path_factory.mktemp("orders") / "log"))
        yield txlog.scan("orders", root=connection), counted, stored_bytes(connection)
        return
    with S3Server.start(S3ServerKind.MINISTACK) as server:
        connection, counted = orders_log(server.url("log"), server.storage_options)
        yield txlog.scan("orders", root=connection), counted, stored_bytes(connection)


FIRST = 100 * ROWS + 17
END = FIRST + BATCHES * ROWS // 100
START_MS = FIRST_MS + RECORDS // 2 * 10
START, UNTIL = (
    dt.datetime.fromtimestamp(ms / 1000, dt.UTC) for ms in (START_MS, START_MS + PERCENT * 10)
)
BOUNDS = {"_offset": (FIRST, END), "_timestamp": (START, UNTIL)}
"""1% of the records, by the middle of the topic."""


def sql_of(name: str) -> str:
    """The condition, for each engine's SQL."""
    low, high = (f"'{b:%Y-%m-%dT%H:%M:%SZ}'" if name == "_timestamp" else b for b in BOUNDS[name])
    return f"select count(id) as n from orders where {name} >= {low} and {name} < {high}"


def by_pyarrow(scan: Scan, name: str) -> int:
    low, high = (pa.scalar(bound, scan.schema.field(name).type) for bound in BOUNDS[name])
    return scan.to_table(filter=(ds.field(name) >= low) & (ds.field(name) < high)).num_rows


def by_duckdb(scan: Scan, name: str) -> int:
    connection = duckdb.connect()
    connection.register("orders", scan)
    return connection.execute(sql_of(name)).fetchall()[0][0]


def by_datafusion(scan: Scan, name: str) -> int:
    context = datafusion.SessionContext()
    context.register_dataset("orders", scan)
    return context.sql(sql_of(name)).to_pydict()["n"][0]


def by_polars(scan: Scan, name: str) -> int:
    with polars.SQLContext(orders=scan.to_polars()) as context:
        return context.execute(sql_of(name)).collect().item()


def by_ibis(scan: Scan, name: str) -> int:
    table, (low, high) = ibis.memtable(scan), BOUNDS[name]
    return table.filter(table[name] >= low, table[name] < high).id.count().to_pyarrow().as_py()


@pytest.mark.filterwarnings("ignore:.*scan_pyarrow_dataset")
@pytest.mark.parametrize("engine", [by_pyarrow, by_duckdb, by_datafusion, by_polars, by_ibis])
@pytest.mark.parametrize("name", BOUNDS)
def test_filter_of_one_percent_reads_at_most_three_percent(
    engine: Callable[[Scan, str], int], name: str, source: tuple[Scan, ReadBytes, int]
) -> None:
    scan, counted, whole = source
    counted.read_bytes = 0
    assert engine(scan, name) == PERCENT
    assert 0 < counted.read_bytes <= SHARE_MAX * whole


def test_bounds_of_the_scan_read_as_little(source: tuple[Scan, ReadBytes, int]) -> None:
    scan, counted, whole = source
    for bounds in (
        {"start_offset": FIRST, "end_offset": END},
        {"start_time": START, "end_time": UNTIL},
    ):
        part = txlog.scan("orders", root=scan._connection, **bounds)
        counted.read_bytes = 0
        assert part.to_table().num_rows == PERCENT
        assert counted.read_bytes <= SHARE_MAX * whole
