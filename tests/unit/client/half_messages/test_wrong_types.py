"""Every public method of the clients refuses every argument of a wrong type with a sentence.

Methods are found by inspecting the classes, so a new method is tested, too. Each call returns a
value or raises one of txlog's errors whose message is a sentence; it never raises Python's
TypeError, and a refused call writes nothing.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from tests.unit.client.half_messages.undecided_listener import Undecided
from txlog.client.admin import Admin, NewTopic
from txlog.client.admin.offset_reset import ToEarliest
from txlog.client.consumer.consumer import Consumer
from txlog.client.half_messages.half_message import HalfTransaction, Message
from txlog.client.half_messages.transaction_mq_producer import TransactionMQProducer
from txlog.client.producer.producer import Producer
from txlog.errors import TxlogError, UsageError
from txlog.maintenance.vacuum import Candidates
from txlog.model import OffsetAndMetadata, TopicPartition, TxId

T0 = TopicPartition("t", 0)
CLIENTS = (Producer, Consumer, Admin, TransactionMQProducer)

WRONG: dict[str, Callable[[], object]] = {
    "None": lambda: None,
    "True": lambda: True,
    "5": lambda: 5,
    "-1": lambda: -1,
    "2**70": lambda: 1 << 70,
    "2.5": lambda: 2.5,
    "nan": lambda: math.nan,
    "text": lambda: "no such",
    "empty text": lambda: "",
    "half a surrogate": lambda: "\ud800",
    "bytes": lambda: b"t",
    "object": object,
    "type": lambda: TopicPartition,
    "function": lambda: lambda: None,
    "[]": list,
    "[5]": lambda: [5],
    "['x']": lambda: ["x"],
    "[None]": lambda: [None],
    "[[]]": lambda: [[]],
    "iterator": lambda: iter(["x"]),
    "{}": dict,
    "{'t': 1}": lambda: {"t": 1},
    "{5: 5}": lambda: {5: 5},
    "{partition: text}": lambda: {T0: "x"},
    "{partition: None}": lambda: {T0: None},
    "{partition: -1}": lambda: {T0: -1},
    "{partition: note}": lambda: {T0: OffsetAndMetadata(0, 5)},
    "partition": lambda: TopicPartition("no", 7),
    "partition of no topic": lambda: TopicPartition(5, 0),
    "partition of no number": lambda: TopicPartition("t", "0"),
    "partition of [] ": lambda: ([], 0),
    "triple": lambda: ("t", 0, 1),
    "table": lambda: pa.table({"no": [1]}),
    "topic": lambda: NewTopic("new"),
    "topic of wrong parts": lambda: NewTopic(5, "x", "y", 7),
    "transaction": lambda: TxId(0, 0, 999),
    "transaction of texts": lambda: TxId("a", None, []),
    "message": lambda: Message("t", 5),
    "half transaction": lambda: HalfTransaction("x", TxId(0, 0, 9), "g", ()),
    "half transaction of nothing": lambda: HalfTransaction(None, None, None, None),
}

OF_THE_CALLER = {"on_delivery: type", "on_delivery: function"}
"""These arguments can be called; what they raise is the caller's own error."""

RIGHT: dict[str, object] = {
    "found": Candidates(),
    "plan": [],
    "to": ToEarliest(),
    "where": T0,
    "topic": "t",
    "name": "t",
    "names": ["t"],
    "topics": ["t"],
    "value": b"x",
    "table": pa.table({"value": [b"x"]}),
    "partition": T0,
    "partitions": [T0],
    "offset": 0,
    "offsets": {T0: 0},
    "timestamps": {T0: 0},
    "group": "g",
    "group_id": "g",
    "tx_id": "0-0-0",
    "transaction": "tag",
    "total_count": 3,
    "changes": {"retention.ms": 5},
    "schema": pa.schema([("n", pa.int64())]),
    "message": Message("t", b"x"),
    "half": HalfTransaction("x", TxId(0, 0, 9), "g", ()),
    "listener": Undecided(),
    "root": "memory://no-such-log",
    "producer_group": "g",
    "config": {"root": "memory://no-such-log"},
}


@pytest.fixture
def log(transaction_records: str) -> MemoryLog:
    log = MemoryLog(transaction_records=transaction_records)
    log.admin.create_topic("t", 2)
    log.producer().send("t", b"x", partition=0).get()
    return log


def producer(log: MemoryLog) -> Producer:
    producer = log.producer("p")
    producer.begin_transaction()
    return producer


def consumer(log: MemoryLog) -> Consumer:
    consumer = Consumer(root=log.connection, group_id="c", enable_auto_commit=False)
    consumer.assign([T0])
    return consumer


def half_producer(log: MemoryLog) -> TransactionMQProducer:
    producer = TransactionMQProducer("group", log.connection, listener=Undecided())
    producer.start(check_in_background=False)
    return producer


MAKE: dict[type, Callable[[MemoryLog], Any]] = {
    Producer: producer,
    Consumer: consumer,
    Admin: lambda log: log.admin,
    TransactionMQProducer: half_producer,
}


def methods() -> Iterator[Any]:
    for client in CLIENTS:
        for name, _ in inspect.getmembers(client, inspect.isroutine):
            # A mutated class (docs/dev/mutation.md) has its variants beside its methods.
            if not name.startswith("_") and "mutmut" not in name:
                yield pytest.param(client, name, id=f"{client.__name__}.{name}")


def wrong_arguments(call: Callable[..., object]) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """One wrong argument at a time beside right ones: its description, and the call's arguments."""
    parameters = inspect.signature(call).parameters.values()
    needed = {p.name: RIGHT[p.name] for p in parameters if is_needed(p)}
    for parameter in parameters:
        for what, make in WRONG.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                yield f"*{parameter.name}: {what}", [make()], {}
            else:
                yield f"{parameter.name}: {what}", [], {**needed, parameter.name: make()}


def is_needed(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL


def complaint(log: MemoryLog, call: Callable[[], object]) -> str:
    """What was wrong with the refusal; empty if nothing was."""
    written = len(log.store.writes)
    try:
        answer = call()
        if isinstance(answer, AbstractContextManager):
            with answer:
                pass
        elif isinstance(answer, Iterator):
            list(answer)
    except TxlogError as error:
        if not re.search(r"\w+ .*[.?]$", error.message, re.DOTALL):
            return f"no sentence: {error.message}"
        if isinstance(error, UsageError) and len(log.store.writes) != written:
            return f"something was written before {error!r}"
    except Exception as error:  # noqa: BLE001
        return repr(error)
    return ""


@pytest.mark.parametrize(("client", "name"), list(methods()))
def test_method_with_wrong_argument_raises_only_txlog_errors(
    log: MemoryLog, client: type, name: str
) -> None:
    found = {}
    bound = getattr(MAKE[client](log), name)
    for what, arguments, named in wrong_arguments(bound):
        if what in OF_THE_CALLER:
            continue
        if wrong := complaint(log, lambda: bound(*arguments, **named)):  # noqa: B023
            found[what] = wrong
        bound = getattr(MAKE[client](log), name)
    assert found == {}


@pytest.mark.parametrize("client", CLIENTS)
def test_constructor_with_wrong_argument_raises_only_txlog_errors(
    log: MemoryLog, client: type
) -> None:
    right = {"root": log.connection, "producer_group": "g"}
    parameters = inspect.signature(client).parameters
    needed = {name: value for name, value in right.items() if name in parameters}
    found = {}
    for what, arguments, named in wrong_arguments(client):
        given = {**needed, **named}
        if wrong := complaint(log, lambda: client(*arguments, **given)):  # noqa: B023
            found[what] = wrong
    assert found == {}
