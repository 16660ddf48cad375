"""The demo's output while it runs: events with the time, and bars or lines of progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

LINE_EVERY_S = 10.0
"""Without a terminal, progress is printed as lines."""


class Narrator:
    """Prints from any thread."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._line_at = 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        """Print one event."""
        with self._lock:
            self.console.print(f"[dim]{self.elapsed_s:6.1f} s[/dim]  {text}", highlight=False)

    @contextmanager
    def progress(self, totals: Mapping[str, int]) -> Iterator[ProgressBoard]:
        """Bars on a terminal, else a line every LINE_EVERY_S."""
        bars = Progress(
            TextColumn("{task.description:>10}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        with bars:
            tasks = {name: bars.add_task(name, total=total) for name, total in totals.items()}
            yield ProgressBoard(self, bars, tasks)


class ProgressBoard:
    """Several counts and their totals."""

    def __init__(self, narrator: Narrator, bars: Progress, tasks: Mapping[str, TaskID]) -> None:
        self._narrator = narrator
        self._bars = bars
        self._tasks = tasks
        self._line_at = narrator.elapsed_s

    def show(self, counts: Mapping[str, int]) -> None:
        """Show the present counts."""
        for name, count in counts.items():
            self._bars.update(self._tasks[name], completed=count)
        if self._bars.disable and self._narrator.elapsed_s - self._line_at >= LINE_EVERY_S:
            self._line_at = self._narrator.elapsed_s
            self._narrator.say(", ".join(f"{name} {count:,}" for name, count in counts.items()))
