"""Prints the results of a long test: figures on stdout, progress on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence


def note(line: str) -> None:
    """Print a line of progress."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def show(figures: Mapping[str, object], problems: Sequence[str]) -> None:
    """Print a line for each figure and each problem."""
    width = max(map(len, figures))
    for name, value in figures.items():
        text = json.dumps(value) if isinstance(value, dict) else str(value)
        sys.stdout.write(f"{name:{width}}  {text}\n")
    for problem in problems:
        sys.stdout.write(f"problem: {problem}\n")
