"""`txlog top`: the log live in a terminal, or one frame of it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from enum import StrEnum
from typing import Annotated

import typer

from txlog.cli.output.output import Lines, Section, plain_lines
from txlog.cli.session import Output, Session, with_session
from txlog.cli.top.look import OVERVIEW, VIEWS, Look, column_of, grid, summary, well, wrong
from txlog.client.admin import Admin
from txlog.distribution import install_command
from txlog.engine.times import short_duration_ms
from txlog.errors import UsageError
from txlog.ui import views

app = typer.Typer()


class ViewName(StrEnum):
    """The lists."""

    GROUPS = "groups"
    TOPICS = "topics"
    TRANSACTIONS = "transactions"
    QUERIES = "queries"


@app.command("top", epilog="Example: txlog top --view transactions --filter billing")
@with_session
def top(
    session: Session,
    view: Annotated[ViewName, typer.Option(help="What is shown first.")] = ViewName.GROUPS,
    filter_: Annotated[
        str | None, typer.Option("--filter", metavar="TEXT", help="Only names that contain it.")
    ] = None,
    sort: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Sort by this column: lag, offsets, ...")
    ] = None,
    interval: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Between two looks: 2s, of a bucket 10s or more."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print one frame, and end.")] = False,
) -> None:
    """Show groups, topics, transactions and queries live, until q is pressed; ? lists the keys.

    It only reads, and only what is on the screen. With --once it prints one frame without colours,
    as wide as the terminal or as COLUMNS says; with -o json, the answer of the page's API.
    """
    shown = VIEWS[view]
    column = None if sort is None else column_of(shown, sort)
    look = Look(shown, filter_ or "", column)
    if once:
        _print_frame(session, session.admin(), look)
        return
    if session.options.output is Output.JSON:
        raise UsageError("-o json needs --once; 'txlog ui' serves the same as a stream.")
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        raise UsageError("top needs a terminal; --once prints one frame anywhere.")
    if importlib.util.find_spec("textual") is None:
        raise UsageError(f"top needs Textual; run {install_command('ui')}.")
    interval_ms = _interval_ms(session.admin(), interval)
    if session.options.no_color:
        os.environ["NO_COLOR"] = "1"
    from txlog.cli.top.screen import TopApp

    screen = TopApp(session.admin, interval_ms, look)
    code = screen.run()
    if screen.failure is not None:
        raise screen.failure
    if code is not None:
        raise typer.Exit(code)


def _interval_ms(admin: Admin, text: str | None) -> int:
    """Raises UsageError for one that would cost more than a GET a second and journal."""
    least_ms = views.FAR_LIVE_MS if admin.connection.cluster.is_far else views.LIVE_MS
    found_ms = least_ms if text is None else short_duration_ms(text)
    if found_ms is None or found_ms < least_ms:
        raise UsageError(
            f"--interval is {text!r:.40}; give a duration such as 15s, here {least_ms // 1000}s or "
            "more."
        )
    return found_ms


def _print_frame(session: Session, admin: Admin, look: Look) -> None:
    """Whether anything is wrong, and the list."""
    question = look.questions[0]
    document = views.VIEWS[question.path](admin, dict(question.params))
    lines: list[str] = []
    if session.options.output is not Output.JSON:
        overview = views.VIEWS[OVERVIEW.path](admin, {})
        found = [f"LOOK {line}" for line in wrong(overview)] or [f"OK {well(overview)}"]
        parts: tuple[Section, ...] = (
            Lines((*found, summary(look, document), "")), grid(look, document),
        )  # fmt: skip
        width = shutil.get_terminal_size((0, 0)).columns
        lines = [_cut(line, width) for part in parts for line in plain_lines(part)]
    session.show(document, [Lines(tuple(lines))])


def _cut(line: str, width: int) -> str:
    from rich.cells import set_cell_size

    return set_cell_size(line, width).rstrip() if width else line
