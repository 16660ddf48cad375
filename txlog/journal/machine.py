"""What a replicated state machine must offer to live on a journal.

State is a pure fold of events, and a command is decided against the state just below the slot that
is won: fencing, de-duplication, idempotent recovery and compare-and-set are all such decisions
(docs/design/0001). Implementations must not do I/O, read a clock or draw a random number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from txlog.journal.codec import Json

StateT = TypeVar("StateT")


@dataclass(frozen=True, slots=True)
class Decided:
    """The result of a command. No events: it was done before, and `result` is the earlier
    answer."""

    events: tuple[Any, ...] = ()
    result: Any = None
    once: bool = False
    """Not idempotent: must not be retried when it may already be stored; the caller gets
    OutcomeUnknown instead."""
    settled: bool = False
    """Without events: no later entry changes the answer, so that it needs no look at the tip."""


@dataclass(frozen=True, slots=True)
class Together:
    """Commands whose events are in one entry or not stored at all: each is decided against the
    state after those before it, and the first rejection rejects all. Answer: one for each."""

    parts: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of the state that later snapshots share: its slots and its bytes."""

    first_slot: int
    last_slot: int
    data: bytes


class Machine(Protocol[StateT]):
    """The pure rules of one kind of journal."""

    def initial(self) -> StateT:
        """The state of an empty journal."""

    def decide(self, state: StateT, command: Any) -> Decided:
        """The events that `command` leads to. A rejection is the TxlogError that it raises."""

    def apply(self, state: StateT, event: Any, slot: int) -> StateT:
        """The state after `event`, which is in the entry of `slot`."""

    def close_entry(self, state: StateT, slot: int) -> StateT:
        """The state after the last event of the entry of `slot`."""

    def encode_event(self, event: Any) -> Json:
        """The JSON value of an event."""

    def decode_event(self, value: Json) -> Any:
        """The event of a JSON value. Raises CorruptData."""

    def encode_state(self, state: StateT) -> Mapping[str, Iterable[Json]]:
        """The state as named sections of JSON rows, for a snapshot."""

    def decode_state(self, sections: Mapping[str, list[Json]]) -> StateT:
        """The state of such sections. Raises CorruptData."""

    def unsaved_chunks(self, state: StateT) -> tuple[Chunk, ...]:
        """Shared parts that the state refers to and that may not be in the store yet."""

    def without_unsaved(self, state: StateT) -> StateT:
        """The same state, once those parts are in the store."""


def decided_in(
    machine: Machine[StateT], state: StateT, command: Any, slot: int
) -> tuple[Decided, StateT]:
    """What a command, or several of them together, leads to in the entry of `slot`, and the state
    after its events. Raises the rejection."""
    parts = command.parts if isinstance(command, Together) else (command,)
    found: list[Decided] = []
    for part in parts:
        decided = machine.decide(state, part)
        for event in decided.events:
            state = machine.apply(state, event, slot)
        found.append(decided)
    if not isinstance(command, Together):
        return found[0], state
    events = tuple(event for decided in found for event in decided.events)
    results = [decided.result for decided in found]
    return Decided(events, results, any(decided.once for decided in found)), state


class SimpleMachine:
    """Defaults for a machine whose whole state goes into each snapshot."""

    def close_entry(self, state: Any, slot: int) -> Any:
        """Nothing to do."""
        return state

    def unsaved_chunks(self, state: Any) -> tuple[Chunk, ...]:
        """The state has none."""
        return ()

    def without_unsaved(self, state: Any) -> Any:
        """The state has none."""
        return state
