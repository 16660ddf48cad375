"""Lines of files and pipes: blocks, limits, pauses."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.cli.input.input_lines import BlockLimits, LineBlock, line_blocks, require_readable
from txlog.clock import Runtime
from txlog.errors import RecordTooLarge, UsageError
from txlog.testing.clock import ManualClock

WIDE = BlockLimits(10_000, 1 << 20, 1 << 20)


def blocks(path: Path, limits: BlockLimits = WIDE) -> list[LineBlock]:
    return list(line_blocks(str(path), limits, ManualClock()))


@given(
    content=st.binary(max_size=60).map(lambda data: data.replace(b"\x00", b"\n")),
    lines=st.integers(1, 5),
    size=st.integers(1, 20),
)
def test_blocks_contain_every_line_once_with_correct_line_numbers(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, lines: int, size: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "lines"
    path.write_bytes(content)
    found = blocks(path, BlockLimits(lines, size, 100))
    expected = content.split(b"\n")
    assert [line for block in found for line in block.lines] == expected[: -1 or None] + (
        [expected[-1]] if expected[-1] else []
    )
    assert all(0 < len(block.lines) <= lines for block in found)
    ends = [block.first_number + len(block.lines) for block in found]
    assert [1, *ends[:-1]] == [block.first_number for block in found] or not found


def test_overlong_line_is_refused_before_it_is_read_completely() -> None:
    limits = BlockLimits(10_000, 1 << 20, 1_000)
    with pytest.raises(RecordTooLarge, match="^/dev/zero line 1 is longer than 1000 bytes"):
        blocks(Path("/dev/zero"), limits)


def test_overlong_line_is_reported_with_its_line_number(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"a\nb\n" + b"c" * 11 + b"\n")
    limits = BlockLimits(1, 1 << 20, 10)
    with pytest.raises(RecordTooLarge, match="f line 3 is longer than 10 bytes"):
        blocks(path, limits)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (BlockLimits(2, 100, 4), [[b"abcd", b"ef"], [b"", b"gh"], [b"ij"]]),
        (BlockLimits(9, 6, 4), [[b"abcd", b"ef"], [b"", b"gh", b"ij"]]),
        (BlockLimits(9, 5, 4), [[b"abcd", b"ef"], [b"", b"gh", b"ij"]]),
        (BlockLimits(9, 4, 4), [[b"abcd"], [b"ef", b"", b"gh"], [b"ij"]]),
        (BlockLimits(9, 100, 4), [[b"abcd", b"ef", b"", b"gh", b"ij"]]),
    ],
)
def test_block_ends_with_the_line_that_reaches_its_lines_or_bytes(
    limits: BlockLimits, expected: list[list[bytes]], tmp_path: Path
) -> None:
    """A line may be as long as the limit, also the last one, which has no end."""
    path = tmp_path / "f"
    path.write_bytes(b"abcd\nef\n\ngh\nij")
    assert [block.lines for block in blocks(path, limits)] == expected
    path.write_bytes(b"a\nbcde")
    assert sum(len(block.lines) for block in blocks(path, limits)) == 2


def test_overlong_line_is_refused_with_its_number_in_the_facts(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abcd\n\nefghi")
    with pytest.raises(RecordTooLarge, match="f line 3 is longer than 4 bytes") as refused:
        blocks(path, BlockLimits(9, 100, 4))
    assert refused.value.facts["line"] == 3


def test_closed_stdin_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(UsageError, match="stdin is closed"):
        blocks(Path("-"))


def test_complete_lines_are_returned_when_the_input_pauses() -> None:
    reading, writing = os.pipe()
    found: Iterator[LineBlock] = line_blocks(f"/dev/fd/{reading}", WIDE, Runtime().clock)
    os.write(writing, b"one\ntwo\nhal")
    assert next(found).lines == [b"one", b"two"]
    os.write(writing, b"f\n")
    assert next(found) == LineBlock(f"/dev/fd/{reading}", 3, [b"half"])
    os.close(writing)
    assert list(found) == []
    os.close(reading)


def test_slow_continuous_input_does_not_delay_lines() -> None:
    reading, writing = os.pipe()
    stopped = threading.Event()

    def trickle() -> None:
        while not stopped.wait(0.02):
            os.write(writing, b"x\n")
        os.close(writing)

    writer = threading.Thread(target=trickle)
    writer.start()
    found = line_blocks(f"/dev/fd/{reading}", WIDE, Runtime().clock)
    first = next(found)
    stopped.set()
    writer.join()
    assert set(first.lines) == {b"x"}
    list(found)
    os.close(reading)


@pytest.mark.parametrize("path", ["nope", ".", "a\0b", "/proc/self/mem"])
def test_unreadable_path_raises_usage_error(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        list(line_blocks(path, WIDE, ManualClock()))


def test_require_readable_refuses_missing_files_and_repeated_stdin(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    require_readable([str(tmp_path / "there"), "-"])
    with pytest.raises(UsageError, match="No such file"):
        require_readable([str(tmp_path / "there"), str(tmp_path / "nope")])
    with pytest.raises(UsageError, match="more than once"):
        require_readable(["-", "-"])
