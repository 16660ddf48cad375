"""A machine without a journal: each command that leads to events is an entry of its own."""

from typing import Any, Generic

from txlog.journal.machine import Machine, StateT


class Fold(Generic[StateT]):
    """What a journal with one writer leads to. Every event is also written and read back."""

    def __init__(self, machine: Machine[StateT]) -> None:
        self.machine = machine
        self.state: StateT = machine.initial()
        self.slot = 0
        self.events: list[Any] = []

    def run(self, command: Any) -> Any:
        """The answer; raises the rejection, and then nothing has changed."""
        decided = self.machine.decide(self.state, command)
        for event in decided.events:
            self.apply(event)
        if decided.events:
            self.state = self.machine.close_entry(self.state, self.slot)
            self.slot += 1
        return decided.result

    def apply(self, event: Any) -> None:
        """As another replica would, which has the event from its JSON."""
        read = self.machine.decode_event(self.machine.encode_event(event))
        assert read == event
        self.state = self.machine.apply(self.state, read, self.slot)
        self.events.append(event)

    def reopened(self) -> StateT:
        """The state that a snapshot of this one leads to."""
        sections = {
            name: list(rows) for name, rows in self.machine.encode_state(self.state).items()
        }
        return self.machine.decode_state(sections)
