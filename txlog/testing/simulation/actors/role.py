"""What an actor does with its lives, and the errors that any of them may meet.

A role is a program that its process runs. When the process dies, the same role begins anew in
another one, with nothing but what a real program would have outside: its own fields stand for a
database or a checkpoint, and what it writes down there it must mean so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import ClassVar, Protocol

from txlog.errors import (
    AbortableError,
    FencedError,
    OutcomeUnknown,
    RetriableError,
    StoreDenied,
    TxlogError,
)
from txlog.testing.simulation.environment.process import SimulatedProcess

UNCLEAR = (RetriableError, OutcomeUnknown, StoreDenied)
"""Ask again."""

EXPECTED = (*UNCLEAR, AbortableError, FencedError)
"""What the product may raise if it is used correctly. All else is a finding."""

TIMEOUT_MS = 30_000
"""Of transactions: shorter than the longest pause, longer than most work."""


def poll_wait_ms(process: SimulatedProcess) -> float:
    """How long a poll waits for records: mostly not at all."""
    return process.random.choice((0.0, 0.0, 0.0, 0.0, 100.0))


class Recurring(ABC):
    """A role that does the same again and again while the world is busy, whatever it meets."""

    is_reader: ClassVar[bool] = False
    is_always_restarted: ClassVar[bool] = False
    pause_ms: tuple[float, float]
    """Between two turns, at least and at most."""
    met: ClassVar[tuple[type[TxlogError], ...]] = EXPECTED
    """Errors that end a turn, and no more."""

    def __init__(self, name: str) -> None:
        self.name = name

    def live(self, process: SimulatedProcess) -> None:
        """See Role.live."""
        while process.is_busy:
            process.sleep(*self.pause_ms)
            with suppress(*self.met):
                self.turn(process)

    @abstractmethod
    def turn(self, process: SimulatedProcess) -> None:
        """What it does each time."""


class Role(Protocol):
    """One program."""

    name: str

    @property
    def is_reader(self) -> bool:
        """It ends once it has read to the end, and not with the work."""

    @property
    def is_always_restarted(self) -> bool:
        """It is always started again: others wait for it."""

    def live(self, process: SimulatedProcess) -> None:
        """One life, to its proper end; ProcessDied passes through it."""
