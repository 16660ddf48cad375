"""A listener that returns something else than a state: the half transaction stays open."""

from typing import Any, cast

from tests.logs.memory_log import MemoryLog
from txlog.client.half_messages.half_message import (
    HalfTransaction,
    LocalTransactionState,
    Message,
    SendStatus,
)
from txlog.client.half_messages.transaction_mq_producer import TransactionMQProducer
from txlog.model import TransactionOutcome


class Truthful:
    """Returns True for success."""

    def execute_local_transaction(self, half: HalfTransaction, arg: Any) -> LocalTransactionState:
        return cast("LocalTransactionState", True)

    check_local_transaction = cast("Any", lambda self, half: True)


def test_value_that_is_no_state_counts_as_unknown(log: MemoryLog) -> None:
    """The message is stored, and the local transaction has run: an exception would say that
    neither has happened."""
    producer = TransactionMQProducer("g", log.process(), listener=Truthful())
    producer.start(check_in_background=False)
    result = producer.send_message_in_transaction(Message("u", b"x"), transaction_id="order")
    assert result.send_status is SendStatus.SEND_OK
    assert result.local_transaction_state is LocalTransactionState.UNKNOW
    assert "True is not a valid LocalTransactionState" in result.remark
    log.clock.advance(40_000)
    assert producer.check() == 1
    assert producer.statistics().unknown == 2
    assert log.admin.outcome("order") is TransactionOutcome.OPEN
