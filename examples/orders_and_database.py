"""An order in a database and its message: both or neither, even if a process dies.

The program of docs/half-messages.md, as printed there: `python -m examples.orders_and_database`.
"""

import os
import sqlite3

from txlog import (
    Admin,
    Consumer,
    HalfTransaction,
    LocalTransactionState,
    Message,
    TransactionOutcome,
)
from txlog import TransactionMQProducer as Producer

ROOT = os.path.abspath("txlog-data/log")
DATABASE = os.path.abspath("txlog-data/orders.db")


class Orders:
    """The local transaction: a row, whose key is the name of the half transaction."""

    def __init__(self, database: str) -> None:
        self.database = database
        with sqlite3.connect(database) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, item TEXT)")

    def execute_local_transaction(self, half: HalfTransaction, item: str) -> LocalTransactionState:
        with sqlite3.connect(self.database) as connection:
            connection.execute("INSERT INTO orders VALUES (?, ?)", (half.transaction_id, item))
        return LocalTransactionState.COMMIT_MESSAGE

    def check_local_transaction(self, half: HalfTransaction) -> LocalTransactionState:
        with sqlite3.connect(self.database) as connection:
            query = "SELECT 1 FROM orders WHERE id = ?"
            is_there = connection.execute(query, (half.transaction_id,)).fetchone()
        # Not there yet: it may still be running, so do not report a failure.
        return LocalTransactionState.COMMIT_MESSAGE if is_there else LocalTransactionState.UNKNOW


def main() -> None:
    admin = Admin(ROOT, create=True)
    if "placed" not in admin.list_topics():
        admin.create_topic("placed")
    if admin.outcome("order-17") is not TransactionOutcome.COMMITTED:  # Not in an earlier run.
        with Producer("shop", ROOT, listener=Orders(DATABASE)) as producer:
            message = Message("placed", b"a bicycle", key=b"bob")
            producer.send_message_in_transaction(message, "bicycle", transaction_id="order-17")
    print(admin.outcome("order-17"))
    reading = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    with Consumer("placed", root=ROOT, **reading) as consumer:
        for records in consumer.poll().values():
            print(records[0].value, records[0].headers)


if __name__ == "__main__":
    main()
