"""A topic of many small batches, in a log whose reads are counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from txlog.client.admin import Admin
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import Connection, open_connection
from txlog.storage.open import open_store
from txlog.storage.policy.store_wrapper import StoreWrapper
from txlog.storage.store import ByteRange, Bytes, Store
from txlog.topic.read.cut import view_of

PARTITIONS = 2
BATCHES = 200
"""In each partition."""
ROWS = 200
"""Of each batch."""
RECORDS = PARTITIONS * BATCHES * ROWS
FIRST_MS = 1_700_000_000_000
SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.float64()), ("kind", pa.string())])


class ReadBytes(StoreWrapper):
    """Counts the bytes that are read, and the ranges of segments."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.read_bytes = self.ranges = 0

    def get(self, path: str) -> bytes | None:
        data = super().get(path)
        self.read_bytes += len(data or b"")
        return data

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Bytes] | None:
        found = super().get_ranges(path, ranges)
        self.read_bytes += sum(len(one) for one in found or ())
        self.ranges += len(ranges)
        return found


def expected() -> pa.Table:
    """All records: `id` rises with time, and every other batch is in the other partition."""
    ids = np.arange(RECORDS)
    batches = ids // ROWS
    return pa.table(
        {
            "id": ids,
            "amount": (ids % 1_000) / 10,
            "kind": np.array(["new", "paid", "sent"])[ids % 3],
            "_partition": (batches % PARTITIONS).astype(np.int32),
            "_offset": batches // PARTITIONS * ROWS + ids % ROWS,
            "_timestamp": pa.array(ids * 10 + FIRST_MS).cast(pa.timestamp("ms", "UTC")),
        }
    )


def orders_log(
    root: str, storage_options: Mapping[str, object] | None = None
) -> tuple[Connection, ReadBytes]:
    """A log with a topic `orders` of `expected()`, opened by another process than its writer's."""
    runtime = Runtime()
    store = open_store(root, runtime, storage_options)
    writer = open_connection(store, runtime, create=True)
    Admin(writer).create_topic("orders", PARTITIONS, SCHEMA)
    # Each table is stored as one batch in each partition.
    producer = Producer(writer, transactional_id="writer")
    producer.init_transactions()
    records, step = expected().drop_columns(["_offset"]), PARTITIONS * ROWS
    with producer.transaction():
        for first in range(0, RECORDS, step):
            producer.send_batch("orders", records.slice(first, step), partition="_partition")
    producer.close()
    counted = ReadBytes(store)
    connection = open_connection(counted, runtime)
    return connection, counted


def stored_bytes(connection: Connection) -> int:
    """The bytes of the topic's batches."""
    view = view_of(connection.cluster.present_topic("orders", linearizable=True))
    return sum(batch.length for batch in view.batches_from_slot(0))
