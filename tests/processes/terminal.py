"""A command on a real terminal: what it prints there, and what is typed."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
from collections.abc import Sequence
from typing import Any

import psutil

from tests.processes.command_line import command, environment

TIMEOUT_S = 60
ROWS, COLUMNS = 40, 120


class Terminal:
    """A command that runs on a terminal of its own."""

    def __init__(self, *words: object, prefix: Sequence[str] = (), **variables: str) -> None:
        """`prefix`: words in front of the command, such as those that take its permissions."""
        self._own, self._theirs = pty.openpty()
        fcntl.ioctl(self._own, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            [*prefix, *command(*words)],
            stdin=self._theirs, stdout=self._theirs, stderr=self._theirs,
            env=environment(**variables), start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        self.shown = ""

    @property
    def modes(self) -> list[Any]:
        """How it treats input and output: echo, lines, signals."""
        return termios.tcgetattr(self._theirs)

    def until(self, end: str) -> str:
        """What is printed up to `end`, which may be printed already."""
        while end not in self.shown:
            ready, _, _ = select.select([self._own], [], [], TIMEOUT_S)
            assert ready, f"waited for {end!r}, and saw {self.shown!r}"
            self._read()
        before, _, self.shown = self.shown.partition(end)
        return before

    def until_busy(self) -> None:
        """Return when it has computed for a second since now."""
        process = psutil.Process(self.process.pid)
        began = sum(process.cpu_times()[:2])
        while sum(process.cpu_times()[:2]) < began + 1:
            self._read_ready(0.1)

    def until_ended(self) -> tuple[int, str]:
        """Its exit code, and what it has printed since the last `until`."""
        while self.process.poll() is None:
            self._read_ready(0.1)
        while self._read_ready(0):
            pass
        return self.process.returncode, self.shown

    def _read_ready(self, timeout_s: float) -> bool:
        ready, _, _ = select.select([self._own], [], [], timeout_s)
        if ready:
            self._read()
        return bool(ready)

    def _read(self) -> None:
        self.shown += os.read(self._own, 65_536).decode(errors="replace").replace("\r\n", "\n")

    def type(self, text: str) -> None:
        """Type this."""
        os.write(self._own, text.encode())

    def interrupt_input(self) -> None:
        """Type Ctrl-C once it waits for a key. Python's `input` keeps one that comes between its
        prompt and its wait until the next key."""
        while psutil.Process(self.process.pid).status() != psutil.STATUS_SLEEPING:
            assert self.process.poll() is None
            self._read_ready(0.001)
        self.type("\x03")

    def close(self) -> None:
        """End it with Ctrl-D."""
        self.type("\x04")
        assert self.process.wait(TIMEOUT_S) == 0
        os.close(self._own)
        os.close(self._theirs)
