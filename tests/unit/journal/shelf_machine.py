"""A small machine for the journal's tests: a shelf of unique things."""

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
    """The thing is on the shelf from this event on."""

    name: str


@stored("thing_taken", name="name")
@dataclass(frozen=True, slots=True)
class ThingTaken:
    """The thing is off the shelf from this event on."""

    name: str


@dataclass(frozen=True, slots=True)
class Put:
    """Put a thing. Answer: True if this call put it."""

    name: str


@dataclass(frozen=True, slots=True)
class Take:
    """Take a thing. Raises IllegalTransition if it is not on the shelf."""

    name: str


@dataclass(frozen=True, slots=True)
class Look:
    """Answer whether the thing is on the shelf. Leads to no event."""

    name: str


Shelf: TypeAlias = tuple[str, ...]
_EVENTS = EventCodec(ThingPut, ThingTaken)
_SECTIONS = SectionCodec(thing=str)


class ShelfMachine(SimpleMachine):
    """The machine; its state is the names in the order in which they were put."""

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
