"""The finding of a check: one anomaly, and the step of the history at which it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.simulator.checks.history_facts import HistoryFacts


@dataclass(frozen=True, slots=True, order=True)
class Anomaly:
    """One anomaly of a history."""

    at: int
    """The step at which it shows; -1 for the end."""
    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind} at step {self.at}: {self.message}"


Check = Callable[[HistoryFacts], Iterator[Anomaly]]
