"""The life of a producer of half messages: starting, ending, and what each method says before."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.logs.memory_log import MemoryLog
from tests.unit.client.half_messages.undecided_listener import Undecided
from txlog.client.admin import Admin
from txlog.client.half_messages.half_message import HalfTransaction, Message
from txlog.client.half_messages.transaction_mq_producer import TransactionMQProducer
from txlog.errors import IllegalTransition, InvalidConfig, InvalidOption
from txlog.model import TxId

HALF = HalfTransaction("order", TxId(0, 0, 0), "g", ())
CALLS: dict[str, Callable[[TransactionMQProducer], object]] = {
    "send_message_in_transaction": lambda p: p.send_message_in_transaction(Message("u", b"x")),
    "send_half": lambda p: p.send_half(Message("u", b"x")),
    "commit": lambda p: p.commit(HALF),
    "rollback": lambda p: p.rollback(HALF),
    "check": lambda p: p.check(),
}


@pytest.mark.parametrize("method", CALLS)
def test_method_is_named_before_the_start_and_after_the_end(log: MemoryLog, method: str) -> None:
    producer = TransactionMQProducer("g", log.process(), listener=Undecided())
    said = rf"^{method}\(\) is not possible"
    with pytest.raises(IllegalTransition, match=f"{said}: call start"):
        CALLS[method](producer)
    producer.start(check_in_background=False)
    producer.shutdown()
    with pytest.raises(IllegalTransition, match=f"{said}: this producer is shut down"):
        CALLS[method](producer)


def test_producer_opens_its_log_with_the_options_that_it_is_given(tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    Admin(root, create=True)
    with pytest.raises(InvalidOption, match="no_such_option"):
        TransactionMQProducer(
            "g", root, listener=Undecided(), storage_options={"no_such_option": 1}
        )


def test_with_statement_starts_a_producer_once_and_ends_it(log: MemoryLog) -> None:
    producer = TransactionMQProducer("g", log.process(), listener=Undecided())
    with producer as entered:
        assert entered is producer
        assert producer.send_half(Message("u", b"x")).producer_group == "g"
    with pytest.raises(IllegalTransition, match="shut down"):
        producer.check()
    started = TransactionMQProducer("g", log.process(), listener=Undecided())
    started.start(check_in_background=False)
    with started:
        assert started.check() == 0


def test_producer_is_started_once_and_with_a_listener_that_stays(log: MemoryLog) -> None:
    producer = TransactionMQProducer("g", log.process())
    with pytest.raises(InvalidConfig, match="needs a transaction listener"):
        producer.start(check_in_background=False)
    producer.set_transaction_listener(Undecided())
    producer.start(check_in_background=False)
    with pytest.raises(IllegalTransition, match="started before"):
        producer.start(check_in_background=False)
    with pytest.raises(IllegalTransition, match="listener cannot change"):
        producer.set_transaction_listener(Undecided())
    producer.shutdown()
    producer.shutdown()
