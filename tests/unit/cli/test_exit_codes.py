"""Every class of error has its exit code and is printed as one harmless line."""

import inspect
import json
import os
import signal
import subprocess
import sys
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import pytest
import typer

from tests.processes.command_line import PROCESS_TIMEOUT_S, command, environment, run
from tests.unit.cli.sample_log import SampleLog
from txlog import errors
from txlog.cli import commands, main, start
from txlog.cli.exit_codes import INTERRUPTED, exit_code, run_to_exit_code, wants_json
from txlog.errors import TxlogError

CODES = {
    0: set(),
    1: {
        "TxlogError",
        "CorruptData",
        "UnsupportedFormat",
        "MissingObject",
        "InternalError",
        "InvariantViolated",
    },
    2: {
        "UsageError",
        "InvalidName",
        "InvalidConfig",
        "InvalidOption",
        "InvalidRecord",
        "RecordTooLarge",
        "IncompatibleSchema",
        "OffsetOutOfRange",
        "StoreNotAtomic",
    },
    3: {
        "UnknownTopic",
        "UnknownPartition",
        "UnknownGroup",
        "UnknownTransaction",
        "NoOffsetForPartition",
        "NotATxlog",
    },
    4: {
        "TopicExists",
        "IllegalTransition",
        "CheckpointConflict",
        "RetriableError",
        "PublishContention",
        "ConcurrentTransactions",
        "UnknownProducerId",
        "UnstableOffsetCommit",
        "ReadBlocked",
        "BoundaryMoved",
        "AbortableError",
        "TransactionAborted",
        "OutOfOrderSequence",
        "CommitFailed",
        "DuplicateTransaction",
        "SegmentExpired",
        "FencedError",
        "ProducerFenced",
        "InvalidProducerEpoch",
        "GroupOwned",
    },
    5: {"StoreUnavailable", "StoreFull", "StoreDenied", "OutcomeUnknown"},
}
"""Append-only: users' scripts compare these numbers."""

KINDS = [
    kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, TxlogError)
]


def failing(error: BaseException) -> None:
    raise error


def test_exit_code_of_every_error_class_is_pinned() -> None:
    found = {code: {k.__name__ for k in KINDS if exit_code(k("x")) == code} for code in CODES}
    assert found == CODES


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_is_one_line_on_stderr_and_nothing_on_stdout(
    kind: type[TxlogError], capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_to_exit_code(lambda: failing(kind("topic 'a' is gone;\n  use another.", topic="a")))
    assert code == exit_code(kind("x"))
    assert capsys.readouterr() == ("", "txlog: topic 'a' is gone; use another.\n")


def test_escape_sequences_in_a_message_do_not_reach_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_to_exit_code(lambda: failing(TxlogError("no group '\x1b[2J\x9b31m'.")))
    assert capsys.readouterr().err == "txlog: no group '\\x1b[2J\\x9b31m'.\n"


@pytest.mark.parametrize("kind", KINDS)
def test_with_json_an_error_is_one_object_on_stderr(
    kind: type[TxlogError], capsys: pytest.CaptureFixture[str]
) -> None:
    error = kind("topic 'a' is gone;\n  use another.", topic="a", offset=7)
    code = run_to_exit_code(lambda: failing(error), as_json=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert json.loads(err)["error"] == {
        "code": kind.code,
        "exit_code": code,
        "message": "topic 'a' is gone; use another.",
        "facts": {"topic": "a", "offset": "7"},
    }


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("topic list -o json", True),
        ("topic list -ojson", True),
        ("-qojson topic list", True),
        ("topic list --output json", True),
        ("topic list --output=json", True),
        ("-o json topic list -o table", False),
        ("-o table topic list -o json", True),
        ("topic list", False),
        ("drill -- -o json", False),
        ("topic list -o", False),
        ("topic list --out json", False),
    ],
)
def test_json_output_is_recognised_in_unparsed_arguments(words: str, wanted: bool) -> None:
    assert wants_json(words.split()) is wanted


@pytest.mark.parametrize(
    "words", ["topic list -o json", "topic lisst -o json", "-o json topic list --nonsense"]
)
def test_errors_are_json_if_json_output_is_requested(words: str, tmp_path: Path) -> None:
    done = run(*words.split(), root=tmp_path)
    assert done.out == ""
    assert json.loads(done.err)["error"]["exit_code"] == done.code in (2, 3)


@pytest.mark.parametrize("words", [["topic", "list"], ["--version"], ["--help"], ["doctor"]])
def test_full_output_device_exits_6(words: list[str], log: SampleLog) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            command("--root", log.root, *words),
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(JAVA_HOME="/nowhere"),
            text=True,
            timeout=PROCESS_TIMEOUT_S,
            check=False,
        )
    wanted = "txlog: No space left on device: the output could not be written.\n"
    assert (done.returncode, done.stderr) == (6, wanted)


def run_unread(*words: object) -> subprocess.CompletedProcess[str]:
    """Run the command; the reader of its stdout has ended already."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", encoding="utf-8") as pipe:
        return subprocess.run(
            command(*words), stdout=pipe, stderr=subprocess.PIPE, env=environment(), text=True,
            timeout=PROCESS_TIMEOUT_S, check=False,
        )  # fmt: skip


@pytest.mark.parametrize("words", [["topic", "list"], ["--version"], ["--help"], ["txn", "-h"]])
def test_unread_output_is_not_an_error(words: list[str], log: SampleLog) -> None:
    done = run_unread("--root", log.root, *words)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("form", ["table", "json"])
def test_failed_check_exits_1_if_its_output_is_not_read(form: str, own_log: SampleLog) -> None:
    segment = next(own_log.root.rglob("segments/*.arrow"))
    segment.write_bytes(segment.read_bytes()[:100])
    done = run_unread("--root", own_log.root, "verify", "-q", "-o", form)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(("words", "code"), [("topic describe nope", 3), ("verify", 0)])
def test_messages_do_not_reach_stdout_if_stderr_is_closed(
    words: str, code: int, log: SampleLog
) -> None:
    closed = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command("--root", log.root, *words.split())]
    done = subprocess.run(
        closed, stdout=subprocess.PIPE, env=environment(), text=True,
        timeout=PROCESS_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert (done.returncode, "txlog:" in done.stdout) == (code, False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("ignored", [False, True])
def test_signal_while_the_commands_are_imported_prints_no_traceback(
    number: signal.Signals, ignored: bool
) -> None:
    """If the caller ignores the signal, as a shell does for background jobs, it stays ignored."""
    program = (
        "import importlib, os, signal, sys, types\n"
        f"if {ignored}: signal.signal({number:d}, signal.SIG_IGN)\n"
        "from txlog.cli import start\n"
        "def slow_import(name):\n"
        f"    os.kill(os.getpid(), {number:d})\n"
        "    return types.SimpleNamespace(main=lambda: sys.exit(42))\n"
        "importlib.import_module = slow_import\n"
        "start.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (42 if ignored else 130, "", "")
    assert start.INTERRUPTED == INTERRUPTED


def test_command_line_error_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_to_exit_code(lambda: failing(typer.BadParameter("no such form"))) == 2
    assert capsys.readouterr().err == "txlog: Invalid value: no such form.\n"


def test_unexpected_exception_exits_1_and_asks_for_a_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_to_exit_code(lambda: failing(KeyError("pid"))) == 1
    line = capsys.readouterr().err
    assert line == (
        "txlog: internal error: KeyError: 'pid'. Run it again with -v, and please report what that "
        "prints.\n"
    )


def test_damaged_module_is_an_internal_error_and_no_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: it exited with 130 and said nothing, as typer does for an EOFError."""
    (tmp_path / "verify.pyc").write_bytes(MAGIC_NUMBER + bytes(12))
    monkeypatch.setattr(commands, "__path__", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "txlog.cli.commands.verify", raising=False)
    anew = typer.main.get_command(main.app)  # That of other tests has imported the module.
    assert anew.main(["verify"], standalone_mode=False) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("txlog: internal error: RuntimeError: EOFError: ")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), typer.Abort()])
def test_interrupt_exits_130_silently(
    error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_to_exit_code(lambda: failing(error)) == 130
    assert capsys.readouterr() == ("", "")


def test_success_exits_0_and_a_returned_code_is_kept() -> None:
    assert run_to_exit_code(lambda: None) == 0
    assert run_to_exit_code(lambda: 3) == 3
