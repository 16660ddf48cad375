"""From stored values to states: the events of an entry applied, and the state in a snapshot.

It guards I15 for content: a checksum detects accidents, but an object may also be forged, or be
written by a faulty program. An event or a snapshot that its machine cannot accept is CorruptData
that names the object, never another error. It must not know what events mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from txlog.errors import CorruptData, InvariantViolated, UnsupportedFormat, UsageError
from txlog.journal.codec import Json
from txlog.journal.entry import Entry
from txlog.journal.machine import Machine, StateT
from txlog.journal.release import not_understood
from txlog.journal.snapshot import snapshot_release

_SENSELESS = (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError)
"""What pure rules raise for values that `decide` never produces: an unknown partition, ..."""


def decoded_events(machine: Machine[StateT], entry: Entry, path: str) -> Iterator[Any]:
    """The events of an entry, in order. Raises CorruptData or UnsupportedFormat naming `path`."""
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
        yield event


def after_event(
    machine: Machine[StateT], state: StateT, event: Any, slot: int, path: str
) -> StateT:
    """The state after one event of the entry at `path`. Raises CorruptData: an event that breaks an
    invariant may be forged, because `decide` never produces it."""
    try:
        return machine.apply(state, event, slot)
    except InvariantViolated as error:
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


def decoded_state(
    machine: Machine[StateT], sections: Mapping[str, list[Json]], path: str, data: bytes
) -> StateT:
    """The state in the snapshot `data`. Raises CorruptData or UnsupportedFormat naming `path`."""
    try:
        return machine.decode_state(sections)
    except UnsupportedFormat as error:
        raise not_understood(path, "a state", error.message, snapshot_release(data)) from error
    except (CorruptData, UsageError, *_SENSELESS) as error:
        raise CorruptData(
            f"{path} contains a state that cannot be read ({type(error).__name__}: "
            f"{error!s:.100}). It is rebuilt from the journal.",
            path=path,
        ) from error
