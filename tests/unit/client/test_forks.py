"""Forks of a writing process, as multiprocessing makes them: no append is mistaken for a repeat."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

BEGINNING = """
import os, sys, traceback
from txlog.client.admin import Admin
from txlog.engine.connection import connect
from txlog.client.consumer.consumer import Consumer
from txlog.client.half_messages.half_message import LocalTransactionState, Message
from txlog.client.producer.producer import Producer
from txlog.client.half_messages.transaction_mq_producer import TransactionMQProducer
from txlog.errors import IllegalTransition

connection = connect(sys.argv[1], create=True)
Admin(connection).create_topic("t", 1)

def in_a_fork(call):
    child = os.fork()
    if not child:
        try:
            call()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0

def refused(call, *arguments):
    try:
        call(*arguments)
    except IllegalTransition as error:
        assert "each process" in str(error)
    else:
        raise AssertionError(f"{call} was not refused")

def values():
    consumer = Consumer(
        "t", root=connection, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    return [record.value for found in consumer.poll().values() for record in found]
"""

A_PRODUCER = """
producer = Producer(connection)
producer.send("t", b"before")
producer.flush()
producer.send("t", b"buffered")

def child():
    refused(producer.send, "t", b"of a fork")
    refused(producer.flush)
    refused(producer.send_batch, "t", None)
    producer.close()

in_a_fork(child)
in_a_fork(child)
producer.send("t", b"after")
producer.close()
assert values() == [b"before", b"buffered", b"after"], values()
"""

A_TRANSACTION = """
producer = Producer(connection, transactional_id="x")
refused_ones = [
    producer.commit_transaction, producer.abort_transaction, producer.begin_transaction,
    producer.init_transactions,
]

def child():
    refused(producer.send, "t", b"of a fork")
    refused(producer.send_offsets_to_transaction, {}, "g")
    for call in refused_ones:
        refused(call)
    producer.close()

producer.init_transactions()
producer.begin_transaction()
producer.send("t", b"before")
in_a_fork(child)
producer.commit_transaction()
with producer.transaction():
    producer.send("t", b"after")
producer.close()
assert values() == [b"before", b"after"], values()
"""

ONE_CONNECTION = """
def child():
    with Producer(connection) as producer:
        for number in range(20):
            producer.send("t", b"%d of %d" % (number, os.getpid()))
            producer.flush()
    with Producer(connection, transactional_id=str(os.getpid())) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", b"last of %d" % os.getpid())

child()
in_a_fork(child)
in_a_fork(child)
child()
assert len(set(values())) == 3 * 20 + 3, values()
assert len(values()) == 4 * 20 + 4, values()
"""

HALF_MESSAGES = """
class Commits:
    def execute_local_transaction(self, half, arg):
        return LocalTransactionState.COMMIT_MESSAGE
    check_local_transaction = execute_local_transaction

producer = TransactionMQProducer("g", connection, listener=Commits())
producer.start()
producer.send_message_in_transaction(Message("t", b"before"))

def child():
    refused(producer.send_message_in_transaction, Message("t", b"of a fork"))
    refused(producer.send_half, Message("t", b"of a fork"))
    refused(producer.check)

in_a_fork(child)
producer.send_message_in_transaction(Message("t", b"after"))
producer.shutdown()
assert values() == [b"before", b"after"], values()
"""


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(A_PRODUCER, id="a producer"),
        pytest.param(A_TRANSACTION, id="a transaction"),
        pytest.param(ONE_CONNECTION, id="one connection"),
        pytest.param(HALF_MESSAGES, id="half messages"),
    ],
)
def test_I7_append_in_forked_process_is_not_mistaken_for_a_repeat(
    story: str, tmp_path: Path
) -> None:
    script = tmp_path / "story.py"
    script.write_text(BEGINNING + story)
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", script, tmp_path / "log"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
