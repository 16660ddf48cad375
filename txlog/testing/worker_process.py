"""A process that speaks JSON lines: started, stopped, continued and killed from outside.

The system test and the soak are made of such processes, because threads cannot be killed.
`WorkerProcess` controls one from outside; `tell`, `told_to_end` and `again` are for the program
inside. It must not know what the workers do.
"""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from txlog.errors import OutcomeUnknown, TxlogError

T = TypeVar("T")

FENCED_STATUS = 3
"""The exit status of a worker that another instance has replaced."""

PATIENCE_S = 120.0
"""How long a worker repeats a call that may be repeated, and how long it may be silent."""

_PAUSE_S = 0.05
_ROOT = Path(__file__).parents[2]


class WorkerFailed(Exception):
    """A worker ended or fell silent unexpectedly."""


class WorkerProcess:
    """`python -m module OPTIONS`, with its messages in a queue and its stderr in a file."""

    def __init__(
        self,
        module: str,
        options: Mapping[str, object],
        errors: Path,
        environment: Mapping[str, str] | None = None,
        *,
        is_endless: bool = False,
    ) -> None:
        """An `is_endless` worker runs until `end`; any other ends when its work is done."""
        self.name = errors.stem
        self._errors = errors
        self._messages: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        with errors.open("ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, json.dumps(options)],
                env={**os.environ, "PYTHONPATH": _python_path(), **(environment or {})},
                stdin=subprocess.PIPE if is_endless else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.endswith(b"\n"):  # A dead process may have left an incomplete last line.
                    self._messages.put(json.loads(line))
        self._messages.put(None)

    def message(self, timeout_s: float = PATIENCE_S) -> dict[str, Any] | None:
        """The next message, or None once the worker has ended. Raises WorkerFailed if none comes in
        time."""
        try:
            return self._messages.get(timeout=timeout_s)
        except queue.Empty as error:
            raise WorkerFailed(f"{self.name} was silent for {timeout_s:.0f} s.") from error

    def messages(self) -> list[dict[str, Any]]:
        """The messages that have arrived so far; does not wait."""
        found = []
        while not self._messages.empty():
            if (message := self._messages.get()) is not None:
                found.append(message)
        return found

    def suspend(self) -> None:
        """Stop the process with SIGSTOP, wherever it is."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it continue with SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it with SIGKILL; it has ended on return."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """Tell the worker that no more input comes."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def status(self, timeout_s: float = PATIENCE_S) -> int:
        """The exit status. Raises WorkerFailed if the worker does not end."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise WorkerFailed(f"{self.name} did not end within {timeout_s:.0f} s.") from error

    def require_success(self) -> None:
        """Raises WorkerFailed, with the end of its stderr, if the exit status is not 0."""
        if (status := self.status()) != 0:
            raise self.failure(f"ended with status {status}")

    def failure(self, what: str) -> WorkerFailed:
        """An error that names the worker and holds the end of its stderr."""
        said = self._errors.read_text(errors="replace")[-3_000:]
        return WorkerFailed(f"{self.name} {what}; it said:\n{said}")


def _python_path() -> str:
    known = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(_ROOT), known] if known else [str(_ROOT)])


# Inside a worker.


def tell(**facts: object) -> None:
    """Send a message; it is sent when this returns."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def told_to_end() -> bool:
    """Whether no more input comes."""
    readable, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(readable)


def again(call: Callable[[], T]) -> T:
    """Repeat the call, unchanged, while its error says that this may help (docs: errors)."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except TxlogError as error:
            may_help = error.retriable or isinstance(error, OutcomeUnknown)
            if not may_help or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_S)
