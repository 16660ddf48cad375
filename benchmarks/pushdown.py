"""`python -m benchmarks.pushdown`: the batches and bytes that twelve queries read in each engine.

It prints the table of docs/sql.md. The counts depend on the engines' versions, not on the machine.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import datafusion
import duckdb
import ibis
import numpy as np
import polars
import pyarrow as pa

import txlog
from txlog.client.admin import Admin
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.dataset.scan import Scan
from txlog.engine.connection import open_connection
from txlog.storage.open import open_store
from txlog.storage.policy.store_wrapper import StoreWrapper
from txlog.storage.store import ByteRange, Bytes, Store

PARTITIONS = 4
BATCHES = 100
"""In each partition."""
ROWS = 1_000
"""Of a batch: 10 seconds of records."""
FIRST_MS = 1_357_000_000_000

QUERIES: dict[str, Callable[[ibis.Table], ibis.Table]] = {
    "select * from orders": lambda t: t,
    "select count(*) from orders": lambda t: t.count().as_table(),
    "select kind, count(*), sum(id) from orders group by kind": lambda t: t.group_by("kind").agg(
        n=t.count(), s=t.id.sum()
    ),
    "select id from orders where _partition = 1 and _offset >= 33000 and _offset < 34000": (
        lambda t: t.filter(t._partition == 1, t._offset >= 33000, t._offset < 34000).select("id")
    ),
    "select id from orders where _partition in (0, 1)": lambda t: t.filter(
        t._partition.isin([0, 1])
    ).select("id"),
    "select id from orders where _offset < 1000 or _offset >= 99000": lambda t: t.filter(
        (t._offset < 1000) | (t._offset >= 99000)
    ).select("id"),
    "select count(id) from orders where _timestamp >= '2013-01-01T00:43:00Z'": lambda t: t.filter(
        t._timestamp >= ibis.timestamp("2013-01-01T00:43:00Z")
    ).agg(n=t.id.count()),
    "select max(id) from orders where _offset >= 50000 and kind = 'paid'": lambda t: t.filter(
        t._offset >= 50000, t.kind == "paid"
    ).agg(n=t.id.max()),
    "select id from orders where not _offset >= 5 and amount is not null": lambda t: t.filter(
        ~(t._offset >= 5), t.amount.notnull()
    ).select("id"),
    "select a.id from orders a join orders b using (id) where a._offset < 1 and b._partition = 0": (
        lambda t: t.filter(t._offset < 1).join(t.filter(t._partition == 0), "id").select("id")
    ),
    "select id from orders where amount > 99": lambda t: t.filter(t.amount > 99).select("id"),
    "select count(id) from orders where _topic = 'payments'": lambda t: t.filter(
        t._topic == "payments"
    ).agg(n=t.id.count()),
}
"""Each in SQL, and as an expression of ibis."""


class ReadCounts(StoreWrapper):
    """Counts the ranges and bytes that are read."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.ranges = self.read_bytes = 0

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Bytes] | None:
        """See Store.get_ranges."""
        self.ranges += len(ranges)
        self.read_bytes += sum(one.length for one in ranges)
        return super().get_ranges(path, ranges)


def by_duckdb(scan: Scan, query: str) -> list[tuple[object, ...]]:
    """The rows of a query."""
    engine = duckdb.connect()
    engine.register("orders", scan)
    return sorted(engine.sql(query).fetchall())


def by_datafusion(scan: Scan, query: str) -> list[tuple[object, ...]]:
    """The rows of a query."""
    context = datafusion.SessionContext()
    context.register_dataset("orders", scan)
    return rows_of(context.sql(query).to_arrow_table())


def by_ibis(scan: Scan, query: str) -> list[tuple[object, ...]]:
    """The rows of a query, as DuckDB finds them for ibis."""
    return rows_of(QUERIES[query](ibis.memtable(scan)).to_pyarrow())


def by_polars(scan: Scan, query: str) -> list[tuple[object, ...]]:
    """The rows of a query."""
    with polars.SQLContext(orders=scan.to_polars()) as context:
        return rows_of(context.execute(query).collect().to_arrow())


def rows_of(table: pa.Table) -> list[tuple[object, ...]]:
    """In an order that does not depend on the engine."""
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


ENGINES: dict[str, Callable[[Scan, str], list[tuple[object, ...]]]] = {
    f"DuckDB {duckdb.__version__}": by_duckdb,
    f"DataFusion {datafusion.__version__}": by_datafusion,
    f"Polars {polars.__version__}": by_polars,
    f"ibis {ibis.__version__}": by_ibis,
}


def fill(root: str) -> None:
    """A topic whose partitions have records of all times."""
    schema = pa.schema([("id", pa.int64()), ("amount", pa.float64()), ("kind", pa.string())])
    Admin(root, create=True).create_topic("orders", PARTITIONS, schema)
    producer = Producer(root, transactional_id="producer")
    producer.init_transactions()
    with producer.transaction():
        for number in range(BATCHES):
            ids = np.arange(number * PARTITIONS * ROWS, (number + 1) * PARTITIONS * ROWS)
            table = pa.table(
                {
                    "id": ids,
                    "amount": ids % 1_000 / 10,
                    "kind": np.array(["new", "paid", "sent"])[ids % 3],
                    "_partition": (ids % PARTITIONS).astype(np.int32),
                    "_timestamp": pa.array(FIRST_MS + ids // PARTITIONS * 10).cast(
                        pa.timestamp("ms", "UTC")
                    ),
                }
            )
            producer.send_batch("orders", table, partition="_partition")
    producer.close()


def counted(root: str) -> Iterable[str]:
    """The lines of the table."""
    runtime = Runtime()
    store = ReadCounts(open_store(root, runtime))
    scan = txlog.scan("orders", root=open_connection(store, runtime))
    scan.to_table()
    whole = store.read_bytes
    yield f"| query | {' | '.join(ENGINES)} |"
    yield f"|---|{'---|' * len(ENGINES)}"
    for query in QUERIES:
        cells, found = [], []
        for engine in ENGINES.values():
            store.ranges = store.read_bytes = 0
            found.append(engine(scan, query))
            cells.append(f"{store.ranges}, {store.read_bytes / whole:.1%}")
        assert all(rows == found[0] for rows in found), query
        yield f"| `{query}` | {' | '.join(cells)} |"


def table(folder: Path) -> str:
    """The table, of a log that is made in this folder."""
    root = str(folder / "log")
    fill(root)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Polars calls its function for datasets unstable.
        return "\n".join(counted(root))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(table(Path(place)))
