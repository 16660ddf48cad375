"""Supervises one copier: starts, kills, stops and replaces its process.

A supervisor runs on a thread of its own. It raises WorkerFailed if a process ends, or falls silent,
without a planned fault.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from tests.system_test.process_faults import ProcessFault, ProcessFaultKind
from txlog.testing.worker_process import FENCED_STATUS, WorkerProcess


@dataclass(slots=True)
class SupervisorTally:
    """The events of one copier so far."""

    faults: Counter[ProcessFaultKind] = field(default_factory=Counter)
    fenced: int = 0
    """The number of processes that noticed that they had been replaced."""
    starts: int = 0
    done: int = 0
    """The number of records copied, by the position of the newest process."""


class ProcessSupervisor:
    """One copier and its faults."""

    def __init__(self, start: Callable[[int], WorkerProcess], plan: Sequence[ProcessFault]) -> None:
        """`start` gets the number of processes started before."""
        self.tally = SupervisorTally()
        self._start_process = start
        self._plan = list(plan)
        self._noted_s: float | None = None
        self._intervals_s: list[float] = []
        """The times between two commits, including all pauses, if there was no fault between the
        two."""
        self._process = self._started()

    def run(self) -> None:
        """Run until the copier has ended by itself and every fault was injected."""
        try:
            while (message := self._process.message()) is not None:
                self._note(message)
                while self._plan and self.tally.done >= self._plan[0].at_records:
                    self._inject(self._plan.pop(0))
            self._process.require_success()
        finally:
            self._process.resume()
            self._process.kill()

    def _started(self) -> WorkerProcess:
        process = self._start_process(self.tally.starts)
        self.tally.starts += 1
        return process

    def _note(self, message: dict[str, Any]) -> None:
        now_s = time.monotonic()
        if self._noted_s is not None:
            self._intervals_s.append(now_s - self._noted_s)
        self._noted_s = now_s
        self.tally.done = int(message["done"])

    def _inject(self, fault: ProcessFault) -> None:
        if self._intervals_s:
            time.sleep(fault.delay_share * median(self._intervals_s))
        if fault.kind is ProcessFaultKind.KILL:
            self._process.kill()
            self._process = self._started()
        else:
            self._process.suspend()
            if fault.kind is ProcessFaultKind.TAKEOVER:
                self._replace()
            else:
                time.sleep(fault.stop_s)
                self._process.resume()
        self.tally.faults[fault.kind] += 1
        self._noted_s = None

    def _replace(self) -> None:
        """The first instance continues once the second has started work, and must notice that it is
        fenced."""
        stopped, self._process = self._process, self._started()
        try:
            if (message := self._process.message()) is None:
                raise self._process.failure("ended where it was to take over")
            self._note(message)
            stopped.resume()
            status = stopped.status()
        finally:
            stopped.resume()
            stopped.kill()
        if status not in (0, FENCED_STATUS):
            raise stopped.failure(f"ended with status {status} after it was replaced")
        self.tally.fenced += status == FENCED_STATUS
