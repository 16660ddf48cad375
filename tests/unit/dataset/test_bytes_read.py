"""A filter on offset or time that selects 1% of a topic reads at most 3% of its bytes."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
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


def conditions() -> list[tuple[str, object]]:
    """1% of the records, by the middle of the topic: as SQL, and as an expression of pyarrow."""
    offset, count = ds.field("_offset"), BATCHES * ROWS // 100
    first = 100 * ROWS + 17
    stamp = ds.field("_timestamp")
    start_ms = FIRST_MS + RECORDS // 2 * 10
    start, end = (
        pa.scalar(ms, pa.timestamp("ms", "UTC")) for ms in (start_ms, start_ms + PERCENT * 10)
    )
    return [
        (
            f"_offset between {first} and {first + count - 1}",
            (offset >= first) & (offset < first + count),
        ),
        (
            f"_timestamp >= timestamptz '{start}' and _timestamp < timestamptz '{end}'",
            (stamp >= start) & (stamp < end),
        ),
    ]


@pytest.mark.parametrize("number", [0, 1], ids=["offset", "time"])
def test_filter_of_one_percent_reads_at_most_three_percent(
    number: int, source: tuple[Scan, ReadBytes, int]
) -> None:
    scan, counted, whole = source
    sql, expression = conditions()[number]
    connection = duckdb.connect()
    connection.register("orders", scan)
    for read in (
        lambda: scan.to_table(filter=expression).num_rows,
        lambda: connection.execute(f"select count(id) from orders where {sql}").fetchall()[0][0],
    ):
        counted.read_bytes = 0
        assert read() == PERCENT
        assert 0 < counted.read_bytes <= SHARE_MAX * whole


def test_bounds_of_the_scan_read_as_little(source: tuple[Scan, ReadBytes, int]) -> None:
    scan, counted, whole = source
    first = 100 * ROWS + 17
    start_ms = FIRST_MS + RECORDS // 2 * 10
    for bounds in (
        {"start_offset": first, "end_offset": first + BATCHES * ROWS // 100},
        {"start_time": start_ms, "end_time": start_ms + PERCENT * 10},
    ):
        part = txlog.scan("orders", root=scan._connection, **bounds)
        counted.read_bytes = 0
        assert part.to_table().num_rows == PERCENT
        assert counted.read_bytes <= SHARE_MAX * whole
