"""Lines of files and of stdin, in blocks that are yielded as soon as the input pauses.

A line without an end takes no more memory than its limit (I16), and lines that are typed, or come
from `tail -f`, do not wait for a full block. It must not know what a line means.
"""

from __future__ import annotations

import contextlib
import select
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from txlog.clock import Clock
from txlog.errors import RecordTooLarge, UsageError

STDIN = "-"
READ_BYTES = 1 << 18
LINGER_MS = 200
"""How long a line waits for further lines while the input pauses."""


@dataclass(frozen=True, slots=True)
class BlockLimits:
    """When a block is full, and the limit of one line."""

    lines: int
    size_bytes: int
    line_bytes: int


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Consecutive lines of one input, without their line ends."""

    origin: str
    first_number: int
    """Number of the first line, from 1."""
    lines: Sequence[bytes]


def require_readable(paths: Sequence[str]) -> None:
    """Check the inputs before anything is read or written. Raises UsageError."""
    if paths.count(STDIN) > 1:
        raise UsageError("'-' (stdin) is given more than once; it can be read only once.")
    for path in paths:
        # A named pipe is opened once: a second reader would wait for a second writer, and what the
        # first writer has written would be lost.
        if not Path(path).is_fifo():
            with opened(path):
                pass


@contextlib.contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """The bytes of a file, or of stdin for '-'. Raises UsageError."""
    if path == STDIN:
        if sys.stdin is None:  # Closed by the caller: `txlog ... <&-`.
            raise UsageError("stdin is closed; name a file, or pipe records in.")
        yield sys.stdin.buffer
        return
    try:
        stream = Path(path).open("rb")  # noqa: SIM115 - it is closed below
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    with stream:
        yield stream


def unreadable(path: str, error: Exception) -> UsageError:
    """The error for an input that cannot be read."""
    reason = getattr(error, "strerror", None) or error
    return UsageError(f"{origin_name(path)} cannot be read: {reason}.")


def origin_name(path: str) -> str:
    """How messages name an input."""
    return "stdin" if path == STDIN else path


def line_blocks(path: str, limits: BlockLimits, clock: Clock) -> Iterator[LineBlock]:
    """The lines of a file, or of stdin. Raises UsageError, RecordTooLarge naming the line.

    A last line without an end counts; an empty input has none.
    """
    with opened(path) as stream:
        try:
            yield from _Blocks(path, stream, limits, clock).blocks()
        except OSError as error:
            raise unreadable(path, error) from error


class _Blocks:
    """Reads one input."""

    def __init__(self, path: str, stream: BinaryIO, limits: BlockLimits, clock: Clock) -> None:
        self._origin = origin_name(path)
        self._stream = stream
        self._limits = limits
        self._clock = clock
        self._lines: list[bytes] = []
        self._size = 0
        self._number = 1
        self._since_ms = 0.0
        self._rest: list[bytes] = []
        self._rest_size = 0
        """The size of the line whose end was not read yet."""

    def blocks(self) -> Iterator[LineBlock]:
        """See `line_blocks`."""
        while data := self._read():
            first, *others = data.split(b"\n")
            self._rest.append(first)
            self._rest_size += len(first)
            for line in others:
                self._end_line()
                self._rest, self._rest_size = [line], len(line)
                if len(self._lines) >= self._limits.lines or self._size >= self._limits.size_bytes:
                    yield self._block()
            # Before the line ends: without a line end the input would fill the memory (I16).
            self._require_short(self._rest_size)
            if self._lines and self._has_paused():
                yield self._block()
        if self._rest_size:
            self._end_line()
        if self._lines:
            yield self._block()

    def _read(self) -> bytes:
        """The available bytes, at least one; empty at the end."""
        # One system call, so that a pipe's bytes need not fill a block. It asks for more than the
        # buffer's size, and so leaves nothing in the buffer, where select() would not see it.
        read1 = getattr(self._stream, "read1", self._stream.read)
        data: bytes = read1(READ_BYTES)
        return data

    def _end_line(self) -> None:
        self._require_short(self._rest_size)
        if not self._lines:
            # Only the block's first line sets it: a steady trickle must not hold the block back.
            self._since_ms = self._clock.monotonic_ms()
        self._lines.append(b"".join(self._rest))
        self._size += self._rest_size

    def _require_short(self, length: int) -> None:
        if length > self._limits.line_bytes:
            number = self._number + len(self._lines)
            raise RecordTooLarge(
                f"{self._origin} line {number} is longer than {self._limits.line_bytes} bytes, so "
                "its record is over the topic's max.message.bytes; send less, or raise the limit "
                "with 'txlog topic config'.",
                line=number,
            )

    def _has_paused(self) -> bool:
        """Whether the oldest line has waited for LINGER_MS without further input."""
        left_ms = self._since_ms + LINGER_MS - self._clock.monotonic_ms()
        if left_ms <= 0:
            return True
        try:
            readable, _, _ = select.select([self._stream], [], [], left_ms / 1000)
        except (OSError, ValueError, TypeError):  # Not a descriptor: all input is available.
            return False
        return not readable

    def _block(self) -> LineBlock:
        block = LineBlock(self._origin, self._number, self._lines)
        self._number += len(self._lines)
        self._lines, self._size = [], 0
        return block
