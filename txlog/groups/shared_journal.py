"""The journal of one coordinator: its transactions, and the offsets of its consumer groups.

Two machines on one journal, so that a transaction's decision and its effect on a group may be in
one entry. Neither knows the other: each event or command goes to its own machine, and the state has
a part for each. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from txlog.coordinator import machine as coordinator_machine
from txlog.coordinator.events import CoordinatorEvent
from txlog.coordinator.state import CoordinatorState
from txlog.errors import UnsupportedFormat
from txlog.groups import machine as offsets_machine
from txlog.groups.state import OffsetsCommand, OffsetsEvent, OffsetsState
from txlog.journal.codec import EventCodec, Json
from txlog.journal.machine import Decided, SimpleMachine

_EVENTS = EventCodec(*get_args(CoordinatorEvent), *get_args(OffsetsEvent))
_OFFSETS_EVENTS = get_args(OffsetsEvent)
_OFFSETS_COMMANDS = get_args(OffsetsCommand)
SECTIONS: Mapping[str, Any] = {
    **coordinator_machine.SECTIONS.kinds,
    **offsets_machine.SECTIONS.kinds,
}
"""Of a snapshot: those of both."""


@dataclass(frozen=True, slots=True)
class SharedState:
    """Everything that a replica of a coordinator's journal knows."""

    transactions: CoordinatorState = field(default_factory=CoordinatorState)
    offsets: OffsetsState = field(default_factory=OffsetsState)


class SharedMachine(SimpleMachine):
    """See `coordinator/rules.py` and `groups/state.py`."""

    def __init__(self) -> None:
        self._transactions = coordinator_machine.CoordinatorMachine()
        self._offsets = offsets_machine.OffsetsMachine()

    def initial(self) -> SharedState:
        """No transactional ids, and no groups."""
        return SharedState()

    def decide(self, state: SharedState, command: Any) -> Decided:
        """By the rules of the part whose command it is."""
        if isinstance(command, _OFFSETS_COMMANDS):
            return self._offsets.decide(state.offsets, command)
        return self._transactions.decide(state.transactions, command)

    def apply(self, state: SharedState, event: Any, slot: int) -> SharedState:
        """The other part stays as it is."""
        if isinstance(event, _OFFSETS_EVENTS):
            return replace(state, offsets=self._offsets.apply(state.offsets, event, slot))
        after = self._transactions.apply(state.transactions, event, slot)
        return replace(state, transactions=after)

    def encode_event(self, event: object) -> Json:
        """The JSON value of an event."""
        return _EVENTS.encode(event)

    def decode_event(self, value: Json) -> Any:
        """The event of a JSON value. Raises CorruptData."""
        return _EVENTS.decode(value)

    def encode_state(self, state: SharedState) -> Mapping[str, Iterable[Json]]:
        """Sections of a snapshot: those of both parts."""
        return {
            **self._transactions.encode_state(state.transactions),
            **self._offsets.encode_state(state.offsets),
        }

    def decode_state(self, sections: Mapping[str, list[Json]]) -> SharedState:
        """The state of such sections. Raises CorruptData, UnsupportedFormat."""
        if unknown := sorted(set(sections) - set(SECTIONS)):
            raise UnsupportedFormat(f"sections {unknown!r:.80} are not known")
        of_offsets = offsets_machine.SECTIONS.kinds
        return SharedState(
            self._transactions.decode_state(
                {name: rows for name, rows in sections.items() if name not in of_offsets}
            ),
            self._offsets.decode_state(
                {name: rows for name, rows in sections.items() if name in of_offsets}
            ),
        )


def transactions_of(state: SharedState) -> CoordinatorState:
    """The coordinator's part."""
    return state.transactions


def offsets_of(state: SharedState) -> OffsetsState:
    """The groups' part."""
    return state.offsets
