"""The soak test from end to end: start all processes, watch them, stop them, and count.

It judges by what the processes report: every record whose commit was acknowledged to its producer
must have been read once, in order, by every reader, and copied once. In a run of some minutes
memory and open files must not grow, either.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.soak import producing, reading
from tests.soak.producing import ProducerOptions
from tests.soak.reading import ReadingOptions
from tests.soak.resources import Watch
from tests.system_test import copier
from tests.system_test.copier import CopierOptions
from tests.system_test.maintainer import Maintainer
from tests.system_test.run import SystemTestReport
from tests.system_test.topics import INPUT, OUTPUT, share
from txlog.client.admin import Admin
from txlog.clock import Runtime
from txlog.engine.connection import open_connection
from txlog.storage.open import open_store
from txlog.testing.worker_process import PATIENCE_S, WorkerProcess
from txlog.verify.invariants import check_log

SAMPLE_S = 2.0
NOTE_S = 10.0

MAINTENANCE_INTERVAL_MS = 15_000
"""Often for a soak, and rare enough not to dominate the measurement."""

CATCH_UP_S = 1_800.0
"""How long copiers and readers may take for the remaining records after the producers have
ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """The settings of a soak run."""

    seconds: float = 600
    producers: int = 16
    copiers: int = 4
    readers: int = 4
    partitions: int = 8
    transaction_records: int = 10
    copier_records: int = 1_000
    value_bytes: int = 100
    pause_ms: float = 0


@dataclass(slots=True)
class _Commits:
    """The number of commits, and the duration of each, in the order in which they were reported."""

    times_ms: list[float] = field(default_factory=list)

    def described(self, seconds: float) -> str:
        if not self.times_ms:
            return "none"
        p50, p99 = (_quantile(self.times_ms, q) for q in (0.5, 0.99))
        rate = len(self.times_ms) / seconds
        return f"{len(self.times_ms)}, {rate:.1f} a second, p50 {p50:.1f} ms, p99 {p99:.1f} ms"


class _SoakRun:
    def __init__(self, soak: Soak, root: str, folder: Path, note: Callable[[str], None]) -> None:
        self._soak = soak
        self._root = root
        self._folder = folder
        self._note = note
        self._workers: dict[str, list[WorkerProcess]] = {}
        self._commits = {"producers": _Commits(), "copiers": _Commits()}
        self._latest: dict[str, dict[str, Any]] = {}
        """Worker -> its latest message."""
        self._problems: list[str] = []

    def run(self) -> SystemTestReport:
        runtime = Runtime()
        admin = Admin(open_connection(open_store(self._root, runtime), runtime, create=True))
        for topic in (INPUT, OUTPUT):
            admin.create_topic(topic, self._soak.partitions)
        maintainer = Maintainer(self._root, {}, self._folder, "soak", MAINTENANCE_INTERVAL_MS)
        report = SystemTestReport()
        with ExitStack() as stack:
            stack.enter_context(maintainer.at_work())
            stack.callback(self._kill_all)
            self._start_all()
            seconds = self._watch(report)
            self._end_all()
        for name, commits in self._commits.items():
            report.figures[f"commits of {name}"] = commits.described(seconds)
        report.figures["maintenance"] = dict(sorted(maintainer.actions().items()))
        if maintainer.ended:
            report.problems.append(f"txlog maintain ended by itself: {maintainer.ended}")
        self._judge(report)
        return report

    # Processes.

    def _start_all(self) -> None:
        soak = self._soak
        for number in range(soak.producers):
            options = ProducerOptions(
                root=self._root,
                number=number,
                partition=number % soak.partitions,
                transaction_records=soak.transaction_records,
                value_bytes=soak.value_bytes,
                pause_ms=soak.pause_ms,
            )
            self._start("producers", producing.__name__, asdict(options), number)
        for number in range(soak.copiers):
            copying = CopierOptions(
                root=self._root,
                number=number,
                partitions=share(number, soak.copiers, soak.partitions),
                transaction_records=soak.copier_records,
                transaction_timeout_ms=60_000,
            )
            self._start("copiers", copier.__name__, asdict(copying), number)
        for number in range(soak.readers):
            topic = INPUT if number % 2 else OUTPUT
            watching = ReadingOptions(root=self._root, topic=topic)
            self._start("readers", reading.__name__, asdict(watching), number)
        for worker in self._workers["producers"] + self._workers["copiers"]:
            if worker.message() is None:  # Each worker sends one when it has registered.
                raise worker.failure("ended at its start")

    def _start(self, kind: str, module: str, options: Mapping[str, object], number: int) -> None:
        errors = self._folder / f"{kind[:-1]}-{number}.err"
        worker = WorkerProcess(module, options, errors, is_endless=True)
        self._workers.setdefault(kind, []).append(worker)

    def _end_all(self) -> None:
        """Stop each kind of worker once all its input is written."""
        for kind in ("producers", "copiers", "readers"):
            workers = self._workers.get(kind, [])
            for worker in workers:
                worker.end()
            for worker in workers:
                limit_s = PATIENCE_S if kind == "producers" else CATCH_UP_S
                if (status := worker.status(limit_s)) != 0:
                    raise worker.failure(f"ended with status {status}")
            self._note(f"{kind} ended")

    def _kill_all(self) -> None:
        for workers in self._workers.values():
            for worker in workers:
                worker.kill()
        self._listen()

    # During the run.

    def _watch(self, report: SystemTestReport) -> float:
        """Take samples until the time is over; returns the seconds in which commits were
        counted."""
        watches = {kind: Watch([w.pid for w in workers]) for kind, workers in self._workers.items()}
        begun = noted = time.monotonic()
        noted_commits = 0
        while (now := time.monotonic()) - begun < self._soak.seconds:
            time.sleep(SAMPLE_S)
            self._listen()
            for watch in watches.values():
                watch.sample()
            if now - noted >= NOTE_S:
                new = self._commits["producers"].times_ms[noted_commits:]
                self._note(self._line(now - begun, new, now - noted, watches))
                noted, noted_commits = now, noted_commits + len(new)
        for kind, watch in watches.items():
            report.figures[kind] = f"{len(self._workers[kind])}, {watch.described()}"
            report.problems += [f"{kind}: {text}" for text in watch.growth(self._soak.seconds)]
        return time.monotonic() - begun

    def _line(
        self, elapsed_s: float, new_ms: list[float], during_s: float, watches: dict[str, Watch]
    ) -> str:
        memory = sum(watch.samples[-1].rss_bytes for watch in watches.values() if watch.samples)
        files = max(watch.samples[-1].open_files for watch in watches.values() if watch.samples)
        p50, p99 = (_quantile(new_ms, q) if new_ms else 0.0 for q in (0.5, 0.99))
        return (
            f"{elapsed_s:6.0f} s  {len(new_ms) / during_s:6.1f} commits/s  p50 {p50:6.1f} ms  "
            f"p99 {p99:7.1f} ms  committed {self._total('committed')}  copied "
            f"{self._total('done')}  {memory / (1 << 20):.0f} MiB  {files} open files"
        )

    def _total(self, fact: str) -> int:
        return sum(int(facts.get(fact, 0)) for facts in self._latest.values())

    def _listen(self) -> None:
        for kind, workers in self._workers.items():
            for worker in workers:
                for message in worker.messages():
                    self._hear(kind, worker.name, message)

    def _hear(self, kind: str, name: str, message: dict[str, Any]) -> None:
        if "problem" in message:
            self._problems.append(f"{name}: {message['problem']}")
            return
        self._latest[name] = message
        if kind == "producers":
            self._commits[kind].times_ms += message["commits_ms"]
        elif kind == "copiers" and message["copied"]:
            self._commits[kind].times_ms.append(message["commit_ms"])

    # After the run.

    def _judge(self, report: SystemTestReport) -> None:
        committed = {
            str(number): int(self._latest[f"producer-{number}"]["committed"])
            for number in range(self._soak.producers)
        }
        total = sum(committed.values())
        report.figures["records committed"] = total
        report.problems += self._problems
        if (copied := self._total("done")) != total:
            report.problems.append(f"{copied} records were copied of {total}")
        for number in range(self._soak.readers):
            seen = self._latest[f"reader-{number}"]
            if {p: n for p, n in committed.items() if n} != seen["counts"] or seen["problems"]:
                report.problems.append(f"reader {number} saw {seen}, committed were {committed}")
        runtime = Runtime()
        findings = check_log(open_connection(open_store(self._root, runtime), runtime))
        report.figures["findings"] = len(findings)
        report.problems += [str(finding) for finding in findings]


def _quantile(values: list[float], share_below: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share_below), len(ordered) - 1)]


def run_soak(
    soak: Soak, root: str, folder: Path, note: Callable[[str], None] = lambda line: None
) -> SystemTestReport:
    """Run the soak; `folder` receives the processes' stderr. Raises WorkerFailed if a process
    fails."""
    return _SoakRun(soak, root, folder, note).run()
