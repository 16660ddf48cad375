"""The one place where an error becomes an exit code and a line on stderr.

    0 ok                  1 a check failed, or data is damaged       2 the call is wrong
    3 not found           4 conflict: somebody else was first, or has taken over
    5 the store does not answer, or not to us                        130 Ctrl-C

Scripts rely on these numbers, so they are append-only. A message is one line and nothing else: the
traceback is for `-v`. It must not know any command.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import typer

from txlog import errors
from txlog.cli.output import close_stdout, printable
from txlog.errors import TxlogError

OK = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
CONFLICT = 4
UNREACHABLE = 5
INTERRUPTED = 130

_CODES: tuple[tuple[type[TxlogError], int], ...] = (
    # The first class that fits decides, so leaves stand before their groups.
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


def run_to_exit_code(command: Callable[[], object]) -> int:
    """Run a command line; print what went wrong, and answer the exit code."""
    try:
        answer = command()
    except TxlogError as error:
        _complain(error.message)
        return exit_code(error)
    except typer.TyperException as error:
        return _usage(error)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except OSError as error:  # Those of the store are errors of txlog by now.
        close_stdout()
        _complain(f"{error.strerror or error}: the output could not be written.")
        return FAILED
    except Exception as error:  # noqa: BLE001 - the last one to see it; -v has the traceback
        _complain(
            f"internal error: {type(error).__name__}: {error}. Run it again with -v, and please "
            "report what that prints."
        )
        return FAILED
    return answer if isinstance(answer, int) else OK


def _usage(error: typer.TyperException) -> int:
    """An error of the command line itself. Without arguments there is only the help."""
    message = error.format_message().replace("Value error, ", "")
    context = getattr(error, "ctx", None)
    if type(error).__name__ != "NoArgsIsHelpError":
        hint = f" '{context.command_path} --help' shows how." if context is not None else ""
        _complain(f"{message.rstrip('.')}.{hint}")
    return error.exit_code


def _complain(message: str) -> None:
    line = re.sub(r"\s+", " ", message).strip()
    print(f"txlog: {printable(line)}", file=sys.stderr)
