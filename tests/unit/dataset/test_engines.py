"""DuckDB, Polars, DataFusion and ibis get the same rows from a scan as from a table in memory, and
read only the batches that may have them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

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
    PARTITIONS,
    ReadBytes,
    expected,
    orders_log,
)
from txlog.dataset.scan import Scan

ALL = PARTITIONS * BATCHES
QUERIES = {
    "select count(*) as n from orders": ALL,
    "select kind, count(*) as n, sum(id) as s from orders group by kind order by kind": ALL,
    "select id from orders where _partition = 1 and _offset between 330 and 469 order by id": 2,
    "select count(*) as n from orders where _partition in (1, 7)": BATCHES,
    "select id from orders where _offset = 401 or _offset = 39999 order by id": 4,
    "select max(id) as n from orders where _offset < 200 and amount > 50": PARTITIONS,
    "select id from orders where not _offset >= 3 order by id": PARTITIONS,
    "select count(*) as n from orders where _timestamp >= '2023-11-14T22:26:39Z'": 1,
    "select count(*) as n from orders where _timestamp < '2023-11-14T22:13:24.010Z'": 3,
    "select id from orders where _offset < 2 and _timestamp > '2023-11-14T22:13:21Z'": 1,
    "select count(*) as n from orders where kind = 'paid' and id <> 4": ALL,
    "select a.id, b.id as other from orders a join orders b on a._offset = b._offset "
    "where a._partition = 0 and b._partition = 1 and a._offset < 3 and b._offset < 3 order by 1": 2,
}
"""A query, and the batches with a row of it."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Scan, ReadBytes]:
    connection, counted = orders_log(str(tmp_path_factory.mktemp("orders") / "log"))
    return txlog.scan("orders", root=connection), counted


@pytest.fixture
def scan(source: tuple[Scan, ReadBytes]) -> Scan:
    return source[0]


@pytest.fixture
def counted(source: tuple[Scan, ReadBytes]) -> Iterator[ReadBytes]:
    source[1].ranges = source[1].read_bytes = 0
    return source[1]


def test_scan_has_exactly_the_records_that_were_written(scan: Scan) -> None:
    wanted = expected()
    found = scan.to_table(wanted.column_names).sort_by("id").cast(wanted.schema)
    assert found.combine_chunks().equals(wanted.combine_chunks())


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def by_duckdb(source: object, query: str) -> pa.Table:
    connection = duckdb.connect()
    connection.register("orders", source)
    return connection.sql(query).to_arrow_table()


def by_datafusion(source: object, query: str) -> pa.Table:
    context = datafusion.SessionContext()
    if isinstance(source, Scan):
        context.register_dataset("orders", source)
    else:
        context.from_arrow(source, "orders")
    return context.sql(query).to_arrow_table()


@pytest.mark.parametrize("engine", [by_duckdb, by_datafusion])
@pytest.mark.parametrize("query", QUERIES)
def test_sql_engine_finds_the_same_rows_and_reads_only_their_batches(
    engine: type, query: str, scan: Scan, counted: ReadBytes
) -> None:
    found = rows(engine(scan, query))
    assert found == rows(engine(expected(), query))
    # What is left of a range at the borders of runs that are divided no more.
    assert counted.ranges <= QUERIES[query] * 1.1 + 1


@pytest.mark.filterwarnings("ignore:.*scan_pyarrow_dataset")
def test_polars_passes_columns_and_filters_on(scan: Scan, counted: ReadBytes) -> None:
    column = polars.col
    queries = {
        2: ((column("_partition") == 1) & column("_offset").is_between(330, 469), ["id"]),
        BATCHES: (column("_partition").is_in([1, 7]), ["id", "amount"]),
        PARTITIONS: ((column("_offset") < 200) & (column("amount") > 50), ["kind"]),
        ALL: (column("kind") == "paid", ["_offset", "kind"]),
    }
    memory = polars.from_arrow(expected()).lazy()
    for batches, (condition, columns) in queries.items():
        counted.ranges = 0
        found = scan.to_polars().filter(condition).select(columns).collect()
        assert found.sort(columns).equals(
            memory.filter(condition).select(columns).collect().sort(columns)
        )
        assert counted.ranges <= batches


def test_ibis_passes_columns_and_filters_on(scan: Scan, counted: ReadBytes) -> None:
    def found(orders: ibis.Table) -> pa.Table:
        wanted = orders.filter((orders._offset < 200) & (orders._partition == 1))
        return wanted.group_by("kind").agg(total=wanted.id.sum()).order_by("kind").to_pyarrow()

    assert found(ibis.memtable(scan)).equals(found(ibis.memtable(expected())))
    assert counted.ranges == 1


def test_limit_ends_the_reading_early(tmp_path: Path) -> None:
    """In a log of its own: what was begun may still be read when the rows are there."""
    connection, counted = orders_log(str(tmp_path / "log"))
    counted.ranges = 0
    assert txlog.scan("orders", root=connection).head(5).num_rows == 5
    assert counted.ranges <= ALL / 2


def test_count_without_a_filter_reads_no_record(scan: Scan, counted: ReadBytes) -> None:
    assert scan.count_rows() == expected().num_rows
    assert scan.to_table(["_topic", "_partition", "_offset"]).num_rows == expected().num_rows
    assert counted.ranges == 0


def test_count_with_a_filter_reads_only_batches_that_it_may_divide(
    scan: Scan, counted: ReadBytes
) -> None:
    offset, partition, stamp = map(ds.field, ("_offset", "_partition", "_timestamp"))
    first = pa.scalar(FIRST_MS + 4_010, pa.timestamp("ms", "UTC"))
    table = ds.dataset(expected())
    for condition, divided in (
        (offset >= 400, 0),
        ((partition == 1) & (offset >= 450) & (offset < 7_777), 0),  # The index has offsets.
        (stamp >= first, 1),
        (~(partition == 1), 0),
        ((ds.field("amount") > 50) & (offset < 200), PARTITIONS),
    ):
        counted.ranges = 0
        assert scan.count_rows(condition) == table.count_rows(filter=condition)
        assert scan.filter(condition).count_rows() == table.count_rows(filter=condition)
        # And the few beside them that are not told apart.
        assert 2 * divided <= counted.ranges <= 8 * divided
