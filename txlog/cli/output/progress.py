"""Progress of a long command on stderr: a bar on a terminal, else a line every ten seconds.

It must not know what the command counts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from txlog.cli.output.output import printable
from txlog.cli.session import Session
from txlog.clock import Runtime

LINE_EVERY_MS = 10_000.0
"""Milliseconds between two lines where there is no terminal."""


@contextmanager
def byte_progress(
    session: Session, runtime: Runtime, verb: str, total_bytes: int
) -> Iterator[Callable[[int], None]]:
    """Yields the function to call with each further number of bytes. `verb` begins each line."""
    with _progress(session, runtime, verb, total_bytes, "bytes", DownloadColumn()) as advance:
        yield advance


@contextmanager
def record_progress(
    session: Session, runtime: Runtime, verb: str, total_records: int
) -> Iterator[Callable[[int], None]]:
    """Yields the function to call with each further number of records. `verb` begins each line."""
    count = MofNCompleteColumn()
    with _progress(session, runtime, verb, total_records, "records", count) as advance:
        yield advance


@contextmanager
def _progress(
    session: Session, runtime: Runtime, verb: str, total: int, unit: str, column: ProgressColumn
) -> Iterator[Callable[[int], None]]:
    if session.options.quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        with _bar(verb, total, column, no_color=session.options.no_color) as advance:
            yield advance
    else:
        yield _lines(session, runtime, verb, total, unit)


@contextmanager
def _bar(
    verb: str, total: int, column: ProgressColumn, *, no_color: bool
) -> Iterator[Callable[[int], None]]:
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        column,
        TimeRemainingColumn(),
        console=Console(stderr=True, no_color=no_color or None),
        transient=True,
    )
    with bar:
        task = bar.add_task(printable(verb), total=total)
        yield lambda count: bar.update(task, advance=count)


def _lines(
    session: Session, runtime: Runtime, verb: str, total: int, unit: str
) -> Callable[[int], None]:
    done, shown_ms = 0, runtime.clock.monotonic_ms()

    def advance(count: int) -> None:
        nonlocal done, shown_ms
        done += count
        now = runtime.clock.monotonic_ms()
        if now - shown_ms >= LINE_EVERY_MS:
            shown_ms = now
            share = min(100 * done // max(total, 1), 100)
            session.say(f"{verb}: {share}% of {total:,} {unit}")

    return advance
