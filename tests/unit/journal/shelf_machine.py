"""A small machine for the journal's tests: a shelf of things, each there once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from txlog.errors import IllegalTransition
from txlog.journal.codec import EventCodec, Json, SectionCodec
from txlog.journal.machine import Decided, SimpleMachine
from txlog.stored import stored


@stored("thing_put", name="name")
@dataclass(frozen=True, slots=True)
class ThingPut:
    """It is on the shelf from here on."""

    name: str


@stored("thing_taken", name="name")
@dataclass(frozen=True, slots=True)
class ThingTaken:
    """It is gone from here on."""

    name: str


@dataclass(frozen=True, slots=True)
class Put:
    """Answer: True if this call did it."""

    name: str


@dataclass(frozen=True, slots=True)
class Take:
    """Raises IllegalTransition if it is not there."""

    name: str


@dataclass(frozen=True, slots=True)
class Look:
    """Answer: whether it is there. Leads to no event."""

    name: str


Shelf: TypeAlias = tuple[str, ...]
_EVENTS = EventCodec(ThingPut, ThingTaken)
_SECTIONS = SectionCodec(thing=str)


class ShelfMachine(SimpleMachine):
    """State: the names, in the order in which they were put."""

    def initial(self) -> Shelf:
        return ()

    def decide(self, state: Shelf, command: Put | Take | Look) -> Decided:
        match command:
            case Look():
                return Decided((), command.name in state)
            case Put():
                is_there = command.name in state
                return Decided((), False) if is_there else Decided((ThingPut(command.name),), True)
            case Take():
                if command.name not in state:
                    raise IllegalTransition(f"{command.name} is not there; put it there first.")
                return Decided((ThingTaken(command.name),), len(state))

    def apply(self, state: Shelf, event: ThingPut | ThingTaken, slot: int) -> Shelf:
        match event:
            case ThingPut():
                return (*state, event.name)
            case ThingTaken():
                return tuple(name for name in state if name != event.name)

    def encode_event(self, event: ThingPut | ThingTaken) -> Json:
        return _EVENTS.encode(event)

    def decode_event(self, value: Json) -> ThingPut | ThingTaken:
        event: ThingPut | ThingTaken = _EVENTS.decode(value)
        return event

    def encode_state(self, state: Shelf) -> Mapping[str, Iterable[Json]]:
        return _SECTIONS.encode({"thing": state})

    def decode_state(self, sections: Mapping[str, list[Json]]) -> Shelf:
        return tuple(_SECTIONS.decode(sections)["thing"])
