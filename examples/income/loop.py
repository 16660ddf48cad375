"""Orders -> income per minute, exactly once: consume, compute, produce, in one transaction a batch.

    python -m examples.income.loop --root ./income-data

Each batch of orders is one transaction: a receipt for every order, a row with the new total of
every minute that changed, and the offsets of the orders. A process that is killed, at any moment,
leaves a transaction that is committed whole or aborted whole.

*How the state comes back after a kill -9.* The totals live in memory only. The next process

1. calls `init_transactions`, which finishes what its predecessor had decided, aborts what it had
   not, and bars it from writing ever again. From here on LAST-COMMIT of the group, the transaction
   that committed its offsets last, does not change under our hands;
2. reads the topic of totals from its start, at read_committed. It has one partition, so its rows
   come in the order in which they were written, and the newest row of a minute is its total. What
   an aborted transaction has left there is not handed out, so the rows end where LAST-COMMIT ends.
   `read_to_end` makes sure of that: while another writer's transaction stands before the end, an
   empty `poll` would mean "blocked", and the totals would be too low;
3. goes on with the orders at the group's committed offsets, which LAST-COMMIT has committed
   together with these rows. Rows and offsets therefore tell of the same orders: all that was
   counted lies below the offsets, and nothing above them was.

What step 3 builds on is checked (`require_one_story`): every row bears its transaction, and every
offset has it as its note. If the newest row is not LAST-COMMIT's, or an operator has moved the
offsets by hand, the loop refuses to count on.
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
"""Orders, and the position behind them in each partition."""


class Step(StrEnum):
    """Moments of a batch, at which a test may kill the process."""

    READ = "orders read, nothing written"
    HALF = "receipts written, totals not"
    BETWEEN = "between output and offsets"
    BOTH = "output and offsets written"
    DONE = "batch done"


@dataclass(frozen=True, slots=True)
class Job:
    """Where one loop reads and writes."""

    root: str | Connection
    group: str = "income-loop"
    """Consumer group and transactional id."""
    totals: str = "income"
    receipts: str = "receipts"
    on_step: Callable[[Step], object] = lambda _: None

    def create_topics(self) -> None:
        """The two that are written, unless they are there."""
        admin = Admin(self.root)
        wanted = {
            self.totals: NewTopic(self.totals, 1, TOTALS_SCHEMA),
            self.receipts: NewTopic(self.receipts, 2, RECEIPTS_SCHEMA),
        }
        admin.create_topics([wanted[name] for name in set(wanted) - set(admin.list_topics())])

    def consumer(self) -> Consumer:
        """At the group's committed offsets, or at the first order."""
        return Consumer(
            ORDERS,
            root=self.root,
            group_id=self.group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )

    def send_receipts(self, producer: Producer, orders: Sequence[Order]) -> None:
        """One for each order, written on return."""
        for order in orders:
            producer.send(self.receipts, {"order_id": order.order_id})
        producer.flush()

    def read_totals(self) -> Totals:
        """The totals as the topic has them. Raises ReadBlocked if a transaction is in the way."""
        found = Totals()
        reading = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        with Consumer(self.totals, root=self.root, **reading) as consumer:
            for record in consumer.read_to_end():
                found.read_back(record.value)
        return found


def batches(consumer: Consumer) -> Iterator[Batch]:
    """The orders that are there, until none is left."""
    while polled := consumer.poll(timeout_ms=WAIT_MS, max_records=BATCH_ORDERS):
        orders = [Order(**record.value) for records in polled.values() for record in records]
        yield orders, {where: consumer.position(where) for where in polled}


def run(job: Job) -> None:
    """Count every order that there is, once."""
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
    """Totals and offsets are of the same transactions. Raises ValueError."""
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
    """Count what there is, and print the totals."""
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
