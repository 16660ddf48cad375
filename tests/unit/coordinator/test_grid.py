"""Every command in every state, with its written outcome: I4, I8, R3, R4, R5.

A word in lower case is the event that the command leads to ("-": none, it was done before); a
capitalised one is the refusal. Rows are the situations of `coordinator_commands.py`, columns are
transactions.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.coordinator.coordinator_commands import (
    NEXT,
    OWN,
    PID,
    SITUATIONS,
    TOPIC_A,
    USED,
    Coordinator,
    abort,
    add,
    begin,
    commit,
    complete,
    init,
)
from txlog.coordinator import events
from txlog.coordinator.events import StagingHorizonAdvanced
from txlog.coordinator.transaction import PREDECESSORS, TransactionState, decision_of, transition
from txlog.errors import (
    ConcurrentTransactions,
    CorruptData,
    IllegalTransition,
    InternalError,
    InvariantViolated,
    ProducerFenced,
    TransactionAborted,
    TxlogError,
)
from txlog.model import Decision, TxId

TRANSACTIONS = {
    "own": OWN,
    "next": NEXT,
    "used": USED,
    "older": TxId(PID, 2, 5),
    "newer": TxId(PID, 4, 0),
    "newest": TxId(PID, 5, 0),
    "foreign": TxId(9, 3, 5),
}
"""`older`: a superseded epoch; `newer`: the epoch of a newer instance, if there is one; `newest`:
an epoch that was never issued; `foreign`: a producer id that the transactional id does not have.
"""

COMMANDS: dict[str, Callable[[TxId], Any]] = {
    "BEGIN": begin,
    "ADD": add,
    "ADD KNOWN": lambda tx: add(tx, TOPIC_A),
    "COMMIT": commit,
    "ABORT": abort,
    "ABORT AND FENCE": lambda tx: abort(tx, fence=True),
    "COMPLETE": complete,
}

GRID = """
BEGIN              own      next     used     older    newer    newest   foreign
  unknown          FENCED   FENCED   FENCED   FENCED   FENCED   FENCED   FENCED
  Empty            begun    begun    begun    FENCED   DAMAGE   DAMAGE   FENCED
  Ongoing          -        ILLEGAL  ILLEGAL  FENCED   DAMAGE   DAMAGE   FENCED
  PrepareCommit    ILLEGAL  WAIT     ILLEGAL  FENCED   DAMAGE   DAMAGE   FENCED
  PrepareAbort     ABORTED  WAIT     ILLEGAL  FENCED   DAMAGE   DAMAGE   FENCED
  CompleteCommit   ILLEGAL  begun    ILLEGAL  FENCED   DAMAGE   DAMAGE   FENCED
  CompleteAbort    ABORTED  begun    ILLEGAL  FENCED   DAMAGE   DAMAGE   FENCED
  barred           ABORTED  begun    ILLEGAL  FENCED   DAMAGE   DAMAGE   FENCED
  fenced           FENCED   FENCED   FENCED   FENCED   WAIT     DAMAGE   FENCED
  timed out        FENCED   FENCED   FENCED   FENCED   WAIT     DAMAGE   FENCED
  superseded       FENCED   FENCED   FENCED   FENCED   begun    DAMAGE   FENCED

ADD                own      next     used     older    newer    newest   foreign
  unknown          FENCED   FENCED   FENCED   FENCED   FENCED   FENCED   FENCED
  Empty            ABORTED  ABORTED  ABORTED  FENCED   DAMAGE   DAMAGE   FENCED
  Ongoing          added    ABORTED  ILLEGAL  FENCED   DAMAGE   DAMAGE   FENCED
  PrepareCommit    ILLEGAL  ABORTED  ILLEGAL  FENCED   DAMAGE   DAMAGE   FENCED
  PrepareAbort     ABORTED  ABORTED  ILLEGAL  FENCED   DAMAGE   DAMAGE   FENCED
  CompleteCommit   ILLEGAL  ABORTED  ILLEGAL  FENCED   DAMAGE   DAMAGE   FENCED
  CompleteAbort    ABORTED  ABORTED  ILLEGAL  FENCED   DAMAGE   DAMAGE   FENCED
  barred           ABORTED  ABORTED  ILLEGAL  FENCED   DAMAGE   DAMAGE   FENCED
  fenced           FENCED   FENCED   FENCED   FENCED   ABORTED  DAMAGE   FENCED
  timed out        FENCED   FENCED   FENCED   FENCED   ABORTED  DAMAGE   FENCED
  superseded       FENCED   FENCED   FENCED   FENCED   ABORTED  DAMAGE   FENCED

ADD KNOWN          own      next     used     older    newer    newest   foreign
  unknown          FENCED   FENCED   FENCED   FENCED   FENCED   FENCED   FENCED
  Empty            ABORTED  ABORTED  ABORTED  FENCED   DAMAGE   DAMAGE   FENCED
  Ongoing          -        ABORTED  ILLEGAL  FENCED   DAMAGE   DAMAGE   FENCED
  PrepareCommit    ILLEGAL  ABORTED  ILLEGAL  FENCED   DAMAGE   DAMAGE   FENCED
  PrepareAbort     ABORTED  ABORTED  ILLEGAL  FENCED   DAMAGE   DAMAGE   FENCED
  CompleteCommit   ILLEGAL  ABORTED  ILLEGAL  FENCED   DAMAGE   DAMAGE   FENCED
  CompleteAbort    ABORTED  ABORTED  ILLEGAL  FENCED   DAMAGE   DAMAGE   FENCED
  barred           ABORTED  ABORTED  ILLEGAL  FENCED   DAMAGE   DAMAGE   FENCED
  fenced           FENCED   FENCED   FENCED   FENCED   ABORTED  DAMAGE   FENCED
  timed out        FENCED   FENCED   FENCED   FENCED   ABORTED  DAMAGE   FENCED
  superseded       FENCED   FENCED   FENCED   FENCED   ABORTED  DAMAGE   FENCED

COMMIT             own      next     used     older    newer    newest   foreign
  unknown          FENCED   FENCED   FENCED   FENCED   FENCED   FENCED   FENCED
  Empty            commit   commit   commit   FENCED   DAMAGE   DAMAGE   FENCED
  Ongoing          commit   ILLEGAL  -        FENCED   DAMAGE   DAMAGE   FENCED
  PrepareCommit    -        WAIT     -        FENCED   DAMAGE   DAMAGE   FENCED
  PrepareAbort     ABORTED  WAIT     -        FENCED   DAMAGE   DAMAGE   FENCED
  CompleteCommit   -        commit   -        FENCED   DAMAGE   DAMAGE   FENCED
  CompleteAbort    ABORTED  commit   -        FENCED   DAMAGE   DAMAGE   FENCED
  barred           ABORTED  commit   -        FENCED   DAMAGE   DAMAGE   FENCED
  fenced           ABORTED  FENCED   -        FENCED   WAIT     DAMAGE   FENCED
  timed out        ABORTED  FENCED   -        FENCED   WAIT     DAMAGE   FENCED
  superseded       ABORTED  FENCED   -        FENCED   commit   DAMAGE   FENCED

ABORT              own      next     used     older    newer    newest   foreign
  unknown          FENCED   FENCED   FENCED   FENCED   FENCED   FENCED   FENCED
  Empty            barred   barred   barred   -        DAMAGE   DAMAGE   -
  Ongoing          abort    barred   ILLEGAL  -        DAMAGE   DAMAGE   -
  PrepareCommit    ILLEGAL  barred   ILLEGAL  -        DAMAGE   DAMAGE   -
  PrepareAbort     -        barred   ILLEGAL  -        DAMAGE   DAMAGE   -
  CompleteCommit   ILLEGAL  barred   ILLEGAL  -        DAMAGE   DAMAGE   -
  CompleteAbort    -        barred   ILLEGAL  -        DAMAGE   DAMAGE   -
  barred           -        barred   ILLEGAL  -        DAMAGE   DAMAGE   -
  fenced           -        -        ILLEGAL  -        barred   DAMAGE   -
  timed out        -        -        ILLEGAL  -        barred   DAMAGE   -
  superseded       -        -        ILLEGAL  -        barred   DAMAGE   -

ABORT AND FENCE    own      next     used     older    newer    newest   foreign
  unknown          FENCED   FENCED   FENCED   FENCED   FENCED   FENCED   FENCED
  Empty            barred   barred   barred   -        DAMAGE   DAMAGE   -
  Ongoing          abort    barred   ILLEGAL  -        DAMAGE   DAMAGE   -
  PrepareCommit    ILLEGAL  barred   ILLEGAL  -        DAMAGE   DAMAGE   -
  PrepareAbort     -        barred   ILLEGAL  -        DAMAGE   DAMAGE   -
  CompleteCommit   ILLEGAL  barred   ILLEGAL  -        DAMAGE   DAMAGE   -
  CompleteAbort    -        barred   ILLEGAL  -        DAMAGE   DAMAGE   -
  barred           -        barred   ILLEGAL  -        DAMAGE   DAMAGE   -
  fenced           -        -        ILLEGAL  -        barred   DAMAGE   -
  timed out        -        -        ILLEGAL  -        barred   DAMAGE   -
  superseded       -        -        ILLEGAL  -        barred   DAMAGE   -

COMPLETE           own      next     used     older    newer    newest   foreign
  unknown          -        -        -        -        -        -        -
  Empty            -        -        -        -        -        -        -
  Ongoing          BUG      -        -        -        -        -        -
  PrepareCommit    complete -        -        -        -        -        -
  PrepareAbort     complete -        -        -        -        -        -
  CompleteCommit   -        -        -        -        -        -        -
  CompleteAbort    -        -        -        -        -        -        -
  barred           -        -        -        -        -        -        -
  fenced           complete -        -        -        -        -        -
  timed out        complete -        -        -        -        -        -
  superseded       -        -        -        -        -        -        -
"""

INITIALISATIONS = """
                   epoch    aborts
  unknown          0        nothing
  Empty            4        nothing
  Ongoing          4        own
  PrepareCommit    WAIT     nothing
  PrepareAbort     WAIT     nothing
  CompleteCommit   4        nothing
  CompleteAbort    4        nothing
  barred           4        nothing
  fenced           WAIT     nothing
  timed out        WAIT     nothing
  superseded       5        nothing
"""

EVENTS = {
    "begun": events.TransactionBegun,
    "added": events.ParticipantsAdded,
    "commit": events.CommitPrepared,
    "abort": events.AbortPrepared,
    "barred": events.TransactionBarred,
    "complete": events.TransactionCompleted,
}
REFUSALS = {
    "FENCED": ProducerFenced,
    "ABORTED": TransactionAborted,
    "ILLEGAL": IllegalTransition,
    "WAIT": ConcurrentTransactions,
    "DAMAGE": CorruptData,
    "BUG": InternalError,
}
WORDS: dict[type, str] = {kind: word for word, kind in (EVENTS | REFUSALS).items()}


def cells() -> list[tuple[str, str, str, str]]:
    """(command, situation, transaction, outcome) of every cell of the table."""
    found: list[tuple[str, str, str, str]] = []
    for block in GRID.strip().split("\n\n"):
        head, *rows = block.splitlines()
        command, columns = head[:18].strip(), head[18:].split()
        for row in rows:
            situation = row[:18].strip()
            outcomes = zip(columns, row[18:].split(), strict=True)
            found.extend((command, situation, column, outcome) for column, outcome in outcomes)
    return found


def outcome_of(coordinator: Coordinator, command: Any) -> str:
    before, count = coordinator.state, len(coordinator.events)
    try:
        coordinator.run(command)
    except TxlogError as error:
        assert coordinator.state == before
        return WORDS[type(error)]
    new = coordinator.events[count:]
    assert len(new) <= 1
    return WORDS[type(new[0])] if new else "-"


def test_the_grid_has_a_cell_for_every_command_in_every_situation() -> None:
    wanted = {(c, s, t) for c in COMMANDS for s in SITUATIONS for t in TRANSACTIONS}
    assert {cell[:3] for cell in cells()} == wanted


@pytest.mark.parametrize(("command", "situation", "transaction", "expected"), cells())
def test_I4_outcome_matches_the_grid_and_no_decision_changes(
    command: str, situation: str, transaction: str, expected: str
) -> None:
    coordinator = SITUATIONS[situation]()
    before = {tx: decision(coordinator, tx) for tx in (USED, OWN)}
    assert outcome_of(coordinator, COMMANDS[command](TRANSACTIONS[transaction])) == expected
    for tx, decided in before.items():
        assert decided in (None, decision(coordinator, tx))


@pytest.mark.parametrize(
    ("command", "situation", "transaction"), [cell[:3] for cell in cells() if cell[3] in EVENTS]
)
def test_repeated_command_writes_no_second_event(
    command: str, situation: str, transaction: str
) -> None:
    """A caller without an answer retries: it is not refused, and no second event is written."""
    coordinator = SITUATIONS[situation]()
    wanted = COMMANDS[command](TRANSACTIONS[transaction])
    coordinator.run(wanted)
    assert outcome_of(coordinator, wanted) == "-"


def decision(coordinator: Coordinator, tx: TxId) -> Decision | None:
    state = coordinator.state
    for _, found in state.open_transactions():
        if found.tx_id == tx:
            return decision_of(found.state)
    known = state.outcome(tx)
    return None if known is None else known.decision


@pytest.mark.parametrize("row", INITIALISATIONS.strip("\n").splitlines()[1:])
@pytest.mark.parametrize("instance", ["fresh", "i3", "newer"])
def test_registration_raises_the_epoch_or_waits(row: str, instance: str) -> None:
    situation, (epoch, aborted) = row[:18].strip(), row[18:].split()
    coordinator = SITUATIONS[situation]()
    if epoch == "WAIT":
        assert outcome_of(coordinator, init(instance)) == "WAIT"
        return
    answer = coordinator.run(init(instance))
    assert (answer.pid, answer.epoch) == (PID, int(epoch))
    assert answer.to_finish == ((OWN,) if aborted == "own" else ())
    assert isinstance(coordinator.events[-1], events.ProducerInitialised)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_staging_horizon_only_rises_in_every_situation(situation: str) -> None:
    coordinator = SITUATIONS[situation]()
    for segment_id, expected in (("02", "02"), ("01", "02"), ("02", "02"), ("03", "03")):
        coordinator.run(StagingHorizonAdvanced(segment_id))
        assert coordinator.state.horizon == expected


@pytest.mark.parametrize("situation", SITUATIONS)
def test_state_round_trips_through_a_snapshot(situation: str) -> None:
    coordinator = SITUATIONS[situation]()
    assert coordinator.reopened() == coordinator.state


STATES = """
                   Empty Ongoing PrepareCommit PrepareAbort CompleteCommit CompleteAbort Dead Fence
Empty              yes   yes     -             -            -              -             yes  -
Ongoing            -     yes     yes           yes          -              -             -    yes
PrepareCommit      -     -       -             -            yes            -             -    -
PrepareAbort       -     -       -             -            -              yes           -    -
CompleteCommit     yes   yes     -             -            -              -             yes  -
CompleteAbort      yes   yes     -             -            -              -             yes  -
Dead               -     -       -             -            -              -             -    -
PrepareEpochFence  -     -       -             yes          -              -             -    -
"""
"""From the row to the column: TransactionMetadata.validPreviousStates of Kafka."""


def pairs() -> list[tuple[TransactionState, TransactionState, bool]]:
    head, *rows = STATES.strip("\n").splitlines()
    names = [name.replace("Fence", "PrepareEpochFence") for name in head.split()]
    return [
        (TransactionState(row.split()[0]), TransactionState(name), cell == "yes")
        for row in rows
        for name, cell in zip(names, row.split()[1:], strict=True)
    ]


def test_every_state_has_a_row_of_predecessors() -> None:
    assert set(PREDECESSORS) == set(TransactionState)
    assert len(pairs()) == len(TransactionState) ** 2


@pytest.mark.parametrize(("current", "target", "legal"), pairs())
def test_I4_transition_is_legal_only_from_a_predecessor(
    current: TransactionState, target: TransactionState, legal: bool
) -> None:
    assert (current in PREDECESSORS[target]) is legal
    if legal:
        assert transition(current, target) is target
    else:
        with pytest.raises(InvariantViolated, match=f"I4.*{current}.*{target}"):
            transition(current, target)


def test_decision_of_returns_the_decision_of_every_state() -> None:
    assert {state.value: decision_of(state) for state in TransactionState} == {
        "Empty": None,
        "Ongoing": None,
        "PrepareCommit": Decision.COMMIT,
        "PrepareAbort": Decision.ABORT,
        "CompleteCommit": Decision.COMMIT,
        "CompleteAbort": Decision.ABORT,
        "Dead": None,
        "PrepareEpochFence": None,
    }
