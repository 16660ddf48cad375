"""A small log with every feature: two kinds of topic, groups, ended and open transactions."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tests.logs.empty_log import empty_log
from tests.logs.memory_log import SEGMENTS
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import Connection, open_connection
from txlog.engine.producer_config import IN_LOG
from txlog.model import TopicPartition, TxId
from txlog.storage.disk.local import LocalStore

FIRST_MS = 1_357_017_300_000
"""2013-01-01T05:15:00Z, the time of the first order; each next order is a second later."""

ORDERS = 10
FLIGHTS = pa.schema(
    [
        ("carrier", pa.string()),
        ("delay", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
        ("raw", pa.binary()),
    ]
)


@dataclass(frozen=True)
class SampleLog:
    """The log that `sample_log` creates."""

    root: Path
    connection: Connection
    open_producer: Producer
    committed: TxId
    aborted: TxId
    opened: TxId

    @property
    def admin(self) -> Admin:
        """An admin client of the log."""
        return Admin(self.connection)


def sample_log(root: Path) -> SampleLog:
    """Create the log. Topic `orders` (Kafka's columns, 2 partitions) has 10 committed records in
    partition 0, then an aborted one and one of an open transaction; partition 1 has one record of
    bytes. Topic `flights` (typed) has 2. Group `billing` has committed offset 4 of `orders`; 2 more
    are pending.
    """
    runtime = Runtime()
    empty_log(root, SEGMENTS)  # Tests damage segments.
    connection = open_connection(LocalStore(root, runtime, durable=False), runtime)
    admin = Admin(connection)
    admin.create_topic("orders", 2)
    admin.create_topic("flights", 1, FLIGHTS, {"key.column": "carrier"})
    producer = Producer(connection, transactional_id="billing-job", transaction_records=IN_LOG)
    producer.init_transactions()
    committed = producer.begin_transaction()
    _send_orders(producer)
    producer.commit_transaction()
    aborted = producer.begin_transaction()
    producer.send("orders", b"aborted", partition=0)
    producer.flush()
    producer.abort_transaction()
    _send_flights(connection)
    _commit_offsets(connection, producer, 4)
    producer.close()  # Waits for the last completion: nothing is written to the log after this.
    open_producer, opened = _open_transaction(connection)
    return SampleLog(root, connection, open_producer, committed, aborted, opened)


def _send_orders(producer: Producer) -> None:
    for number in range(ORDERS):
        producer.send(
            "orders",
            b"order %d" % number,
            key=b"k%d" % (number % 3),
            headers=[("source", b"shop")] if number == 0 else None,
            partition=0,
            timestamp_ms=FIRST_MS + 1000 * number,
        )
    producer.send("orders", b"\xff\x00", partition=1, timestamp_ms=FIRST_MS)


def _send_flights(connection: Connection) -> None:
    producer = Producer(connection)
    at = dt.datetime(2013, 1, 1, 5, 15, tzinfo=dt.UTC)
    rows = [
        {"carrier": "UA", "delay": 2, "at": at, "raw": b"\xfe"},
        {"carrier": None, "delay": None, "at": None, "raw": b"plain"},
    ]
    for row in rows:
        producer.send("flights", row, timestamp_ms=FIRST_MS)
    producer.flush()


def _commit_offsets(connection: Connection, producer: Producer, count: int) -> None:
    """Commit the group's position after `count` records, in a transaction."""
    consumer = Consumer(
        root=connection,
        group_id="billing",
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    first = TopicPartition("orders", 0)
    consumer.assign([first])
    consumer.poll(max_records=count)
    with producer.transaction():
        producer.send_offsets_to_transaction(
            {first: consumer.position(first)}, consumer.group_metadata()
        )


def _open_transaction(connection: Connection) -> tuple[Producer, TxId]:
    producer = Producer(
        connection,
        transactional_id="late-job",
        transaction_timeout_ms=900_000,
        transaction_records=IN_LOG,
    )
    producer.init_transactions()
    opened = producer.begin_transaction()
    producer.send("orders", b"open", partition=0)
    producer.flush()
    consumer = Consumer(
        root=connection,
        group_id="billing",
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    first = TopicPartition("orders", 0)
    consumer.assign([first])
    consumer.poll(max_records=2)
    producer.send_offsets_to_transaction({first: 6}, consumer.group_metadata())
    return producer, opened
