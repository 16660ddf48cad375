"""The system test from end to end: fill, copy under faults, compare.

It starts the processes and judges their output; `process_supervisor.py` injects the faults and
`comparison.py` compares. Checks I3, I5, I6 and I8 with real processes, on a real store.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.system_test import copier, reader
from tests.system_test.comparison import PartitionRecords, Seen, compared
from tests.system_test.copier import CopierOptions
from tests.system_test.maintainer import Maintainer
from tests.system_test.process_faults import (
    ProcessFaultCounts,
    ProcessFaultKind,
    planned_faults,
)
from tests.system_test.process_supervisor import ProcessSupervisor
from tests.system_test.reader import ReaderProcessOptions
from tests.system_test.store_location import StoreLocation
from tests.system_test.topics import GROUP, INPUT, OUTPUT, records_in, share
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import Connection, open_connection
from txlog.model import Decision
from txlog.storage.open import open_store
from txlog.testing.worker_process import WorkerProcess
from txlog.verify.invariants import log_facts

PROGRESS_S = 2.0

MAINTENANCE_INTERVAL_MS = 500
"""Passes with almost no pause, so that maintenance collides with all other processes."""

MAINTAINER_LIFE_TIMEOUTS = 8
"""Maintenance is killed after this many transaction timeouts on average: several passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemTest:
    """The settings of a system test."""

    records: int = 100_000
    copiers: int = 4
    partitions: int = 8
    transaction_records: int = 750
    transaction_timeout_ms: int = 1_500
    pause_ms: float = 40
    """The longest pause of a copier after each step of a transaction."""
    counts: ProcessFaultCounts = field(default_factory=ProcessFaultCounts)
    is_maintained: bool = True
    seed: int = 0


@dataclass(slots=True)
class SystemTestReport:
    """The results."""

    figures: dict[str, object] = field(default_factory=dict)
    """Name -> value, in the order of display."""
    problems: list[str] = field(default_factory=list)
    """Empty if input and output are the same, record for record."""


class _SystemTestRun:
    """One run, step by step."""

    def __init__(
        self, test: SystemTest, location: StoreLocation, folder: Path, note: Callable[[str], None]
    ) -> None:
        self._test = test
        self._location = location
        self._folder = folder
        self._note = note
        self._begun = time.monotonic()

    def run(self) -> SystemTestReport:
        self._fill(self._connection(create=True))
        maintainer = Maintainer(
            self._location.root,
            self._location.environment,
            self._folder,
            f"{self._test.seed} maintainer",
            MAINTENANCE_INTERVAL_MS,
            life_s=self._test.transaction_timeout_ms * MAINTAINER_LIFE_TIMEOUTS / 1e3,
        )
        upkeep = maintainer.at_work() if self._test.is_maintained else nullcontext()
        begun = time.monotonic()
        with self._location.faulty(), upkeep:
            reader_process = self._reader()
            try:
                supervisors = self._copy(reader_process)
                reader_process.end()
                reader_process.require_success()
            finally:
                reader_process.kill()
        report = SystemTestReport()
        report.figures["seconds"] = round(time.monotonic() - begun, 1)
        self._count(report, supervisors, maintainer)
        self._judge(report)
        return report

    def _connection(self, *, create: bool = False) -> Connection:
        """Directly to the store, because no process has opened the log before."""
        runtime = Runtime()
        store = open_store(self._location.root, runtime, self._location.storage_options)
        return open_connection(store, runtime, create=create)

    # Before the copiers run.

    def _fill(self, connection: Connection) -> None:
        admin = Admin(connection)
        for topic in (INPUT, OUTPUT):
            admin.create_topic(topic, self._test.partitions)
        with Producer(connection) as producer:
            for number in range(self._test.records):
                partition = number % self._test.partitions
                producer.send(INPUT, b"%d" % number, partition=partition)
        self._note(f"{self._test.records} records in {self._location.root}")

    # While the copiers run.

    def _reader(self) -> WorkerProcess:
        options = ReaderProcessOptions(
            root=self._location.root, topic=OUTPUT, seen_file=str(self._folder / "seen")
        )
        return WorkerProcess(
            reader.__name__,
            asdict(options),
            self._folder / "reader.err",
            self._location.environment,
            is_endless=True,
        )

    def _copy(self, reader_process: WorkerProcess) -> list[ProcessSupervisor]:
        """Run all copiers with their faults; raises the error of the first that failed."""
        supervisors = [self._supervisor(number) for number in range(self._test.copiers)]
        with ThreadPoolExecutor(len(supervisors)) as pool:
            ends = [pool.submit(supervisor.run) for supervisor in supervisors]
            seen = 0
            while wait(ends, PROGRESS_S).not_done:
                seen = max([seen, *(int(message["seen"]) for message in reader_process.messages())])
                self._progress(supervisors, seen)
        for end in ends:
            end.result()
        return supervisors

    def _supervisor(self, number: int) -> ProcessSupervisor:
        test = self._test
        chance = random.Random(f"{test.seed} copier {number}")
        partitions = share(number, test.copiers, test.partitions)
        own_records = sum(records_in(p, test.partitions, test.records) for p in partitions)
        plan = planned_faults(chance, test.counts, own_records, test.transaction_timeout_ms)

        def start(starts: int) -> WorkerProcess:
            options = CopierOptions(
                root=self._location.root,
                number=number,
                partitions=partitions,
                transaction_records=test.transaction_records,
                transaction_timeout_ms=test.transaction_timeout_ms,
                pause_ms=test.pause_ms,
                seed=f"{test.seed} copier {number} process {starts}",
            )
            errors = self._folder / f"copier-{number}-{starts}.err"
            return WorkerProcess(
                copier.__name__, asdict(options), errors, self._location.environment
            )

        return ProcessSupervisor(start, plan)

    def _progress(self, supervisors: list[ProcessSupervisor], seen: int) -> None:
        done = sum(supervisor.tally.done for supervisor in supervisors)
        faults = ", ".join(f"{count} {kind}s" for kind, count in _fault_counts(supervisors).items())
        self._note(
            f"{time.monotonic() - self._begun:5.0f} s  {done} of {self._test.records} copied, "
            f"{seen} seen; {faults}"
        )

    # After the copiers have ended.

    def _count(
        self, report: SystemTestReport, supervisors: list[ProcessSupervisor], maintainer: Maintainer
    ) -> None:
        figures = report.figures
        figures["records"] = self._test.records
        figures["copiers"] = self._test.copiers
        for kind, count in _fault_counts(supervisors).items():
            figures[f"{kind}s"] = count
        figures["fenced"] = sum(supervisor.tally.fenced for supervisor in supervisors)
        for supervisor in supervisors:
            for kind in ProcessFaultKind:
                wanted = getattr(self._test.counts, f"{kind}s")
                if supervisor.tally.faults[kind] < wanted:
                    report.problems.append(f"fewer {kind}s than asked for: {supervisor.tally}")
        if self._test.is_maintained:
            figures["maintenance killed"] = maintainer.kills
            figures["maintenance"] = dict(sorted(maintainer.actions().items()))
            if maintainer.ended:
                report.problems.append(f"txlog maintain ended by itself: {maintainer.ended}")
        if self._location.network_faults:
            figures["network faults"] = dict(sorted(self._location.network_faults.counts.items()))

    def _judge(self, report: SystemTestReport) -> None:
        connection = self._connection()
        expected = {p: [b"%d" % n for n in self._numbers(p)] for p in range(self._test.partitions)}
        found = compared(expected, self._read(connection), self._seen())
        for name in ("duplicates", "lost", "strangers"):
            report.figures[name] = getattr(found, name)
        report.problems += found.problems
        if (lag := Admin(connection).describe_group(GROUP).lag) != 0:
            report.problems.append(f"the group lags by {lag} records")
        self._judge_bytes(report, connection)

    def _judge_bytes(self, report: SystemTestReport, connection: Connection) -> None:
        facts = log_facts(connection)
        markers = [topic.decisions() for topic in facts.topics.values() if topic.name == OUTPUT]
        for decision in (Decision.COMMIT, Decision.ABORT):
            ended = [tx_id for each in markers for tx_id, d in each.items() if d is decision]
            report.figures[f"transactions with {decision}"] = len(ended)
        findings = facts.all_findings()
        report.figures["findings"] = len(findings)
        report.problems += [str(finding) for finding in findings]

    def _numbers(self, partition: int) -> range:
        return range(partition, self._test.records, self._test.partitions)

    def _read(self, connection: Connection) -> PartitionRecords:
        consumer = Consumer(
            OUTPUT,
            root=connection,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        found: dict[int, list[Seen]] = {}
        while polled := consumer.poll(timeout_ms=1_000, max_records=100_000):
            for where, records in polled.items():
                found.setdefault(where.partition, []).extend((r.offset, r.value) for r in records)
        return found

    def _seen(self) -> PartitionRecords:
        found: dict[int, list[Seen]] = {}
        for line in (self._folder / "seen").read_bytes().splitlines():
            partition, offset, value = line.split()
            found.setdefault(int(partition), []).append((int(offset), value))
        return found


def _fault_counts(supervisors: list[ProcessSupervisor]) -> Counter[ProcessFaultKind]:
    total = Counter(dict.fromkeys(ProcessFaultKind, 0))
    for supervisor in supervisors:
        total.update(supervisor.tally.faults)
    return total


def run_system_test(
    test: SystemTest,
    location: StoreLocation,
    folder: Path,
    note: Callable[[str], None] = lambda line: None,
) -> SystemTestReport:
    """Run the test; `folder` receives the processes' output. Raises WorkerFailed if a process
    fails."""
    return _SystemTestRun(test, location, folder, note).run()
