"""Planted bugs in the content of one entry: several commands, or two transactions of a producer.

A simulated producer whose process dies between two entries looks like one whose process dies
between two transactions, so that only direct tests detect most of these.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from tests.simulation.planted_bugs.mutant import Mutant, Patch
from txlog.coordinator.events import CommitTogether
from txlog.engine.transaction_completion import Completion
from txlog.errors import TxlogError
from txlog.groups.machine import CoordinatorMachine
from txlog.journal.machine import Decided, Together
from txlog.journal.replication import replica
from txlog.journal.replication.replica import Replica
from txlog.topic.machine import TopicMachine
from txlog.topic.state import TopicState


def _decided_independently(patch: Patch) -> None:
    """Each part is decided as if it were alone."""
    original = replica.decided_in

    def decided_in(
        machine: Any, state: Any, command: Any, slot: int, records: Any
    ) -> tuple[Decided, Any]:
        if not isinstance(command, Together):
            return original(machine, state, command, slot, records)
        found = [machine.decide(state, part) for part in command.parts]
        events = tuple(event for decided in found for event in decided.events)
        for event in events:
            state = machine.apply(state, event, slot)
        return Decided(events, [decided.result for decided in found]), state

    patch.setattr(replica, "decided_in", decided_in)


def _rejected_independently(patch: Patch) -> None:
    """A refused part does not cancel the other parts."""
    original = replica.decided_in

    def decided_in(
        machine: Any, state: Any, command: Any, slot: int, records: Any
    ) -> tuple[Decided, Any]:
        events: tuple[Any, ...] = ()
        results = []
        for part in command.parts if isinstance(command, Together) else ():
            with suppress(TxlogError):
                decided, state = original(machine, state, part, slot, records)
                events += decided.events
                results.append(decided.result)
        if isinstance(command, Together):
            return Decided(events, results), state
        return original(machine, state, command, slot, records)

    patch.setattr(replica, "decided_in", decided_in)


def _decided_anew(patch: Patch) -> None:
    """A repeat of a decision with its pends and conditions is decided as at the first time."""

    def decide(self: CoordinatorMachine, state: Any, command: CommitTogether) -> Decided:
        events: tuple[Any, ...] = ()
        for part in (*command.others, command.commit):
            found = self.decide(state, part).events
            for event in found:
                state = self.apply(state, event, 0)
            events += found
        return Decided(events)

    patch.setattr(CoordinatorMachine, "_decide_together", decide)


def _without_its_pends(patch: Patch) -> None:
    """A refused pend or condition does not refuse the decision in its entry."""

    def decide(self: CoordinatorMachine, state: Any, command: CommitTogether) -> Decided:
        decided, events = self.decide(state, command.commit), []
        for other in command.others if decided.events else ():
            with suppress(TxlogError):
                found = self.decide(state, other).events
                for event in found:
                    state = self.apply(state, event, 0)
                events += found
        return Decided((*events, *decided.events), decided.result)

    patch.setattr(CoordinatorMachine, "_decide_together", decide)


def _tip_not_read(patch: Patch) -> None:
    """A refusal, or "it was done before", is based on a replica that may be out of date."""
    original = Replica._decide_and_publish

    def publish(self: Replica[Any], commands: list[Any]) -> None:
        self._decide_all(commands, self.layout.entry(self._at.next_slot))
        if any(c.decided is None or not c.decided.events for c in commands):
            for queued in commands:
                queued.finish()
            return
        original(self, commands)

    patch.setattr(Replica, "_decide_and_publish", publish)


def _without_R45(patch: Patch) -> None:
    """A transaction counts as visible as soon as it is decided."""
    original = Completion.__init__

    def init(self: Any, *given: Any, **more: Any) -> None:
        original(self, *given, **more)
        self._markers = None
        self._schedule_next()

    patch.setattr(Completion, "__init__", init)


def _without_R65(patch: Patch) -> None:
    """A boundary may come above an entry whose records are named."""
    for machine in (TopicMachine, CoordinatorMachine):
        patch.setattr(machine, "lowest_named", lambda self, state, default: default)


def _entries_sealed(patch: Patch) -> None:
    """Chunks name entries, so that the rows of a chunk keep no boundary below them."""
    patch.setattr(TopicState, "first_in_entry", lambda self: None)


_RETURNS = "tests/unit/engine/test_commit_returns.py::"
_RECORDS = "tests/unit/topic/test_records_in_entries.py::"
_REPLICA = "tests/unit/journal/replication/test_replica.py::"
_TOGETHER = "tests/unit/journal/test_commands_together.py::"

OF_ENTRIES: Mapping[str, Mutant] = {
    "repeat decided anew (R56)": Mutant(_decided_anew, "copiers", 431),
    "decision without its pends (R56)": Mutant(_without_its_pends, "copiers", 11),
}

BUGS_OF_ENTRIES: Mapping[str, tuple[Callable[[Patch], None], str]] = {
    "grouped commands decided independently": (
        _decided_independently,
        f"{_TOGETHER}test_each_command_is_decided_on_the_state_after_the_previous_ones",
    ),
    "grouped commands rejected independently": (
        _rejected_independently,
        f"{_TOGETHER}test_together_publishes_nothing_if_one_command_is_refused",
    ),
    "rejected without reading the tip": (
        _tip_not_read,
        f"{_REPLICA}test_stale_replica_reads_the_tip_before_refusing",
    ),
    "without R45": (
        _without_R45,
        f"{_RETURNS}test_R45_the_next_decision_comes_after_the_markers",
    ),
    "without R65": (
        _without_R65,
        f"{_RECORDS}test_R65_boundary_stays_below_entries_whose_records_are_named",
    ),
    "rows in entries are sealed (R65)": (
        _entries_sealed,
        f"{_RECORDS}test_R65_filled_window_moves_its_records_into_one_segment",
    ),
}
"""Planted bug -> the function that plants it, and the test that detects it."""
