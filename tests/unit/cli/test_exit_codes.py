"""Every error of the tree has its exit code, and leaves as one harmless line."""

import inspect

import pytest
import typer

from txlog import errors
from txlog.cli.exit_codes import exit_code, run_to_exit_code
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
"""Append-only: scripts of users compare these numbers."""

KINDS = [
    kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, TxlogError)
]


def failing(error: BaseException) -> None:
    raise error


def test_codes_are_pinned_for_every_error_of_the_tree() -> None:
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


def test_an_error_of_the_command_line_itself_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_to_exit_code(lambda: failing(typer.BadParameter("no such form"))) == 2
    assert capsys.readouterr().err == "txlog: Invalid value: no such form.\n"


def test_an_error_that_nobody_expected_is_1_and_asks_for_a_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_to_exit_code(lambda: failing(KeyError("pid"))) == 1
    line = capsys.readouterr().err
    assert line.startswith("txlog: internal error: KeyError: 'pid'.")
    assert line.count("\n") == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), typer.Abort()])
def test_an_interrupt_is_130_and_silent(
    error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_to_exit_code(lambda: failing(error)) == 130
    assert capsys.readouterr() == ("", "")


def test_a_command_that_ends_well_is_0_and_one_that_exits_has_its_own_code() -> None:
    assert run_to_exit_code(lambda: None) == 0
    assert run_to_exit_code(lambda: 3) == 3
