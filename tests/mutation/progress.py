"""Progress while mutmut works on a module: the part that is done, and the estimated remaining time.

It goes to stderr, so that stdout holds only the table: on a terminal one line that is overwritten,
elsewhere a line per minute.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

TRIED_BEFORE = {None, 34}
"""Exit codes of mutants that are not tried yet, and of those that are skipped."""


@dataclass
class Progress:
    """The progress of modules that are tried together."""

    module: str
    results: Sequence[Path]
    """The files in which mutmut records the exit code of each mutant at once."""
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    clock: Callable[[], float] = time.monotonic
    _began: float | None = None
    _at_first: int = 0
    _said: float = 0.0

    def show(self) -> None:
        """Print the progress; on a terminal each time, elsewhere once a minute."""
        now = self.clock()
        is_terminal = self.stream.isatty()
        if not is_terminal and now - self._said < 60:
            return
        self._said = now
        text = f"{self.module}: {self._text(now)}"
        self.stream.write(f"\r{text:<78}" if is_terminal else f"{text}\n")
        self.stream.flush()

    def clear(self) -> None:
        """Erase the line."""
        if self.stream.isatty():
            self.stream.write("\r" + " " * 78 + "\r")
            self.stream.flush()

    def _text(self, now: float) -> str:
        codes = self._codes()
        waiting = sum(code is None for code in codes)
        tried = sum(code not in TRIED_BEFORE for code in codes)
        if not tried:
            return "the tests run without a mutant"
        if self._began is None:
            self._began, self._at_first = now, tried
        text = f"{tried} of {tried + waiting} mutants tried"
        done = tried - self._at_first
        if not done or now <= self._began:
            return text
        return f"{text}, about {_duration(waiting * (now - self._began) / done)} left"

    def _codes(self) -> list[int | None]:
        codes: list[int | None] = []
        for file in self.results:
            with suppress(FileNotFoundError, ValueError):
                # The file does not exist yet, or is just being written.
                codes += json.loads(file.read_text())["exit_code_by_key"].values()
        return codes


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
