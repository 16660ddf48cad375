"""The `txlog` command: its group of commands, its shared options, and its entry point.

It must not know what any command does.
"""

from __future__ import annotations

import copy
import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from txlog.cli.command_table import LazyCommands
from txlog.cli.exit_codes import run_to_exit_code, wants_json
from txlog.cli.options.storage_options import HELP as STORAGE_HELP
from txlog.cli.session import (
    NO_COLOR_HELP,
    OUTPUT_HELP,
    QUIET_HELP,
    ROOT_HELP,
    VERBOSE_HELP,
    GlobalOptions,
    Output,
    require_values,
)
from txlog.distribution import DISTRIBUTION

HELP = """A transactional, Kafka-style log with no brokers.

Data goes to stdout and messages to stderr. Exit codes: 0 ok, 1 a check failed, 2 wrong usage,
3 not found, 4 conflict, 5 storage unreachable, 6 output not written, 130 interrupted.
"""

EXAMPLES = """Examples:

txlog --root ./data topic list

export TXLOG_ROOT=s3://bucket/log; txlog group describe billing

txlog consume orders -n 5 | jq .value
"""


class Commands(TyperGroup):
    """The top group. Commands are imported when they run (`command_table.py`), and `exit_codes`
    reports every error of every command."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = LazyCommands()

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help from the first lines of the commands, without importing them."""
        summary = copy.copy(self)
        summary.commands = LazyCommands.summaries()
        # Not summary.format_help, which is this method again.
        super(Commands, summary).format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        """Run the command. An EOFError, which typer would take for Ctrl-D and end silently, is of a
        damaged file: no command asks for input. A full disk may take only a part of a module."""
        try:
            return super().invoke(ctx)
        except EOFError as error:
            raise RuntimeError(f"EOFError: {error}") from error

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run one command line and end the process, or return its exit code."""
        inner = super().main
        # Not in standalone mode, typer raises its errors and returns exit codes; otherwise it would
        # print errors in its own form and end the process.
        code = run_to_exit_code(
            lambda: inner(args, prog_name, complete_var, False, windows_expand_args, **extra),
            as_json=wants_json(sys.argv[1:] if args is None else args),
        )
        if standalone_mode:
            sys.exit(code)
        return code


app = typer.Typer(
    name="txlog",
    cls=Commands,
    help=HELP,
    epilog=EXAMPLES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def version_text() -> str:
    """Name and version; sources that are not installed have no version."""
    import importlib.metadata as metadata  # Slow to import, and only needed here.

    try:
        return f"txlog {metadata.version(DISTRIBUTION)}"
    except metadata.PackageNotFoundError:
        return "txlog (not installed as a package)"


def _print_version(wanted: bool) -> None:
    if wanted:
        print(version_text())
        raise typer.Exit


@app.callback()
def _options(
    ctx: typer.Context,
    root: Annotated[
        str | None, typer.Option("--root", metavar="URI", envvar="TXLOG_ROOT", help=ROOT_HELP)
    ] = None,
    output: Annotated[Output | None, typer.Option("--output", "-o", help=OUTPUT_HELP)] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help=QUIET_HELP)] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help=VERBOSE_HELP)] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help=NO_COLOR_HELP)] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    storage_option: Annotated[
        list[str] | None,
        typer.Option("--storage-option", metavar="NAME=VALUE", help=STORAGE_HELP),
    ] = None,
) -> None:
    require_values(ctx)
    ctx.obj = GlobalOptions(root, output, quiet, verbose, no_color, tuple(storage_option or ()))


def main() -> None:
    """Run the command line of this process. Called by the console script, start.py."""
    if sys.stdout is None:  # Closed by the caller: `txlog ... >&-`.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:  # Else `print` would write messages to stdout, among the data.
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):  # For tables; JSON is escaped anyway.
        sys.stdout.reconfigure(errors="backslashreplace")
    app(prog_name="txlog")


if __name__ == "__main__":
    main()
