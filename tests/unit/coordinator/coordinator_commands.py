"""Transactional ids in every state, and commands with defaults for what a test does not give."""

from collections.abc import Callable
from typing import Any

from tests.unit.machine_without_journal import MachineHarness
from txlog.coordinator.events import (
    CommitPrepared,
    InitProducer,
    Participant,
    ParticipantsAdded,
    PrepareAbort,
    Registration,
    TransactionBegun,
    TransactionCompleted,
)
from txlog.coordinator.state import CoordinatorState
from txlog.coordinator.transaction import Transaction
from txlog.groups.machine import CoordinatorMachine
from txlog.model import TxId

Coordinator = MachineHarness[CoordinatorState]

NAME = "x"
PID = 7
USED, OWN, NEXT = (TxId(PID, 3, number) for number in (4, 5, 6))
"""In every state but Empty, USED is complete, OWN is in that state, and NEXT is unknown."""

TOPIC_A = Participant("00000001aaaaaaaa", "a", (0,))
TOPIC_B = Participant("00000002bbbbbbbb", "b", (0,))


def init(instance: str = "i", name: str = NAME, **changes: Any) -> InitProducer:
    """Register an instance at 1,000 ms."""
    values = {"fresh_pid": PID, "timeout_ms": 60_000, "now_ms": 1000}
    return InitProducer(name, instance, **{**values, **changes})


def begin(tx: TxId, name: str = NAME, **changes: Any) -> TransactionBegun:
    """BEGIN, with partition 0 of topic a unless other participants are given."""
    values = {"at_ms": 2000, "timeout_ms": 60_000, "participants": (TOPIC_A,)}
    return TransactionBegun(name, tx, **{**values, **changes})


def add(
    tx: TxId, *participants: Participant, name: str = NAME, **changes: Any
) -> ParticipantsAdded:
    """Add partition 0 of topic b, unless other participants are given."""
    return ParticipantsAdded(name, tx, participants or (TOPIC_B,), **changes)


def commit(tx: TxId, name: str = NAME, **changes: Any) -> CommitPrepared:
    """PREPARE_COMMIT."""
    return CommitPrepared(name, tx, **{"at_ms": 3000, **changes})


def abort(tx: TxId, name: str = NAME, **changes: Any) -> PrepareAbort:
    """PREPARE_ABORT."""
    return PrepareAbort(name, tx, **{"now_ms": 3000, **changes})


def complete(tx: TxId, name: str = NAME) -> TransactionCompleted:
    """COMMITTED or ABORTED."""
    return TransactionCompleted(name, tx, 4000)


def new_coordinator() -> Coordinator:
    """A coordinator without producers."""
    return MachineHarness(CoordinatorMachine(), lambda state: state.transactions)


def registered(epoch: int = 0, **changes: Any) -> Coordinator:
    """A coordinator whose id has that epoch and has begun nothing in it."""
    coordinator = new_coordinator()
    for number in range(epoch + 1):
        answer: Registration = coordinator.run(init(f"i{number}", **changes))
    assert (answer.pid, answer.epoch) == (PID, epoch)
    return coordinator


def _after_used() -> Coordinator:
    coordinator = registered(3)
    for command in (begin(USED), commit(USED), complete(USED)):
        coordinator.run(command)
    return coordinator


def _with(*commands: Any) -> Callable[[], Coordinator]:
    def build() -> Coordinator:
        coordinator = _after_used()
        for command in commands:
            coordinator.run(command)
        return coordinator

    return build


SITUATIONS: dict[str, Callable[[], Coordinator]] = {
    "unknown": new_coordinator,
    "Empty": lambda: registered(3),
    "Ongoing": _with(begin(OWN)),
    "PrepareCommit": _with(begin(OWN), commit(OWN)),
    "PrepareAbort": _with(begin(OWN), abort(OWN)),
    "CompleteCommit": _with(begin(OWN), commit(OWN), complete(OWN)),
    "CompleteAbort": _with(begin(OWN), abort(OWN), complete(OWN)),
    "barred": _with(abort(OWN)),
    "fenced": _with(begin(OWN), init("newer")),
    "timed out": _with(begin(OWN), abort(OWN, fence=True)),
    "superseded": _with(begin(OWN), init("newer"), complete(OWN)),
}
"""`fenced`: a newer instance has epoch 4, and OWN's markers are missing; `superseded`: they are
written.
"""


def transaction(coordinator: Coordinator, tx: TxId, name: str = NAME) -> Transaction:
    """The coordinator's state of an open transaction."""
    return coordinator.state.ids[name].open[tx]
