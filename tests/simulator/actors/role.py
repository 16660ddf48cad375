"""Roles of actors, and the errors that any of them may meet.

A role is a program that its process runs. When the process dies, the role starts again in another
process. Its fields are what a real program would have outside of the process, such as a database or
a checkpoint: only durable data may be kept in them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import ClassVar, Protocol

from tests.simulator.environment.process import SimulatedProcess
from txlog.errors import (
    AbortableError,
    FencedError,
    OutcomeUnknown,
    RetriableError,
    StoreDenied,
    TxlogError,
)

UNCLEAR = (RetriableError, OutcomeUnknown, StoreDenied)
"""Errors after which a call is repeated."""

EXPECTED = (*UNCLEAR, AbortableError, FencedError)
"""Errors that the product may raise if it is used correctly. Every other error is a finding."""

TIMEOUT_MS = 30_000
"""Timeout of transactions: shorter than the longest pause, longer than most work."""


def poll_wait_ms(process: SimulatedProcess) -> float:
    """How long a poll waits for records: mostly not at all."""
    return process.random.choice((0.0, 0.0, 0.0, 0.0, 100.0))


class Recurring(ABC):
    """A role that takes the same turn again and again while the world is busy, despite errors."""

    is_reader: ClassVar[bool] = False
    is_always_restarted: ClassVar[bool] = False
    pause_ms: tuple[float, float]
    """Pause between two turns, at least and at most."""
    met: ClassVar[tuple[type[TxlogError], ...]] = EXPECTED
    """Errors that end a turn, but not the role."""

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
        """Take one turn."""


class Role(Protocol):
    """A program that one process runs."""

    name: str

    @property
    def is_reader(self) -> bool:
        """Whether it ends when it has read to the end, not when the work is done."""

    @property
    def is_always_restarted(self) -> bool:
        """Whether it is always started again, because others wait for it."""

    def live(self, process: SimulatedProcess) -> None:
        """Run one life to its end. ProcessDied passes through it."""
