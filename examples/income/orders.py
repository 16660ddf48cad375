"""The orders: generated from a seed, the same on every machine, and sent to a topic.

    python -m examples.income.orders --root ./income-data

One attempt is aborted. Its records are in the topic, too (`transaction_records="in.log"`), so that
readers must leave them out.
"""

from __future__ import annotations

import argparse
import datetime as dt
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from txlog import Admin, Producer, TxlogError

ORDERS = "orders"
COUNT = 1_200
SEED = 7
TRANSACTION_ORDERS = 100
OPENING = dt.datetime(2024, 3, 1, 12, 0, tzinfo=dt.UTC)
CUSTOMERS = ("bob", "erin", "frank", "heidi", "ivan")

SCHEMA = pa.schema(
    [
        pa.field("order_id", pa.int64(), nullable=False),
        pa.field("ordered_at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("customer", pa.string(), nullable=False),
        pa.field("amount_cents", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Order:
    """One order; the fields are the topic's columns."""

    order_id: int
    ordered_at: dt.datetime
    customer: str
    amount_cents: int

    @property
    def minute(self) -> dt.datetime:
        """The minute of the order's income."""
        return self.ordered_at.replace(second=0, microsecond=0)


def made_up_orders(count: int = COUNT, seed: int = SEED) -> list[Order]:
    """Orders in order of time, one a second on average.

    This uses only `Random.random`, whose numbers are the same in every version of Python.
    """
    draw = random.Random(seed).random
    at, orders = OPENING, []
    for order_id in range(count):
        at += dt.timedelta(milliseconds=int(2_000 * draw()))
        customer = CUSTOMERS[int(len(CUSTOMERS) * draw())]
        orders.append(Order(order_id, at, customer, 100 + int(9_900 * draw())))
    return orders


def produce(root: str, orders: Sequence[Order], *, create: bool = True) -> None:
    """Create the log and the topic `orders`, and send the orders in transactions.

    Raises TopicExists if the topic exists.
    """
    Admin(root, create=create).create_topic(ORDERS, 2, SCHEMA, {"key.column": "customer"})
    with Producer(root, transactional_id="shop", transaction_records="in.log") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        _send(producer, orders[:TRANSACTION_ORDERS])
        producer.flush()
        producer.abort_transaction()
        for start in range(0, len(orders), TRANSACTION_ORDERS):
            with producer.transaction():
                _send(producer, orders[start : start + TRANSACTION_ORDERS])


def _send(producer: Producer, orders: Sequence[Order]) -> None:
    for order in orders:
        row = {name: getattr(order, name) for name in SCHEMA.names}
        producer.send(ORDERS, row, timestamp_ms=int(order.ordered_at.timestamp() * 1000))


def main(arguments: Sequence[str] | None = None) -> None:
    """Produce the orders."""
    parser = argparse.ArgumentParser(prog="python -m examples.income.orders")
    parser.add_argument("--root", default="./income-data", help="the log: a folder or a URL")
    parser.add_argument("--count", type=int, default=COUNT, help="how many orders")
    options = parser.parse_args(arguments)
    orders = made_up_orders(options.count)
    try:
        produce(options.root, orders)
    except TxlogError as error:
        sys.exit(str(error))
    income = sum(order.amount_cents for order in orders)
    print(f"{len(orders):,} orders, {income / 100:,.2f} in all, from {orders[0].ordered_at}")


if __name__ == "__main__":
    main()
