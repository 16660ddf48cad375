"""An order in a database and its message: after a kill at any step there are both or neither."""

import signal
import sqlite3
from pathlib import Path

import pytest

from examples.orders_and_database import Orders
from tests.integration import half_message_worker as worker
from tests.logs.empty_log import empty_log
from tests.processes.forked_process import run_forked
from txlog import Admin, Consumer, TransactionMQProducer, TransactionOutcome
from txlog.client.half_messages.dead_letter import pending_letters
from txlog.verify.invariants import check_log


def take_an_order(root: str, database: Path, step: str) -> None:
    """Take an order in a process that is really killed."""
    done = run_forked(worker.main, root, str(database), step)
    assert done.status == -signal.SIGKILL, done.err


def ask(root: str, database: Path) -> int:
    """Another live producer of the group makes one pass over undecided half transactions."""
    producer = TransactionMQProducer(worker.GROUP, root, listener=Orders(str(database)))
    producer.start(check_in_background=False)
    asked = producer.check()
    producer.shutdown()
    return asked


def orders_in(database: Path) -> list[str]:
    with sqlite3.connect(database) as connection:
        return [order for (order,) in connection.execute("SELECT id FROM orders")]


def messages_in(root: str) -> list[bytes]:
    reading = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    with Consumer(worker.TOPIC, root=root, **reading) as consumer:
        return [record.value for records in consumer.poll().values() for record in records]


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A log with the topic of the orders."""
    root = empty_log(tmp_path / "log")
    Admin(root).create_topic(worker.TOPIC)
    return root


@pytest.mark.parametrize("step", worker.STEPS)
def test_killed_shop_has_both_order_and_message_or_neither(
    root: str, tmp_path: Path, step: str
) -> None:
    database = tmp_path / "orders.db"
    take_an_order(root, database, step)
    is_placed = step != worker.BEFORE_LOCAL
    assert orders_in(database) == ([worker.ORDER] if is_placed else [])
    ask(root, database)
    assert messages_in(root) == ([b"a bicycle"] if is_placed else [])
    assert ask(root, database) == (0 if is_placed else 1)
    assert messages_in(root) == ([b"a bicycle"] if is_placed else [])
    letters = pending_letters(Admin(root).connection)
    assert [letter.transaction_id for letter in letters] == ([] if is_placed else [worker.ORDER])
    outcome = Admin(root).outcome(worker.ORDER)
    committed, given_up = TransactionOutcome.COMMITTED, TransactionOutcome.DEAD_LETTERED
    assert outcome is (committed if is_placed else given_up)
    assert check_log(Admin(root).connection) == []
