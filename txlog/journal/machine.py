"""What a replicated state machine must offer to live on a journal, and how stored events reach it.

Each event leads from one state to the next, and a command is decided against the state just below
the slot that is won: fencing, de-duplication, idempotent recovery and compare-and-set are all such
decisions (docs/design/0001). Machines must not do I/O, read a clock or draw a random number. The
functions at the end guard I15 for content: a checksum detects accidents, but an object may also be
forged, or be written by a faulty program. An event or a snapshot that its machine cannot accept is
CorruptData that names the object, never another error. They must not know what events mean.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from txlog.errors import (
    CorruptData,
    InvariantViolated,
    TxlogError,
    UnsupportedFormat,
    UsageError,
)
from txlog.journal.codec import Json
from txlog.journal.entry import RECORDS_START, Entry, EntryRecords, not_understood, require_own
from txlog.journal.snapshot import SnapshotHead, decode_snapshot, snapshot_release
from txlog.layout import JournalLayout, parse_number
from txlog.storage.store import ByteRange

StateT = TypeVar("StateT")


@dataclass(frozen=True, slots=True)
class Decided:
    """The result of a command. Without events the command was done before, and `result` is the
    result that it had then."""

    events: tuple[Any, ...] = ()
    result: Any = None
    once: bool = False
    """Not idempotent: must not be retried when it may already be stored; the caller gets
    OutcomeUnknown instead."""
    settled: bool = False
    """Without events: no later entry can change the result, so the newest state is not needed."""


@dataclass(frozen=True, slots=True)
class Together:
    """Commands whose events are in one entry or not stored at all: each is decided against the
    state after those before it, and the first rejection rejects all. The result is a list of their
    results."""

    parts: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of the state that later snapshots share: its slots and its bytes."""

    first_slot: int
    last_slot: int
    data: bytes


class Machine(Protocol[StateT]):
    """The pure rules of one kind of journal."""

    @property
    def rows_max(self) -> Mapping[str, int]:
        """Section of a snapshot -> the most rows that it can have; other sections have no limit but
        the size of a snapshot."""

    def initial(self) -> StateT:
        """The state of an empty journal."""

    def decide(self, state: StateT, command: Any) -> Decided:
        """The events that `command` leads to. A rejection is the TxlogError that it raises."""

    def apply(self, state: StateT, event: Any, slot: int) -> StateT:
        """The state after `event`, which is in the entry of `slot`."""

    def close_entry(self, state: StateT, slot: int) -> StateT:
        """The state after the last event of the entry of `slot`."""

    def place(self, event: Any, records: EntryRecords) -> Any:
        """A decided event as its entry has it: records that it brings along are added to
        `records`, and it names their places."""

    def places(self, event: Any) -> Iterable[tuple[str, ByteRange]]:
        """The records in entries that the event names: each with its entry's object."""

    def lowest_named(self, state: StateT, default: int) -> int:
        """The lowest slot whose entry holds records that the state names, else `default`: no
        boundary may be above it (R65)."""

    def encode_event(self, event: Any) -> Json:
        """The JSON value of an event."""

    def decode_event(self, value: Json) -> Any:
        """The event of a JSON value. Raises CorruptData."""

    def encode_state(self, state: StateT) -> Mapping[str, Iterable[Json]]:
        """The state as named sections of JSON rows, for a snapshot."""

    def decode_state(self, sections: Mapping[str, list[Json]]) -> StateT:
        """The state of such sections. Raises CorruptData."""

    def require_reachable(self, state: StateT, slot: int) -> None:
        """Raises CorruptData if no entries up to `slot` can lead to a decoded state."""

    def unsaved_chunks(self, state: StateT) -> tuple[Chunk, ...]:
        """Shared parts that the state refers to and that may not be in the store yet."""

    def without_unsaved(self, state: StateT) -> StateT:
        """The same state, once those parts are in the store."""


def decided_in(
    machine: Machine[StateT], state: StateT, command: Any, slot: int, records: EntryRecords
) -> tuple[Decided, StateT]:
    """The result of a command, or of several together, in the entry of `slot`, and the state after
    its events. What the events bring along is added to `records`. Raises the rejection."""
    parts = command.parts if isinstance(command, Together) else (command,)
    found: list[Decided] = []
    length = len(records.data)
    # A rejection ends the loop, and no event of an earlier part is stored: all or nothing.
    try:
        for part in parts:
            decided = machine.decide(state, part)
            placed = tuple(machine.place(event, records) for event in decided.events)
            for event in placed:
                state = machine.apply(state, event, slot)
            found.append(Decided(placed, decided.result, decided.once, decided.settled))
    except TxlogError:
        del records.data[length:]
        raise
    if not isinstance(command, Together):
        return found[0], state
    events = tuple(event for decided in found for event in decided.events)
    results = [decided.result for decided in found]
    return Decided(events, results, any(decided.once for decided in found)), state


class SimpleMachine:
    """Defaults for a machine whose whole state goes into each snapshot."""

    @property
    def rows_max(self) -> Mapping[str, int]:
        """No section has a limit."""
        return {}

    def place(self, event: Any, records: EntryRecords) -> Any:
        """Events bring no records along."""
        return event

    def places(self, event: Any) -> Iterable[tuple[str, ByteRange]]:
        """No event names any."""
        return ()

    def lowest_named(self, state: Any, default: int) -> int:
        """No entry holds records."""
        return default

    def close_entry(self, state: Any, slot: int) -> Any:
        """Nothing to do."""
        return state

    def require_reachable(self, state: Any, slot: int) -> None:
        """Nothing in the state depends on the number of entries."""

    def unsaved_chunks(self, state: Any) -> tuple[Chunk, ...]:
        """The state has none."""
        return ()

    def without_unsaved(self, state: Any) -> Any:
        """The state has none."""
        return state


# Stored events applied, and the state in a snapshot.

_SENSELESS = (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError)
"""What pure rules raise for values that `decide` never produces, such as an unknown partition."""


def decoded_events(machine: Machine[StateT], entry: Entry, path: str) -> Iterator[Any]:
    """The events of an entry, in order. Together they name each byte of its records once, in order.
    Raises CorruptData or UnsupportedFormat naming `path`."""
    named = RECORDS_START
    for value in entry.events:
        try:
            event = machine.decode_event(value)
        except UnsupportedFormat as error:
            raise not_understood(path, "an event", error.message, entry.txlog) from error
        except (CorruptData, UsageError) as error:
            raise CorruptData(
                f"{path} contains an event that cannot be read: {error.message}. Restore the "
                "object from a backup.",
                path=path,
            ) from error
        for name, place in machine.places(event):
            if name != path or place.start != named:
                raise CorruptData(
                    f"{path} contains an event that names bytes {place.start} to {place.end} of "
                    f"{name!r:.300}, and the next records are at byte {named} of this entry. "
                    "Restore the object from a backup.",
                    path=path,
                )
            named = place.end
        yield event
    if named != RECORDS_START + len(entry.records):
        raise CorruptData(
            f"{path} holds {len(entry.records)} bytes of records, and its events name "
            f"{named - RECORDS_START}. Restore the object from a backup.",
            path=path,
        )


def after_event(
    machine: Machine[StateT], state: StateT, event: Any, slot: int, path: str
) -> StateT:
    """The state after one event of the entry at `path`. Raises CorruptData: an event that breaks an
    invariant may be forged, because `decide` never produces it."""
    try:
        return machine.apply(state, event, slot)
    except InvariantViolated as error:
        # The message begins with the invariant's number, under which an audit reports it.
        raise CorruptData(f"{error.message} ({path})", path=path) from error
    except CorruptData as error:
        raise CorruptData(
            f"{path} contains an impossible event: {error.message}. Restore it from a backup.",
            path=path,
        ) from error
    except (UsageError, *_SENSELESS) as error:
        raise CorruptData(
            f"{path} contains an event that refers to something that does not exist "
            f"({type(error).__name__}: {error!s:.80}). Restore it from a backup.",
            path=path,
        ) from error


def after_entry(machine: Machine[StateT], state: StateT, entry: Entry, path: str) -> StateT:
    """The state after a whole entry. Raises CorruptData naming `path`."""
    for event in decoded_events(machine, entry, path):
        state = after_event(machine, state, event, entry.slot, path)
    return closed_entry(machine, state, entry.slot, path)


def closed_entry(machine: Machine[StateT], state: StateT, slot: int, path: str) -> StateT:
    """The state after the last event of an entry. Raises CorruptData naming `path`."""
    try:
        return machine.close_entry(state, slot)
    except (CorruptData, UsageError, *_SENSELESS) as error:
        raise CorruptData(
            f"{path} leads to a state that cannot be stored ({type(error).__name__}: "
            f"{error!s:.80}). Restore it from a backup.",
            path=path,
        ) from error


def decoded_snapshot(
    layout: JournalLayout, machine: Machine[StateT], slot: int, data: bytes
) -> tuple[SnapshotHead, StateT]:
    """The content of the object that has the name of that slot's snapshot. Raises CorruptData if it
    is damaged, or is the snapshot of another slot, journal or log."""
    path = layout.snapshot(slot)
    with _no_collection():
        head, sections = decode_snapshot(data, path, machine.rows_max)
        require_own(head, layout, path)
        if head.slot != slot:
            raise CorruptData(f"{path} says that it covers slot {head.slot}.", path=path)
        return head, decoded_state(machine, sections, path, data)


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection meanwhile. A large snapshot becomes very many values without cycles,
    and half of the time to open it would go into searching them for cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def decoded_state(
    machine: Machine[StateT], sections: Mapping[str, list[Json]], path: str, data: bytes
) -> StateT:
    """The state in the snapshot `data`. Raises CorruptData or UnsupportedFormat naming `path`."""
    try:
        state = machine.decode_state(sections)
        machine.require_reachable(state, parse_number(path) or 0)
        return state
    except UnsupportedFormat as error:
        raise not_understood(path, "a state", error.message, snapshot_release(data)) from error
    except (CorruptData, UsageError, *_SENSELESS) as error:
        raise CorruptData(
            f"{path} contains a state that cannot be read ({type(error).__name__}: "
            f"{error!s:.100}). It is rebuilt from the journal.",
            path=path,
        ) from error
