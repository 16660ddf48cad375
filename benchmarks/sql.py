"""`txlog.scan` beside `poll_arrow`, and `txlog sql` beside DuckDB on the same rows in Parquet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import txlog
from benchmarks.figures import Figure, Side, at_least, at_most, in_turn, rate, ratio, timed
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.engine.connection import connect
from txlog.sql.session import SqlSession

PARTITIONS = 4
TABLE_ROWS = 250_000
TABLES = 40
ROUNDS = 9
GROUPS = {
    "count and group by a text": "select kind, count(*) as n from {} group by kind",
    "sum and group by a number": (
        "select customer, count(*) as n, sum(amount) as s from {} group by customer"
    ),
}


def run(folder: Path) -> Sequence[Figure]:
    """Rates, and their ratios to the peers in the same rounds."""
    root, parquet = str(folder / "log"), str(folder / "orders.parquet")
    fill(root, parquet, TABLES)
    rows = TABLES * TABLE_ROWS
    read = in_turn({"poll_arrow": _poll_arrow(root, rows), "scan": _scan(root, rows)}, ROUNDS)
    figures = [
        rate("scan to Arrow", read["scan"], rows),
        ratio("scan to Arrow: rate / poll_arrow", read["poll_arrow"], read["scan"], at_least(0.9)),
    ]
    session = SqlSession(connect(root))
    for name, query in GROUPS.items():
        taken = in_turn(
            {
                "txlog sql": _timed(lambda query=query: _by_txlog(session, query), rows),
                "parquet": _timed(lambda query=query: _by_duckdb(parquet, query), rows),
            },
            ROUNDS,
        )
        figures += [
            rate(f"txlog sql: {name}", taken["txlog sql"], rows),
            ratio(
                f"txlog sql: {name}, time / DuckDB on Parquet",
                taken["txlog sql"],
                taken["parquet"],
                at_most(2),
            ),
        ]
    return figures


def fill(root: str, parquet: str, tables: int) -> None:
    """A typed topic, and the same rows in a Parquet file."""
    random = np.random.default_rng(7)
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("customer", pa.int32()),
            ("kind", pa.string()),
            ("amount", pa.float64()),
        ]
    )
    Admin(root, create=True).create_topic("orders", PARTITIONS, schema)
    producer = Producer(root, transactional_id="producer")
    producer.init_transactions()
    kinds = np.array(["new", "paid", "packed", "sent", "returned"])
    with pq.ParquetWriter(parquet, schema) as writer:
        for number in range(tables):
            table = pa.table(
                {
                    "id": np.arange(number * TABLE_ROWS, (number + 1) * TABLE_ROWS),
                    "customer": random.integers(0, 1_000, TABLE_ROWS, dtype=np.int32),
                    "kind": kinds[random.integers(0, len(kinds), TABLE_ROWS)],
                    "amount": np.round(random.gamma(2.0, 20.0, TABLE_ROWS), 2),
                },
                schema=schema,
            )
            writer.write_table(table)
            with producer.transaction():
                producer.send_batch("orders", table, key="customer")
    producer.close()


def _poll_arrow(root: str, rows: int) -> Side:
    def read_all() -> None:
        reading = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        consumer, count = Consumer("orders", root=root, **reading), 0
        while (table := consumer.poll_arrow()) is not None:
            count += table.num_rows
        assert count == rows, f"{count} records of {rows}"

    return lambda: timed(read_all)


def _scan(root: str, rows: int) -> Side:
    def read_all() -> None:
        count = sum(batch.num_rows for batch in txlog.scan("orders", root=root).to_reader())
        assert count == rows, f"{count} records of {rows}"

    return lambda: timed(read_all)


def _timed(query: Callable[[], pa.Table], rows: int) -> Side:
    def run_query() -> None:
        counted = sum(query()["n"].to_pylist())
        assert counted == rows, f"{counted} records of {rows}"

    return lambda: timed(run_query)


def _by_txlog(session: SqlSession, query: str) -> pa.Table:
    with session.run(query.format("orders")) as result:
        return result.read_all()


def _by_duckdb(parquet: str, query: str) -> pa.Table:
    with duckdb.connect(":memory:") as engine:
        return engine.sql(query.format(f"read_parquet('{parquet}')")).to_arrow_table()
