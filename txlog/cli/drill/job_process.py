"""A streaming job as a process: start it, kill it completely, end it by SIGTERM.

A Spark driver is a tree: Python, its JVM, and the Python daemons and workers of the JVM, which have
process groups of their own. A kill stops every process first, so that none can fork, and all of
them die together. It must not know logs or topics.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from txlog.clock import Runtime

DEATH_WAIT_S = 30
"""How long to wait for killed processes, or those of a killed driver, to be gone."""

LOG_TAIL_LINES = 40

POLL_MS = 200.0

FINISHED = (0, -signal.SIGTERM, 128 + signal.SIGTERM)
"""Exit codes of a job after SIGTERM: 0, the signal's, or a shell's for the signal."""


class JobFailed(RuntimeError):
    """A job ended unexpectedly."""


@dataclass(frozen=True, slots=True)
class Killed:
    """The processes that a SIGKILL hit."""

    processes: int
    cpu_s: float
    """CPU seconds that the whole tree had used."""


@dataclass(slots=True)
class JobProcess:
    """One run of a job."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    orphans: list[psutil.Process] = field(default_factory=list)
    """Workers that were left alive when their driver was killed."""

    @property
    def status(self) -> int | None:
        """The exit code; None while the job runs."""
        return self.process.poll()

    def require_running(self) -> None:
        """Raises JobFailed with the end of the job's log."""
        if self.status is not None:
            raise JobFailed(
                f"job {self.name} ended by itself with status {self.status}; the end of "
                f"{self.log}:\n{tail(self.log)}"
            )

    def kill(self, *, with_workers: bool = True) -> Killed:
        """SIGKILL to the driver, its JVM and, if wanted, all their Python workers at once.

        Workers left alive continue until they notice that their driver is gone. A job that has
        ended is left alone.
        """
        if self.process.poll() is not None:
            return Killed(0, 0.0)
        frozen = _frozen(self.process.pid)
        # Read while the processes are stopped: a dead one reports no CPU time.
        cpu_s = sum(_cpu_s(process) for process in frozen)
        doomed = [p for p in frozen if with_workers or _is_driver(p, self.process.pid)]
        for process in doomed:
            _send(process, signal.SIGKILL)
        self.orphans = [process for process in frozen if process not in doomed]
        # Continued only now: they find their driver dead and can report nothing to it.
        for process in self.orphans:
            _send(process, signal.SIGCONT)
        self.process.wait(DEATH_WAIT_S)
        if left := _left(doomed):  # The following rounds would prove nothing.
            raise JobFailed(f"{left[0]} does not die; end it, and start again.")
        return Killed(len(doomed), cpu_s)

    def end_orphans(self) -> int:
        """Wait for workers without a driver to end, then kill the rest; returns their number."""
        left = _left(self.orphans)
        for process in left:
            _send(process, signal.SIGKILL)
        self.orphans = []
        return len(left)

    def finish(self, timeout_s: float) -> float:
        """End it by SIGTERM, which it need not handle; its CPU seconds. Raises JobFailed.

        A driver that the signal ends leaves its JVM and workers behind for a short time; this waits
        until they are gone, too.
        """
        self.require_running()
        family = _tree(self.process.pid)  # A dead driver's children cannot be found.
        self.process.send_signal(signal.SIGTERM)
        clock = Runtime().clock
        deadline_ms = clock.monotonic_ms() + timeout_s * 1000
        cpu_s = 0.0
        while self.status is None and clock.monotonic_ms() < deadline_ms:
            family += [process for process in _tree(self.process.pid) if process not in family]
            # The largest sum so far: a process that has ended is no longer counted.
            cpu_s = max(cpu_s, sum(_cpu_s(process) for process in family))
            clock.sleep_ms(POLL_MS)
        status = self.status
        if status is None:
            self.kill()
        self.orphans = [process for process in family if process.pid != self.process.pid]
        self.end_orphans()
        if status not in FINISHED:
            how = f"had not after {timeout_s:.0f} s" if status is None else f"ended with {status}"
            raise JobFailed(
                f"job {self.name} was asked to finish by SIGTERM, and {how}; the end of "
                f"{self.log}:\n{tail(self.log)}"
            )
        return cpu_s


def start(
    name: str,
    command: Sequence[str],
    *,
    folder: Path,
    log: Path,
    environment: Mapping[str, str],
) -> JobProcess:
    """Run a command in a new session; its output goes to `log`."""
    with log.open("wb") as output:
        # In a session of its own, the job does not get the terminal's Ctrl-C: the drill ends it.
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return JobProcess(name, process, log)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Deliver SIGINT and SIGTERM after the block, in which a job starts and is not yet recorded.

    Raises KeyboardInterrupt at the end if one came. Other threads than the main one get none.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _: came.append(number)) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


def tail(log: Path) -> str:
    """The last lines of a log."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-LOG_TAIL_LINES:])


def _tree(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    return []


def _frozen(pid: int) -> list[psutil.Process]:
    """Every process of the tree, stopped; searched again until no new one appears."""
    frozen: list[psutil.Process] = []
    while fresh := [process for process in _tree(pid) if process not in frozen]:
        for process in fresh:
            _send(process, signal.SIGSTOP)
        frozen += fresh
    return frozen


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def _is_driver(process: psutil.Process, pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.pid == pid or str(process.name()) == "java"
    return False


def _is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        # A zombie is dead, though its parent has not fetched its exit code yet.
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def _cpu_s(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0


def _left(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that are still alive after the time limit."""
    clock = Runtime().clock
    deadline_ms = clock.monotonic_ms() + DEATH_WAIT_S * 1000
    left = list(processes)
    while left := [process for process in left if _is_alive(process)]:
        if clock.monotonic_ms() > deadline_ms:
            break
        clock.sleep_ms(10.0)
    return left
