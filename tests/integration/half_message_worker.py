"""A shop that takes one order and dies at a step of it: `python -m ... ROOT DATABASE STEP`."""

import os
import signal
import sys
from collections.abc import Callable
from functools import partial

from examples.orders_and_database import Orders
from txlog import HalfTransaction, LocalTransactionState, Message, TransactionMQProducer
from txlog.coordinator.coordinator import Coordinator

GROUP, TOPIC, ORDER = "shop", "placed", "order-17"

BEFORE_LOCAL = "before the local transaction"
AFTER_LOCAL = "between the local transaction and its answer"
BEFORE_DECISION = "before the decision"
AFTER_DECISION = "after the decision"
AT_THE_END = "at the end"
STEPS = (BEFORE_LOCAL, AFTER_LOCAL, BEFORE_DECISION, AFTER_DECISION, AT_THE_END)


def die() -> None:
    """Die as in a power failure."""
    os.kill(os.getpid(), signal.SIGKILL)


class MortalOrders(Orders):
    """Dies before or after it has written the row to the database."""

    def __init__(self, database: str, step: str) -> None:
        super().__init__(database)
        self.step = step

    def execute_local_transaction(self, half: HalfTransaction, item: str) -> LocalTransactionState:
        if self.step == BEFORE_LOCAL:
            die()
        state = super().execute_local_transaction(half, item)
        if self.step == AFTER_LOCAL:
            die()
        return state


def dying(call: Callable[..., None], step: str, *arguments: object, **options: object) -> None:
    """PREPARE_COMMIT, with death just before or just after it."""
    if step == BEFORE_DECISION:
        die()
    call(*arguments, **options)
    if step == AFTER_DECISION:
        die()


def main(root: str, database: str, step: str) -> None:
    """Take the order."""
    producer = TransactionMQProducer(
        GROUP,
        root,
        listener=MortalOrders(database, step),
        transaction_timeout_ms=0,
        transaction_check_interval_ms=1,
        transaction_check_max=1,
    )
    producer.start(check_in_background=False)
    if step in (BEFORE_DECISION, AFTER_DECISION):
        prepare = Coordinator.prepare_commit
        Coordinator.prepare_commit = lambda self, *a, **o: dying(  # type: ignore[method-assign]
            partial(prepare, self), step, *a, **o
        )
    message = Message(TOPIC, b"a bicycle", b"bob")
    producer.send_message_in_transaction(message, "bicycle", transaction_id=ORDER)
    die()


if __name__ == "__main__":
    main(*sys.argv[1:])
