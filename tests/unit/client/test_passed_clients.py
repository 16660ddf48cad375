"""Clients in closures and copies: each process opens its own."""

import copy
import pickle
from collections.abc import Callable

import pytest

from tests.logs.memory_log import MemoryLog
from tests.unit.client.half_messages.undecided_listener import Undecided
from txlog.client.half_messages.transaction_mq_producer import TransactionMQProducer
from txlog.errors import UsageError


@pytest.mark.parametrize("passed", [pickle.dumps, copy.copy, copy.deepcopy])
def test_client_passed_to_another_process_is_refused_with_the_remedy(
    log: MemoryLog, passed: Callable[[object], object]
) -> None:
    """As in a function that Spark's tasks run, which mentions a producer of the driver."""
    clients = [
        log.producer(),
        log.producer("a"),
        log.consumer("u"),
        log.admin,
        log.connection,
        TransactionMQProducer("g", log.connection, listener=Undecided()),
    ]
    for client in clients:
        kind = type(client).__name__
        with pytest.raises(UsageError, match=f"this {kind} cannot be .* open another one there"):
            passed(client)
