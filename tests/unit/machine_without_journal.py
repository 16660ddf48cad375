"""A machine without a journal: each command that leads to events is an entry of its own."""

import json
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Generic, TypeVar

from txlog.journal.codec import Json, json_text
from txlog.journal.machine import Machine

PartT = TypeVar("PartT")


class MachineHarness(Generic[PartT]):
    """Runs the commands of one writer on a machine; every event is also encoded and decoded."""

    def __init__(
        self, machine: Machine[Any], part_of: Callable[[Any], PartT] = lambda whole: whole
    ) -> None:
        """`part_of` takes the part that a test uses from the machine's state."""
        self.machine = machine
        self.whole: Any = machine.initial()
        self.slot = 0
        self.events: list[Any] = []
        self._part_of = part_of

    @property
    def state(self) -> PartT:
        """The state, or the part of it that the test uses."""
        return self._part_of(self.whole)

    @state.setter
    def state(self, changed: PartT) -> None:
        old = self.state
        if old is self.whole:
            self.whole = changed
            return
        (name,) = [
            each.name for each in fields(self.whole) if getattr(self.whole, each.name) is old
        ]
        self.whole = replace(self.whole, **{name: changed})

    def run(self, command: Any) -> Any:
        """Return the answer, or raise the rejection and change nothing."""
        decided = self.machine.decide(self.whole, command)
        for event in decided.events:
            self.apply(event)
        if decided.events:
            self.whole = self.machine.close_entry(self.whole, self.slot)
            self.slot += 1
        return decided.result

    def apply(self, event: Any) -> None:
        """Apply the event as another replica would, which decodes it from JSON."""
        read = self.machine.decode_event(self.machine.encode_event(event))
        assert read == event
        self.whole = self.machine.apply(self.whole, read, self.slot)
        self.events.append(event)

    def reopened(self) -> PartT:
        """The state that a snapshot of this one leads to."""
        return self._part_of(self.machine.decode_state(sections_of(self.machine, self.whole)))


def sections_of(machine: Machine[Any], state: Any) -> dict[str, list[Json]]:
    """The sections of a snapshot, as a process that opens the journal reads them."""
    encoded = machine.encode_state(state)
    return {name: [json.loads(json_text(row)) for row in rows] for name, rows in encoded.items()}
