"""The Python producer: flights into the log, in transactions of 10,000, some aborted on purpose.

Records are in the log before their transaction is decided, so that readers at read_committed must
leave out those of aborted attempts; the producer then sends the same records again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from examples.demo.topics import FLIGHTS
from txlog.client.producer.producer import Producer

TRANSACTIONAL_ID = "flights-producer"
TRANSACTION_ROWS = 10_000
BATCH_ROWS = 2_500
"""Rows of one `send_batch`: a transaction has several batches in the log before it is decided."""


@dataclass(frozen=True, slots=True)
class Produced:
    """The producer's progress."""

    records: int = 0
    """Committed ones."""
    transactions: int = 0
    """Committed ones."""
    aborted: int = 0
    """Attempts that were aborted on purpose."""


def produce(
    root: str,
    flights: pa.Table,
    *,
    seed: int,
    aborts: int = 4,
    gate: Callable[[Produced], None] = lambda _: None,
    transaction_rows: int = TRANSACTION_ROWS,
    on_progress: Callable[[Produced], None] = lambda _: None,
) -> Produced:
    """Send every flight once, in order. Calls `gate`, which may wait, before each transaction."""
    starts = range(0, flights.num_rows, transaction_rows)
    doomed = set(random.Random(seed).sample(starts, min(aborts, len(starts))))
    done = Produced()
    with Producer(
        root, transactional_id=TRANSACTIONAL_ID, transaction_records="in.log"
    ) as producer:
        producer.init_transactions()
        for start in starts:
            gate(done)
            rows = flights.slice(start, transaction_rows)
            if start in doomed:
                _send(producer, rows)
                producer.abort_transaction()
                done = Produced(done.records, done.transactions, done.aborted + 1)
            _send(producer, rows)
            producer.commit_transaction()
            done = Produced(done.records + rows.num_rows, done.transactions + 1, done.aborted)
            on_progress(done)
    return done


def _send(producer: Producer, rows: pa.Table) -> None:
    """Send the rows; on return they are in the log and not committed."""
    producer.begin_transaction()
    for first in range(0, rows.num_rows, BATCH_ROWS):
        producer.send_batch(FLIGHTS, rows.slice(first, BATCH_ROWS), timestamp="event_time")
