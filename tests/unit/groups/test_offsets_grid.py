"""Every command on a group in every state, with its written outcome (I5, I6, R6).

A word in lower case is the event that the command leads to ("-": none); a capitalised one is the
refusal.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.machine_without_journal import MachineHarness
from txlog.errors import CommitFailed, TxlogError, UnknownGroup, UnstableOffsetCommit
from txlog.groups import state as offsets_state
from txlog.groups.machine import CoordinatorMachine
from txlog.groups.state import (
    UNCHECKED,
    GroupDeleted,
    OffsetsCommitted,
    OffsetsPended,
    OffsetsState,
    Pending,
    PendingApplied,
    PendingOffset,
    PendingReleased,
)
from txlog.model import TopicPartition, TxId

OWN, OTHER = TxId(1, 0, 5), TxId(2, 0, 5)
WHERE = TopicPartition("t", 0)


def at(start: int, end: int, partition: int = 0) -> PendingOffset:
    return PendingOffset("t", "id", partition, start, end)


def pend(tx: TxId, *offsets: PendingOffset, now_ms: int = 1) -> OffsetsPended:
    return OffsetsPended("g", tx, Pending(f"owner of {tx.pid}", 0, offsets, now_ms, 60_000))


COMMANDS: dict[str, Any] = {
    "PEND": pend(OWN, at(5, 9)),
    "PEND AT 3": pend(OWN, at(3, 9)),
    "PEND UNCHECKED": pend(OWN, at(UNCHECKED, 9)),
    "APPLY": PendingApplied("g", OWN, 2),
    "RELEASE": PendingReleased("g", OWN),
    "COMMIT": OffsetsCommitted("g", (at(5, 9),), 2),
    "COMMIT AT 3": OffsetsCommitted("g", (at(3, 9),), 2),
    "COMMIT UNCHECKED": OffsetsCommitted("g", (at(UNCHECKED, 9),), 2),
    "COMMIT NOTHING": OffsetsCommitted("g", (), 2),
    "DELETE": GroupDeleted("g"),
}
COMMITTED = OffsetsCommitted("g", (at(UNCHECKED, 5),), 1)


def group(*commands: Any) -> Callable[[], MachineHarness[OffsetsState]]:
    def build() -> MachineHarness[OffsetsState]:
        harness = MachineHarness(CoordinatorMachine(), lambda state: state.offsets)
        for command in commands:
            harness.run(command)
        return harness

    return build


SITUATIONS: dict[str, Callable[[], MachineHarness[OffsetsState]]] = {
    "unknown": group(),
    "committed": group(COMMITTED),
    "pending": group(COMMITTED, pend(OWN, at(5, 9))),
    "other pending": group(COMMITTED, pend(OTHER, at(5, 9))),
    "other elsewhere": group(COMMITTED, pend(OTHER, at(0, 9, partition=1))),
    "applied": group(COMMITTED, pend(OWN, at(5, 9)), PendingApplied("g", OWN, 2)),
    "released": group(COMMITTED, pend(OWN, at(5, 9)), PendingReleased("g", OWN)),
    "only pending": group(pend(OWN, at(5, 9))),
    "deleted": group(COMMITTED, GroupDeleted("g")),
}

GRID = """
                  PEND      APPLY     RELEASE   COMMIT    DELETE
unknown           pended    -         -         committed UNKNOWN
committed         pended    -         -         committed deleted
pending           -         applied   released  UNSTABLE  UNSTABLE
other pending     UNSTABLE  -         -         UNSTABLE  UNSTABLE
other elsewhere   pended    -         -         committed UNSTABLE
applied           FAILED    -         -         FAILED    deleted
released          pended    -         -         committed deleted
only pending      -         applied   released  UNSTABLE  UNSTABLE
deleted           pended    -         -         committed UNKNOWN

                  PEND AT 3      PEND UNCHECKED COMMIT AT 3    COMMIT UNCHECKED COMMIT NOTHING
unknown           pended         pended         committed      committed        -
committed         FAILED         pended         FAILED         committed        -
pending           FAILED         pended         UNSTABLE       UNSTABLE         -
other pending     UNSTABLE       UNSTABLE       UNSTABLE       UNSTABLE         -
other elsewhere   FAILED         pended         FAILED         committed        -
applied           FAILED         pended         FAILED         committed        -
released          FAILED         pended         FAILED         committed        -
only pending      pended         pended         UNSTABLE       UNSTABLE         -
deleted           pended         pended         committed      committed        -
"""

EVENTS = {
    "pended": offsets_state.OffsetsPended,
    "applied": offsets_state.PendingApplied,
    "released": offsets_state.PendingReleased,
    "committed": offsets_state.OffsetsCommitted,
    "deleted": offsets_state.GroupDeleted,
}
REFUSALS = {"UNSTABLE": UnstableOffsetCommit, "FAILED": CommitFailed, "UNKNOWN": UnknownGroup}
WORDS: dict[type, str] = {kind: word for word, kind in (EVENTS | REFUSALS).items()}


def cells() -> list[tuple[str, str, str]]:
    """(situation, command, outcome) of every cell of the table."""
    found: list[tuple[str, str, str]] = []
    for block in GRID.strip("\n").split("\n\n"):
        head, *rows = block.splitlines()
        commands = in_order(head)
        for row in rows:
            outcomes = zip(commands, row[18:].split(), strict=True)
            found.extend((row[:18].strip(), command, outcome) for command, outcome in outcomes)
    return found


def in_order(head: str) -> list[str]:
    """The commands of a header line; some have names of several words."""
    found: list[str] = []
    rest = head.strip()
    while rest:
        command = max((name for name in COMMANDS if rest.startswith(name)), key=len)
        found.append(command)
        rest = rest[len(command) :].strip()
    return found


def outcome_of(harness: MachineHarness[OffsetsState], command: Any) -> str:
    before, count = harness.state, len(harness.events)
    try:
        harness.run(command)
    except TxlogError as error:
        assert harness.state == before
        return WORDS[type(error)]
    new = harness.events[count:]
    return WORDS[type(new[0])] if new else "-"


def test_the_grid_has_a_cell_for_every_command_in_every_situation() -> None:
    wanted = {(situation, command) for situation in SITUATIONS for command in COMMANDS}
    assert {cell[:2] for cell in cells()} == wanted


@pytest.mark.parametrize(("situation", "command", "expected"), cells())
def test_command_outcome_matches_the_grid(situation: str, command: str, expected: str) -> None:
    assert outcome_of(SITUATIONS[situation](), COMMANDS[command]) == expected


@pytest.mark.parametrize("situation", SITUATIONS)
def test_snapshot_restores_the_whole_state(situation: str) -> None:
    harness = SITUATIONS[situation]()
    assert harness.reopened() == harness.state


@pytest.mark.parametrize(
    ("situation", "position", "last"),
    [("applied", 9, OWN), ("released", 5, None), ("pending", 5, None), ("committed", 5, None)],
)
def test_I5_a_pend_moves_the_group_only_when_it_is_applied(
    situation: str, position: int, last: TxId | None
) -> None:
    found = SITUATIONS[situation]().state.group("g")
    assert found.committed[WHERE].offset == position
    assert found.last_commit == last
