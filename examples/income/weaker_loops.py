"""The same work as `loop.py`, without transactions: at most once and at least once.

Both process the same orders as `loop.py`. One commits the group's offsets before it writes its
output, the other after.
"""

from __future__ import annotations

from examples.income.loop import Job, Step, batches
from examples.income.orders import Order
from examples.income.totals import Totals
from txlog import Producer


def run_at_most_once(job: Job) -> None:
    """Commit the offsets first: a kill before the output loses the batch."""
    job.create_topics()
    totals = job.read_totals()
    with (
        Producer(job.root, enable_idempotence=False, retries=0) as producer,
        job.consumer() as consumer,
    ):
        for orders, positions in batches(consumer):
            job.on_step(Step.READ)
            consumer.commit(positions)
            job.on_step(Step.BETWEEN)
            _write(job, producer, orders, totals)
            job.on_step(Step.BOTH)
            job.on_step(Step.DONE)


def run_at_least_once(job: Job) -> None:
    """Write the output first: a kill before the offsets repeats the batch."""
    job.create_topics()
    totals = job.read_totals()
    with Producer(job.root, enable_idempotence=False) as producer, job.consumer() as consumer:
        for orders, positions in batches(consumer):
            job.on_step(Step.READ)
            _write(job, producer, orders, totals)
            job.on_step(Step.BETWEEN)
            consumer.commit(positions)
            job.on_step(Step.BOTH)
            job.on_step(Step.DONE)


def _write(job: Job, producer: Producer, orders: list[Order], totals: Totals) -> None:
    job.send_receipts(producer, orders)
    job.on_step(Step.HALF)
    for minute in totals.add(orders):
        producer.send(job.totals, totals.row(minute))
    producer.flush()
