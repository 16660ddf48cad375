"""Progress on stderr where there is no terminal."""

import io
import re
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from txlog.cli.output.progress import byte_progress, record_progress
from txlog.cli.session import GlobalOptions, Session
from txlog.clock import Runtime
from txlog.testing.clock import ManualClock


@pytest.mark.parametrize(
    ("progress", "unit"), [(byte_progress, "bytes"), (record_progress, "records")]
)
def test_a_line_is_printed_at_most_every_ten_seconds(
    progress: Callable[..., AbstractContextManager[Callable[[int], None]]],
    unit: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = ManualClock()
    with progress(Session(GlobalOptions()), Runtime(clock), "reading", 6_000) as advance:
        for _ in range(30):
            clock.advance(1_000)
            advance(200)
    assert capsys.readouterr().err.splitlines() == [
        f"reading: 33% of 6,000 {unit}",
        f"reading: 66% of 6,000 {unit}",
        f"reading: 100% of 6,000 {unit}",
    ]


def test_a_short_command_prints_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    with byte_progress(Session(GlobalOptions()), Runtime(clock), "reading", 100) as advance:
        clock.advance(9_999)
        advance(100)
    assert capsys.readouterr() == ("", "")


class Terminal(io.StringIO):
    """Standard error of a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("no_color", [False, True])
@pytest.mark.parametrize(
    ("progress", "shown"), [(byte_progress, "50/100 bytes"), (record_progress, "50/100")]
)
def test_bar_is_drawn_on_a_terminal(
    progress: Callable[..., AbstractContextManager[Callable[[int], None]]],
    shown: str,
    no_color: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once the command ends, it is removed."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    session = Session(GlobalOptions(no_color=no_color))
    with progress(session, Runtime(ManualClock()), "reading [red]\x1b[31m", 100) as advance:
        advance(20)
        advance(30)
    text = terminal.getvalue()
    assert shown in text
    assert "reading [red]\\x1b[31m" in text
    assert text.endswith("\x1b[2K")
    assert (re.search(r"\x1b\[\d+m", text) is None) is no_color


def test_quiet_command_prints_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    quiet = Session(GlobalOptions(quiet=True))
    with record_progress(quiet, Runtime(clock), "reading", 100) as advance:
        clock.advance(20_000)
        advance(50)
    assert capsys.readouterr() == ("", "")


def test_progress_of_nothing_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    """More bytes than were expected count as all of them."""
    clock = ManualClock()
    for total, done, share in ((0, 5, 100), (1, 1, 100), (100, 250, 100), (100, 0, 0)):
        with byte_progress(Session(GlobalOptions()), Runtime(clock), "v", total) as advance:
            clock.advance(10_000)
            advance(done)
        assert capsys.readouterr().err == f"v: {share}% of {total} bytes\n"
