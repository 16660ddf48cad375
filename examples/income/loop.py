"""Orders -> income per minute, exactly once: consume, compute, produce, in one transaction a batch.

    python -m examples.income.loop --root ./income-data

Each batch of orders is one transaction: a receipt for every order, a row with the new total of
every minute that changed, and the offsets of the orders. A process that is killed at any point
leaves a transaction that is committed or aborted as a whole.

*Recovery of the state after a kill -9.* The totals are only in memory. The next process

1. calls `init_transactions`, which finishes its predecessor's decided transaction, aborts an
   undecided one, and fences the predecessor. From now on LAST-COMMIT of the group, the transaction
   that committed its offsets last, does not change;
2. reads the topic of totals from its start, at read_committed. It has one partition, so its rows
   come in the order in which they were written, and the newest row of a minute is its total. The
   rows of aborted transactions are left out, so the rows end with LAST-COMMIT. `read_to_end`
   guarantees that: if another writer's open transaction blocks the end, an empty `poll` does not
   mean the end, and the totals would be too low;
3. continues with the orders at the group's committed offsets, which LAST-COMMIT has committed
   together with these rows. So the totals contain exactly the orders below the offsets.

`require_one_story` checks this: every row contains its transaction, and every offset has it as its
metadata. If the newest row is not LAST-COMMIT's, or an operator has moved the offsets by hand, the
loop stops with an error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from examples.income.orders import ORDERS, Order
from examples.income.totals import TOTALS_SCHEMA, Totals
from txlog import Admin, Consumer, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from txlog.engine.connection import Connection
from txlog.errors import TxlogError, UnknownGroup

BATCH_ORDERS = 50
WAIT_MS = 200
RECEIPTS_SCHEMA = pa.schema([pa.field("order_id", pa.int64(), nullable=False)])

Batch = tuple[list[Order], dict[TopicPartition, int]]
"""Orders, and the position after them in each partition."""


class Step(StrEnum):
    """Steps of a batch, at which a test may kill the process."""

    READ = "orders read, nothing written"
    HALF = "receipts written, totals not"
    BETWEEN = "between output and offsets"
    BOTH = "output and offsets written"
    DONE = "batch done"


@dataclass(frozen=True, slots=True)
class Job:
    """The log, topics and group of one loop."""

    root: str | Connection
    group: str = "income-loop"
    """Consumer group and transactional id."""
    totals: str = "income"
    receipts: str = "receipts"
    on_step: Callable[[Step], object] = lambda _: None

    def create_topics(self) -> None:
        """Create the two topics that the loop writes, unless they exist."""
        admin = Admin(self.root)
        wanted = {
            self.totals: NewTopic(self.totals, 1, TOTALS_SCHEMA),
            self.receipts: NewTopic(self.receipts, 2, RECEIPTS_SCHEMA),
        }
        admin.create_topics([wanted[name] for name in set(wanted) - set(admin.list_topics())])

    def consumer(self) -> Consumer:
        """A consumer at the group's committed offsets, or at the first order."""
        return Consumer(
            ORDERS,
            root=self.root,
            group_id=self.group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )

    def send_receipts(self, producer: Producer, orders: Sequence[Order]) -> None:
        """Write a receipt for each order; on return they are stored."""
        for order in orders:
            producer.send(self.receipts, {"order_id": order.order_id})
        producer.flush()

    def read_totals(self) -> Totals:
        """The totals in the topic. Raises ReadBlocked if an open transaction blocks the end."""
        found = Totals()
        reading = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        with Consumer(self.totals, root=self.root, **reading) as consumer:
            for record in consumer.read_to_end():
                found.read_back(record.value)
        return found


def batches(consumer: Consumer) -> Iterator[Batch]:
    """Yield the orders in batches, until none is left."""
    while polled := consumer.poll(timeout_ms=WAIT_MS, max_records=BATCH_ORDERS):
        orders = [Order(**record.value) for records in polled.values() for record in records]
        yield orders, {where: consumer.position(where) for where in polled}


def run(job: Job) -> None:
    """Count every order exactly once."""
    job.create_topics()
    with Producer(job.root, transactional_id=job.group) as producer:
        producer.init_transactions()
        totals = job.read_totals()
        require_one_story(job, totals)
        with job.consumer() as consumer:
            for orders, positions in batches(consumer):
                job.on_step(Step.READ)
                with producer.transaction() as tx_id:
                    job.send_receipts(producer, orders)
                    job.on_step(Step.HALF)
                    for minute in totals.add(orders):
                        producer.send(job.totals, totals.row(minute, str(tx_id)))
                    producer.flush()
                    job.on_step(Step.BETWEEN)
                    noted = {w: OffsetAndMetadata(p, str(tx_id)) for w, p in positions.items()}
                    producer.send_offsets_to_transaction(noted, consumer.group_metadata())
                    job.on_step(Step.BOTH)
                job.on_step(Step.DONE)


def require_one_story(job: Job, totals: Totals) -> None:
    """Require that totals and offsets are of the same transaction. Raises ValueError."""
    try:
        group = Admin(job.root).describe_group(job.group)
    except UnknownGroup:
        last, notes = None, {totals.written_by}
    else:
        last = str(group.last_commit) if group.last_commit else None
        notes = {part.metadata for part in group.partitions if part.current_offset is not None}
    if totals.written_by != last or last not in notes or "" in notes:
        raise ValueError(
            f"the newest total in {job.totals!r} is of transaction {totals.written_by}, but the "
            f"last commit of group {job.group!r} is {last}, and its offsets are of "
            f"{sorted(map(str, notes))}: another program wrote there, or moved the group. Start "
            "with new topics and a new group."
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Count the orders, and print the totals."""
    parser = argparse.ArgumentParser(prog="python -m examples.income.loop")
    parser.add_argument("--root", default="./income-data", help="the log: a folder or a URL")
    job = Job(parser.parse_args(arguments).root)
    try:
        run(job)
    except (TxlogError, ValueError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    totals = job.read_totals()
    for minute, total in sorted(totals.of_minute.items()):
        print(f"{minute:%H:%M}  {total.orders:4} orders  {total.income_cents / 100:10,.2f}")


if __name__ == "__main__":
    main()
