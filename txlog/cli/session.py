"""The session that every command gets: the log, the form of output, and the stream of messages.

The shared options may come before the command or after it; the later one wins, and both win over
TXLOG_ROOT. stdout is for data only, stderr for messages. It must not know any command.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Annotated, Any, get_args

import typer

import txlog
from txlog.cli.options.storage_options import HELP as STORAGE_HELP
from txlog.cli.options.storage_options import storage_options
from txlog.cli.output.output import (
    Section,
    close_stdout,
    grid_of,
    message_text,
    write_json,
    write_sections,
)
from txlog.documents.unreadable import Unreadable
from txlog.errors import UsageError

PANEL = "Global options"
MAY_BE_EMPTY = "may be empty"
"""Marks, in its `Annotated`, an option to which an empty text is a value."""
ROOT_HELP = "The log: a folder, or a URL such as s3://bucket/prefix."
OUTPUT_HELP = "Tables for people, or JSON for programs."
QUIET_HELP = "Print only errors as messages."
VERBOSE_HELP = "Show the traceback of an error."
NO_COLOR_HELP = "No colours, as with the variable NO_COLOR."


class Output(StrEnum):
    """Forms of output."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class GlobalOptions:
    """The options that every command has."""

    root: str | None = None
    output: Output | None = None
    quiet: bool = False
    verbose: bool = False
    no_color: bool = False
    storage_option: tuple[str, ...] = field(default=(), repr=False)
    """NAME=VALUE, as given: a value may be a secret."""

    def overridden(self, later: GlobalOptions) -> GlobalOptions:
        """These options, overridden by `later`."""
        names = [option.name for option in fields(self)]
        # A flag that is not given is False, so the later options can only add flags.
        chosen = {n: getattr(later, n) or getattr(self, n) for n in names}
        # All of them in this order: of two with one name `storage_options` takes the later one.
        chosen["storage_option"] = (*self.storage_option, *later.storage_option)
        return GlobalOptions(**chosen)


@dataclass(frozen=True, slots=True)
class Session:
    """One run of one command."""

    options: GlobalOptions

    @property
    def root(self) -> str:
        """The log's root. Raises UsageError if none was given."""
        if not self.options.root:
            raise UsageError("no log was named; give --root URI, or set TXLOG_ROOT.")
        return self.options.root

    @property
    def storage_options(self) -> dict[str, object]:
        """Options of the log's store. Raises InvalidOption, which shows no value."""
        return storage_options(self.options.storage_option, os.environ)

    def admin(
        self, *, create: bool = False, log_config: Mapping[str, object] | None = None
    ) -> txlog.Admin:
        """The log, open. Raises NotATxlog, InvalidConfig, and what the store raises."""
        return txlog.Admin(
            self.root, create=create, storage_options=self.storage_options, log_config=log_config
        )

    def say(self, text: str) -> None:
        """A message for people, on stderr."""
        if not self.options.quiet:
            print(message_text(text), file=sys.stderr)

    def say_planned(self, action: str) -> None:
        """The message of a command without --execute."""
        self.say(f"Would {action}. Nothing was done; add --execute to do it.")

    def show(self, document: object, sections: Iterable[Section]) -> None:
        """Print the answer: one JSON document, or the same as tables."""
        try:
            if self.options.output is Output.JSON:
                write_json(document)
            else:
                write_sections(sections, no_color=self.options.no_color)
            sys.stdout.flush()
        except BrokenPipeError:
            # The output is unread, but the command's messages and exit code still count: a log may
            # be damaged in `txlog verify | head`.
            close_stdout()

    def end_with(self, unread: Unreadable) -> None:
        """End a list, of which some could not be read: raises the first error, after a message for
        each of the others."""
        errors = list(unread.errors.values())
        for text in unread.texts()[1:]:
            self.say(text)
        if errors:
            raise errors[0]

    def show_rows(self, names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print rows with these columns: a list of JSON objects, or the same as a table."""
        documents = [dict(zip(names, row, strict=True)) for row in rows]
        self.show(documents, [grid_of(documents, names)])


def _shared(
    *,
    root: Annotated[
        str | None, typer.Option("--root", metavar="URI", help=ROOT_HELP, rich_help_panel=PANEL)
    ] = None,
    output: Annotated[
        Output | None, typer.Option("--output", "-o", help=OUTPUT_HELP, rich_help_panel=PANEL)
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help=QUIET_HELP, rich_help_panel=PANEL)
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help=VERBOSE_HELP, rich_help_panel=PANEL)
    ] = False,
    no_color: Annotated[
        bool, typer.Option("--no-color", help=NO_COLOR_HELP, rich_help_panel=PANEL)
    ] = False,
    storage_option: Annotated[
        list[str] | None,
        typer.Option(
            "--storage-option", metavar="NAME=VALUE", help=STORAGE_HELP, rich_help_panel=PANEL
        ),
    ] = None,
) -> None:
    """The declaration of the shared options; `with_session` reads its signature."""


def require_values(ctx: typer.Context, may_be_empty: Container[str] = ()) -> None:
    """Raises UsageError for an option that is given an empty text, as a script does whose variable
    is not set: it must not count as not given."""
    for option in ctx.command.params:
        given = ctx.params.get(option.name or "")
        is_empty = given == "" or (isinstance(given, list | tuple) and "" in given)
        if is_empty and option.param_type_name == "option" and option.name not in may_be_empty:
            raise UsageError(f"{option.opts[0]} is empty; leave it out, or give it a value.")


# eval_str: typer takes `run.__signature__` as it is and evaluates no annotation in it.
_SHARED = tuple(inspect.signature(_shared, eval_str=True).parameters.values())
_CONTEXT = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)


def with_session(command: Callable[..., None]) -> Callable[..., None]:
    """A typer command of `command(session, ...)`, with the shared options added to its own."""

    @functools.wraps(command)
    def run(ctx: typer.Context, **arguments: Any) -> None:
        own_options = {option.name: arguments.pop(option.name) for option in _SHARED}
        own_options["storage_option"] = tuple(own_options["storage_option"] or ())
        given = GlobalOptions(**own_options)
        require_values(ctx, may_be_empty)
        before = ctx.obj if isinstance(ctx.obj, GlobalOptions) else GlobalOptions()
        session = Session(before.overridden(given))
        try:
            command(session, **arguments)
            sys.stdout.flush()
        # Not an error: the reader has ended, as in `txlog consume x | head`. -v traces nothing.
        except BrokenPipeError:
            close_stdout()
        except typer.Exit:  # Only an exit code: -v has no error to trace.
            raise
        except Exception:
            # Tracebacks quote records and options: no escape sequence and no secret may pass.
            if session.options.verbose:
                for line in traceback.format_exc().splitlines():
                    print(message_text(line), file=sys.stderr)
            raise

    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    may_be_empty = {each.name for each in own if MAY_BE_EMPTY in get_args(each.annotation)}
    # Keyword-only, because a signature refuses a parameter without a default after one with one.
    named = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    signature = inspect.Signature([_CONTEXT, *named, *_SHARED])
    run.__signature__ = signature  # type: ignore[attr-defined]
    return run


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Shell completion: the topics of the log, or none if it cannot be read."""
    return [n for n in _names(ctx, lambda log: log.list_topics()) if n.startswith(incomplete)]


def group_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Shell completion: the consumer groups of the log."""
    return [n for n in _names(ctx, lambda log: log.list_groups()) if n.startswith(incomplete)]


def _names(ctx: typer.Context, read: Callable[[txlog.Admin], list[str]]) -> list[str]:
    before, after = ctx.find_root().params, ctx.params
    try:
        place = after.get("root") or before.get("root") or os.environ.get("TXLOG_ROOT", "")
        given = [*(before.get("storage_option") or ()), *(after.get("storage_option") or ())]
        return read(txlog.Admin(place, storage_options=storage_options(given, os.environ)))
    except Exception:  # noqa: BLE001 - a shell that waits for completions shows no errors
        return []


Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=topic_names)
]
OnlyTopics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC",
        help="Only this topic; repeatable.",
        autocompletion=topic_names,
    ),
]
Execute = Annotated[bool, typer.Option("--execute", help="Do it, instead of only showing it.")]
"""Arguments that several commands have."""
