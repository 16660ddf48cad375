"""The one place where an error becomes an exit code and a line on stderr.

    0 ok                  1 a check failed, or data is damaged       2 the call is wrong
    3 not found           4 conflict: another process was first, or has taken over
    5 the store does not answer, or denies access                    6 the output cannot be written
    130 Ctrl-C or SIGTERM

Scripts rely on these numbers, so they are append-only. A message is one line and nothing else, or
with `-o json` one object; `-v` adds the traceback. It must not know any command.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import typer

from txlog import errors
from txlog.cli.output.output import close_stdout, json_text, message_text
from txlog.errors import TxlogError
from txlog.redaction import redact

OK = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
CONFLICT = 4
UNREACHABLE = 5
OUTPUT_LOST = 6
INTERRUPTED = 130

_CODES: tuple[tuple[type[TxlogError], int], ...] = (
    # The first match counts, so subclasses come before their groups.
    (errors.UnknownTopic, NOT_FOUND),
    (errors.UnknownPartition, NOT_FOUND),
    (errors.UnknownGroup, NOT_FOUND),
    (errors.UnknownTransaction, NOT_FOUND),
    (errors.NoOffsetForPartition, NOT_FOUND),
    (errors.NotATxlog, NOT_FOUND),
    (errors.TopicExists, CONFLICT),
    (errors.IllegalTransition, CONFLICT),
    (errors.CheckpointConflict, CONFLICT),
    (errors.StoreDenied, UNREACHABLE),
    (errors.StoreUnavailable, UNREACHABLE),
    (errors.OutcomeUnknown, UNREACHABLE),
    (errors.RetriableError, CONFLICT),
    (errors.AbortableError, CONFLICT),
    (errors.FencedError, CONFLICT),
    (errors.UsageError, USAGE),
    (TxlogError, FAILED),
)


def exit_code(error: TxlogError) -> int:
    """The exit code of an error of txlog."""
    return next(code for kind, code in _CODES if isinstance(error, kind))


def run_to_exit_code(command: Callable[[], object], *, as_json: bool = False) -> int:
    """Run a command line; report an error as a line or as JSON; return the exit code."""
    try:
        answer = _answer_of(command)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - nothing above handles it; -v shows the traceback
        return report_error(error, as_json=as_json)
    return answer if isinstance(answer, int) else OK


def report_error(error: Exception, *, as_json: bool) -> int:
    """Print an error on stderr, as a line or as JSON; returns its exit code."""
    report = _report_of(error)
    if report.message:
        _print_report(report, as_json)
    return report.exit_code


def _answer_of(command: Callable[[], object]) -> object:
    """What the command returns; also if the reader of stdout has ended meanwhile, as `head` does,
    which is not an error."""
    answer: object = None
    try:
        answer = command()
        # A full disk may show only when the buffer is written. When the interpreter writes it at
        # its exit, it is too late for an exit code and a message of the command line.
        sys.stdout.flush()
    except BrokenPipeError:
        close_stdout()
    except SystemExit as end:
        # So typer ends where it prints itself, as for --help; its exit code is 1.
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        close_stdout()
    return answer


def wants_json(words: Sequence[str]) -> bool:
    """Whether a command line has `-o json`: needed for errors before it is parsed."""
    wanted = False
    for word, after in pairwise([*words, ""]):
        if word == "--":
            break
        if found := _OUTPUT.fullmatch(word):
            wanted = (found[1] or found[2] or after) == "json"
    return wanted


# -o may end a group of short options (-qo json), and may contain its value (-ojson).
_OUTPUT = re.compile(r"--output(?:=(.*))?|-[a-np-z]*o(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Report:
    """The report of an error."""

    code: str
    """`TxlogError.code`, or a code of the command line."""
    exit_code: int
    message: str
    facts: Mapping[str, object] = field(default_factory=dict)


def _report_of(error: Exception) -> _Report:
    if isinstance(error, TxlogError):
        return _Report(error.code, exit_code(error), error.message, error.facts)
    if isinstance(error, typer.TyperException):
        return _usage(error)
    if isinstance(error, OSError):  # Not of the store, whose errors are TxlogErrors.
        close_stdout()
        text = f"{error.strerror or error}: the output could not be written."
        return _Report("output-lost", OUTPUT_LOST, text)
    return _Report(
        "internal-error",
        FAILED,
        f"internal error: {type(error).__name__}: {error}. Run it again with -v, and please "
        "report what that prints.",
    )


def _usage(error: typer.TyperException) -> _Report:
    """The report of a usage error; empty if a missing argument has shown the help already."""
    # By name, because typer keeps the class in a private module.
    if type(error).__name__ == "NoArgsIsHelpError":
        return _Report("usage", error.exit_code, "")
    # typer puts a full stop behind "Did you mean ...?", and "Value error, " before a reason.
    message = error.format_message().replace(": Value error, ", ": ").rstrip(".")
    context = getattr(error, "ctx", None)
    hint = f" '{context.command_path} --help' shows how." if context is not None else ""
    stop = "" if message.endswith("?") else "."
    return _Report("usage", error.exit_code, f"{message}{stop}{hint}")


def _print_report(report: _Report, as_json: bool) -> None:
    line = re.sub(r"\s+", " ", report.message).strip()
    if as_json:
        line = redact(line)
        facts = {name: redact(str(fact)) for name, fact in report.facts.items()}
        document = {"code": report.code, "exit_code": report.exit_code, "message": line}
        print(json_text({"error": document | {"facts": facts}}), file=sys.stderr)
    else:
        print(f"txlog: {message_text(line)}", file=sys.stderr)
