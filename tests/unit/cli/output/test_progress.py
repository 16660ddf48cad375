"""Progress on stderr where there is no terminal."""

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
