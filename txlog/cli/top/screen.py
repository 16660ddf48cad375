"""The screen of `txlog top`, by Textual: keys, a list or one of its rows, and what is wrong.

Every text that a log holds becomes a `Text` of printable characters (`output.styled`): Textual
would read a str as markup, and passes control characters to the terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from rich.console import Group, RenderableType
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import DataTable, Input, Static

from txlog.cli.output.output import (
    Lines,
    Section,
    message_text,
    numeric,
    plain_lines,
    printable,
    rich_section,
    styled,
)
from txlog.cli.top.look import OVERVIEW, VIEWS, Look, grid, rows_of, summary, well, wrong
from txlog.cli.top.reading import Reader, ViewAnswer
from txlog.client.admin import Admin

KEYS = (
    ("1 2 3 4", "groups, topics, transactions, queries"),
    ("Enter", "open the row: partitions, lag over time, schema, course, batches"),
    ("Esc", "back to the list; of a list, drop the filter"),
    ("/", "show only names that contain a text"),
    ("s", "sort by the next column"),
    ("S", "the other way round"),
    ("n, p", "next and previous page"),
    ("?", "these keys"),
    ("q", "quit"),
)
FOOT = "1-4 view  Enter open  Esc back  / filter  s S sort  n p page  ? help  q quit"
CELL_WIDTH_MAX = 60
"""Longer names are cut in lists, and whole where their row is opened."""
ENDED = (signal.SIGTERM, signal.SIGHUP)


class Answered(Message):
    """The reader has an answer."""

    def __init__(self, answer: ViewAnswer) -> None:
        super().__init__()
        self.answer = answer


class Keys(ModalScreen[None]):
    """The keys, until one is pressed."""

    CSS = "Keys { align: center middle; } Keys Static { width: auto; padding: 1 2; border: round; }"

    def compose(self) -> ComposeResult:
        """A table of them."""
        yield Static(Text("\n".join(f"{key:8}  {what}" for key, what in KEYS)))

    def on_key(self) -> None:
        """Close it."""
        self.dismiss()


class TopApp(App[int]):
    """The log, live. It returns an exit code if it was ended otherwise than by its own key."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #health { height: auto; max-height: 6; padding: 0 1; }
    #tabs, #foot { height: 1; padding: 0 1; }
    #foot { color: $text-muted; }
    #rows { height: 1fr; }
    #opened { height: 1fr; padding: 0 1; display: none; }
    #filter { display: none; height: 3; }
    """
    BINDINGS: ClassVar = [
        *(Binding(str(n), f"view('{name}')") for n, name in enumerate(VIEWS, 1)),
        Binding("s", "sort"),
        Binding("S", "reverse"),
        Binding("slash", "filter"),
        Binding("escape", "back"),
        Binding("n", "page(1)"),
        Binding("p", "page(-1)"),
        Binding("question_mark", "keys"),
        Binding("q", "quit"),
        Binding("ctrl+c", "interrupt", priority=True),
    ]

    def __init__(self, opened: Callable[[], Admin], interval_ms: int, look: Look) -> None:
        """Raises what opening the log raises; see `Reader`."""
        super().__init__()
        self._look = look
        self._reader = Reader(opened, interval_ms, self._told)
        self._every = f"every {interval_ms / 1000:g} s"
        self._answers: dict[str, ViewAnswer] = {}
        """The newest answer of each path that is looked at."""
        self._names: list[str] = []
        """Of the rows in the table."""

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield Static(Text("Reading the log..."), id="health")
        yield Static(id="tabs")
        yield DataTable(id="rows", cursor_type="row", zebra_stripes=True)
        with VerticalScroll(id="opened"):
            yield Static(id="text")
        yield Input(id="filter", placeholder="Part of a name; Enter shows, Esc leaves")
        yield Static(Text(FOOT), id="foot")

    def on_mount(self) -> None:
        """Begin to read."""
        for number in ENDED:
            with contextlib.suppress(ValueError, RuntimeError):  # Not in the main thread.
                asyncio.get_running_loop().add_signal_handler(number, self.action_interrupt)
        self._reader.begin()
        self._go(self._look)

    def on_unmount(self) -> None:
        """Stop reading."""
        self._reader.end()

    def _told(self, answer: ViewAnswer) -> None:
        self.post_message(Answered(answer))

    def _fatal_error(self) -> None:
        """Leave; the command prints the error. Textual would print the local variables of each
        frame, which may hold records and secrets."""
        self._close_messages_no_wait()

    @property
    def failure(self) -> Exception | None:
        """The error that ended it."""
        return self._exception

    # What is looked at.

    def _go(self, look: Look) -> None:
        is_other = (look.view, look.opened) != (self._look.view, self._look.opened)
        if is_other:
            paths = [question.path for question in look.questions[:-1]]
            for path in paths:
                self._answers.pop(path, None)
        self._look = look
        self.query_one("#rows").display = look.opened is None
        self.query_one("#opened").display = look.opened is not None
        self.query_one("#rows" if look.opened is None else "#opened").focus()
        self._reader.ask(look.questions)
        self._show()

    def action_view(self, name: str) -> None:
        """Another list."""
        self._go(Look(VIEWS[name]))

    def action_sort(self) -> None:
        """The next column."""
        if self._look.opened is None:
            self._go(self._look.sorted_on())

    def action_reverse(self) -> None:
        """The other direction."""
        if self._look.sort is not None:
            self._go(replace(self._look, is_reversed=not self._look.is_reversed, page=0))

    def action_page(self, step: int) -> None:
        """Another page of the list."""
        answer = self._answers.get(self._look.view.path)
        if self._look.opened is None and answer is not None and answer.document is not None:
            page = answer.document["page"] + step
            if 0 <= page < answer.document["pages"]:
                self._go(replace(self._look, page=page))

    async def action_back(self) -> None:
        """From a row to its list; from the filter; or no filter."""
        typed = self.query_one("#filter", Input)
        if typed.display:
            typed.display = False
            self.query_one("#rows").focus()
        elif self._look.opened is not None:
            self._go(replace(self._look, opened=None))
        elif self._look.text:
            self._go(replace(self._look, text="", page=0))

    def action_filter(self) -> None:
        """Ask for a text."""
        if self._look.opened is None:
            typed = self.query_one("#filter", Input)
            typed.value, typed.display = self._look.text, True
            typed.focus()

    def action_keys(self) -> None:
        """Help."""
        self.push_screen(Keys())

    def action_interrupt(self) -> None:
        """Ctrl-C, or a signal that ends the process: the terminal is restored first."""
        self.exit(130)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The filter is typed."""
        event.input.display = False
        self._go(replace(self._look, text=event.value, page=0))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the row."""
        if event.cursor_row < len(self._names):
            self._go(replace(self._look, opened=self._names[event.cursor_row]))

    # What is shown.

    def on_answered(self, event: Answered) -> None:
        """Show it, unless something else is looked at by now."""
        answer = event.answer
        is_ending = not self.query("#health")
        if answer.question in self._look.questions and not is_ending:
            before = self._answers.get(answer.question.path)
            if answer.document is None and before is not None:
                answer = replace(before, error=answer.error)
            self._answers[answer.question.path] = answer
            self._show()

    def _show(self) -> None:
        self._show_health()
        tabs = Text()
        for number, view in enumerate(VIEWS.values(), 1):
            style = "reverse bold" if view is self._look.view else ""
            tabs.append(f" {number} {view.name.capitalize()} ", style)
        answer = self._answers.get(self._look.questions[0].path)
        document = None if answer is None else answer.document
        if answer is None or document is None:
            tabs.append("  Reading the log..." if answer is None else "")
        elif self._look.opened is None:
            self._fill(document)
            tabs.append("  " + printable(summary(self._look, document)))
        self.query_one("#tabs", Static).update(tabs)
        if self._look.opened is not None:
            found = {path: a.document for path, a in self._answers.items() if a.document}
            sections = self._look.view.sections(self._look.opened, found)
            self.query_one("#text", Static).update(rendered(sections))
        read = "" if answer is None else f"   read {answer.read_at} UTC, {self._every}"
        self.query_one("#foot", Static).update(Text(FOOT + read))

    def _show_health(self) -> None:
        paths = {question.path for question in self._look.questions}
        answers = [answer for path, answer in self._answers.items() if path in paths]
        errors = dict.fromkeys(answer.error for answer in answers if answer.error)
        overview = self._answers.get(OVERVIEW.path)
        health = Text()
        if errors:
            health.append("CANNOT BE READ ", "bold red")
            health.append(message_text("; ".join(errors)) + " It is tried again.")
        elif overview is None or overview.document is None:
            health.append("Reading the log...")
        elif found := wrong(overview.document):
            for number, line in enumerate(found):
                health.append("\n" if number else "")
                health.append("LOOK ", "bold yellow")
                health.append(printable(line))
        else:
            health.append("OK ", "bold green")
            health.append(printable(well(overview.document)))
        self.query_one("#health", Static).update(health)

    def _fill(self, document: dict[str, object]) -> None:
        """The rows into the table; the cursor stays on its row, by name."""
        table = self.query_one("#rows", DataTable)
        found = grid(self._look, document)
        names = [row[self._look.view.id] for row in rows_of(self._look.view, document)]
        at = self._names[table.cursor_row] if table.cursor_row < len(self._names) else None
        above = table.scroll_offset
        with self.batch_update():
            table.clear(columns=True)
            right = numeric(found)
            rows = [[styled(value) for value in row] for row in found.rows]
            headers = [Text(printable(header)) for header in found.headers]
            for place, header in enumerate(headers):
                cells = [row[place] for row in rows]
                for cell in cells:
                    cell.justify = "right" if right[place] else "left"
                    cell.no_wrap, cell.overflow = True, "ellipsis"
                # Named, because the table would measure the cells only after the next frame.
                width = max(cell.cell_len for cell in (header, *cells))
                table.add_column(header, width=min(width, CELL_WIDTH_MAX))
            table.add_rows(rows)
            self._names = names
            if at in names:
                table.move_cursor(row=names.index(at), animate=False, scroll=False)
                table.scroll_to(above.x, above.y, animate=False, force=True)


def rendered(sections: Sequence[Section]) -> RenderableType:
    """Sections one below the other."""
    parts: list[RenderableType] = []
    for section in sections:
        if isinstance(section, Lines):
            parts.append(Text("\n".join(plain_lines(section))))
        else:
            parts.append(rich_section(section))
        parts.append(Text())
    return Group(*parts)
