"""The grid: every method of a producer in every state, with its error or the next state."""

import re
from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import answer_lost, unavailable
from txlog.client.producer.producer import Producer
from txlog.client.producer.producer_states import PREDECESSORS, ProducerState, transition
from txlog.errors import (
    IllegalTransition,
    OutcomeUnknown,
    ProducerFenced,
    StoreUnavailable,
    TransactionAborted,
    TxlogError,
)
from txlog.model import TopicPartition

State = ProducerState
Expected: TypeAlias = State | type[TxlogError]

# How a producer enters each state, by real calls.


def uninitialized(log: MemoryLog) -> Producer:
    return Producer(log.connection, transactional_id="a")


def ready(log: MemoryLog) -> Producer:
    return log.producer("a")


def in_transaction(log: MemoryLog) -> Producer:
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send("t", b"x")
    producer.flush()
    return producer


def committing(log: MemoryLog) -> Producer:
    """The decision is stored, but its answer was lost."""
    producer = in_transaction(log)
    log.store.on("create", "transactions/", answer_lost, holding="commit_prepared")
    with pytest.raises(OutcomeUnknown):
        producer.commit_transaction()
    return producer


def aborting(log: MemoryLog) -> Producer:
    """The store did not answer when the producer wrote the abort."""
    producer = in_transaction(log)
    producer.send_offsets_to_transaction(OFFSETS, "g")
    log.store.on("create", "transactions/", unavailable)
    with pytest.raises(StoreUnavailable):
        producer.abort_transaction()
    return producer


def abortable_error(log: MemoryLog) -> Producer:
    """Another process aborted the transaction, and the producer has received the error."""
    producer = log.producer("a")
    tx_id = producer.begin_transaction()
    producer.send("t", b"x")
    producer.flush()
    log.process().coordinator_of("a").abort("a", tx_id)
    producer.send("t", b"y")
    with pytest.raises(TransactionAborted):
        producer.flush()
    return producer


def fatal_error(log: MemoryLog) -> Producer:
    """Another instance has fenced the producer, which has received the error."""
    producer = in_transaction(log)
    log.elsewhere("a")
    with pytest.raises(ProducerFenced):
        producer.commit_transaction()
    return producer


def closed(log: MemoryLog) -> Producer:
    producer = log.producer("a")
    producer.close()
    return producer


ENTER: dict[State, Callable[[MemoryLog], Producer]] = {
    State.UNINITIALIZED: uninitialized,
    State.READY: ready,
    State.IN_TRANSACTION: in_transaction,
    State.COMMITTING: committing,
    State.ABORTING: aborting,
    State.ABORTABLE_ERROR: abortable_error,
    State.FATAL_ERROR: fatal_error,
    State.CLOSED: closed,
}

TABLE = pa.table({"value": [b"z"]})
OFFSETS = {TopicPartition("u", 0): 0}

CALLS: dict[str, Callable[[Producer], object]] = {
    "init_transactions": Producer.init_transactions,
    "begin_transaction": Producer.begin_transaction,
    "send": lambda producer: producer.send("t", b"z"),
    "send_batch": lambda producer: producer.send_batch("t", TABLE),
    "send_offsets": lambda producer: producer.send_offsets_to_transaction(OFFSETS, "g"),
    "flush": Producer.flush,
    "commit_transaction": Producer.commit_transaction,
    "abort_transaction": Producer.abort_transaction,
    "partitions_for": lambda producer: producer.partitions_for("t"),
    "close": Producer.close,
}

ILLEGAL, ABORTED, FENCED = IllegalTransition, TransactionAborted, ProducerFenced
IN = State.IN_TRANSACTION

# Rows are methods, columns are states in the order of `ENTER`. A state is where the method leads;
# an error is what it raises, and then the state stays as it was.
#                      UNINITIALIZED        READY         IN_TRANSACTION COMMITTING
#                      ABORTING             ABORTABLE     FATAL          CLOSED
GRID: dict[str, tuple[Expected, ...]] = {
    "init_transactions": (
        *(State.READY, ILLEGAL, ILLEGAL, ILLEGAL),
        *(ILLEGAL, ILLEGAL, FENCED, ILLEGAL),
    ),
    "begin_transaction": (
        *(ILLEGAL, IN, ILLEGAL, ILLEGAL),
        *(ILLEGAL, ABORTED, FENCED, ILLEGAL),
    ),
    "send": (
        *(ILLEGAL, ILLEGAL, IN, ILLEGAL),
        *(ILLEGAL, ABORTED, FENCED, ILLEGAL),
    ),
    "send_batch": (
        *(ILLEGAL, ILLEGAL, IN, ILLEGAL),
        *(ILLEGAL, ABORTED, FENCED, ILLEGAL),
    ),
    "send_offsets": (
        *(ILLEGAL, ILLEGAL, IN, ILLEGAL),
        *(ILLEGAL, ABORTED, FENCED, ILLEGAL),
    ),
    "flush": (  # The buffer is empty.
        *(State.UNINITIALIZED, State.READY, IN, State.COMMITTING),
        *(State.ABORTING, State.ABORTABLE_ERROR, State.FATAL_ERROR, State.CLOSED),
    ),
    "commit_transaction": (
        *(ILLEGAL, ILLEGAL, State.READY, State.READY),
        *(ILLEGAL, ABORTED, FENCED, ILLEGAL),
    ),
    "abort_transaction": (
        *(ILLEGAL, ILLEGAL, State.READY, ILLEGAL),
        *(State.READY, State.READY, FENCED, ILLEGAL),
    ),
    "partitions_for": (
        *(State.UNINITIALIZED, State.READY, IN, State.COMMITTING),
        *(State.ABORTING, State.ABORTABLE_ERROR, State.FATAL_ERROR, ILLEGAL),
    ),
    "close": (State.CLOSED,) * 8,
}

CELLS = [
    pytest.param(method, state, expected, id=f"{method}-{state}")
    for method, row in GRID.items()
    for state, expected in zip(ENTER, row, strict=True)
]


def test_grid_covers_all_states_and_methods() -> None:
    assert set(ENTER) == set(State)
    assert set(GRID) == set(CALLS)


@pytest.mark.both_ways
@pytest.mark.parametrize("state", State)
def test_every_state_is_reachable_by_real_calls(log: MemoryLog, state: State) -> None:
    assert ENTER[state](log)._status.state is state


@pytest.mark.both_ways
@pytest.mark.parametrize(("method", "state", "expected"), CELLS)
def test_method_leads_to_state_or_error_of_grid(
    log: MemoryLog, method: str, state: State, expected: Expected
) -> None:
    producer = ENTER[state](log)
    if isinstance(expected, State):
        CALLS[method](producer)
        assert producer._status.state is expected
        return
    before = log.objects()
    with pytest.raises(expected) as refused:
        CALLS[method](producer)
    assert re.search(rf"\b{method.removesuffix('_offsets')}", str(refused.value))
    assert type(refused.value) is expected
    assert producer._status.state is state, "a call that may not be made changes nothing"
    assert log.changed_since(before) == []


def test_flush_of_what_an_error_has_left_unwritten_names_itself(log: MemoryLog) -> None:
    producer = log.producer("a")
    tx_id = producer.begin_transaction()
    for name in ("t", "u"):
        producer.send(name, b"x")
    log.process().coordinator_of("a").abort("a", tx_id)
    with pytest.raises(TransactionAborted):
        producer.flush()
    with pytest.raises(TransactionAborted, match=r"^flush\(\) is not possible"):
        producer.flush()


@pytest.mark.both_ways
@pytest.mark.parametrize("state", [State.COMMITTING, State.ABORTING, State.ABORTABLE_ERROR])
def test_producer_recovers_from_every_non_final_state(log: MemoryLog, state: State) -> None:
    producer = ENTER[state](log)
    if state is State.COMMITTING:
        producer.commit_transaction()
    else:
        producer.abort_transaction()
    with producer.transaction():
        producer.send("u", b"after")
    assert log.values("u") == [b"after"]
    assert log.values("t") == ([b"x"] if state is State.COMMITTING else [])
    log.check()


@pytest.mark.both_ways
@pytest.mark.parametrize("method", ["init_transactions", "begin_transaction", "send_offsets"])
@pytest.mark.parametrize("ending", ["commit_transaction", "abort_transaction"])
def test_transactional_methods_are_refused_without_transactional_id(
    log: MemoryLog, method: str, ending: str
) -> None:
    producer = log.producer()
    for name in (method, ending):
        said = rf"^{name}\w*\(\) needs a transactional producer"
        with pytest.raises(IllegalTransition, match=said):
            CALLS[name](producer)
    producer.send("t", b"x").get()
    producer.close()
    for name in ("send", "send_batch"):
        said = rf"^{name}\(\) .* it is closed; open a new producer"
        with pytest.raises(IllegalTransition, match=said):
            CALLS[name](producer)


@pytest.mark.parametrize("target", State)
@pytest.mark.parametrize("current", State)
def test_transitions_outside_predecessor_table_are_refused(current: State, target: State) -> None:
    """The pure table behind the grid refuses any transition that it does not list, with advice."""
    if current in PREDECESSORS[target]:
        assert transition(current, target, "method") is target
    else:
        with pytest.raises(IllegalTransition, match=rf"method\(\) .* state {current}: .+\.$"):
            transition(current, target, "method")


def test_fatal_error_can_only_be_followed_by_close() -> None:
    followers = {state for state in State if State.FATAL_ERROR in PREDECESSORS[state]}
    assert followers == {State.FATAL_ERROR, State.CLOSED}
    assert PREDECESSORS[State.UNINITIALIZED] == frozenset()


def test_init_transactions_of_closed_producer_says_that_it_is_closed(log: MemoryLog) -> None:
    producer = Producer(log.process(), transactional_id="a")
    producer.close()
    said = r"^init_transactions\(\) .* it is closed; open a new producer"
    with pytest.raises(IllegalTransition, match=said):
        producer.init_transactions()
