"""`python -m tests.system_test [--records N] [--store disk|s3|proxy|far]`: the long form.

Copies records exactly once with processes that are killed, stopped and replaced, and compares the
output with the input. Prints figures on stdout and progress on stderr. Exits with status 1 if a
record is lost, duplicated, out of order or visible too early.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from dataclasses import fields
from pathlib import Path

from tests.system_test.figures import note, show
from tests.system_test.process_faults import ProcessFaultCounts
from tests.system_test.run import SystemTest, run_system_test
from tests.system_test.store_location import StoreKind, store_location

TIMEOUTS_MS = {
    StoreKind.DISK: 1_500,
    StoreKind.S3: 4_000,
    StoreKind.PROXY: 8_000,
    StoreKind.FAR: 6_000,
}
"""A transaction must fit into this timeout; a stopped process is stopped for longer."""


def _arguments() -> argparse.Namespace:
    default = {field.name: field.default for field in fields(SystemTest)}
    parser = argparse.ArgumentParser(prog="python -m tests.system_test", description=__doc__)
    numbers = {
        "--records": (default["records"], "records to copy"),
        "--copiers": (default["copiers"], "processes that copy"),
        "--partitions": (default["partitions"], "partitions of both topics"),
        "--transaction-records": (default["transaction_records"], "records in a transaction"),
        "--kills": (3, "times that each copier is killed (-9)"),
        "--stops": (3, "times that each is stopped for longer than its transaction may last"),
        "--takeovers": (1, "times that each is stopped, replaced, and continued"),
    }
    for name, (value, text) in numbers.items():
        parser.add_argument(name, type=int, default=value, help=f"{text} (default {value})")
    parser.add_argument(
        "--pause-ms",
        type=float,
        default=default["pause_ms"],
        help="longest pause of a copier after each step (default %(default)s)",
    )
    parser.add_argument(
        "--store",
        type=StoreKind,
        choices=list(StoreKind),
        default=StoreKind.DISK,
        help="a temporary folder, an S3 server on this machine, or that behind a line that cuts, "
        "delays and loses answers, or 30 ms away (default %(default)s)",
    )
    parser.add_argument("--root", default="", help="a new log here instead; it is not deleted")
    parser.add_argument("--timeout-ms", type=int, help="transaction.timeout.ms of the copiers")
    parser.add_argument("--seed", type=int, help="of all chance; printed if it is not given")
    parser.add_argument(
        "--no-maintenance", action="store_true", help="without `txlog maintain` beside the copiers"
    )
    return parser.parse_args()


def _test(asked: argparse.Namespace) -> SystemTest:
    seed = random.randrange(1 << 32) if asked.seed is None else asked.seed
    return SystemTest(
        records=asked.records,
        copiers=asked.copiers,
        partitions=max(asked.partitions, asked.copiers),
        transaction_records=asked.transaction_records,
        transaction_timeout_ms=asked.timeout_ms or TIMEOUTS_MS[asked.store],
        pause_ms=asked.pause_ms,
        counts=ProcessFaultCounts(asked.kills, asked.stops, asked.takeovers),
        is_maintained=not asked.no_maintenance,
        seed=seed,
    )


def main() -> int:
    """Exit status 0 if no problem was found."""
    asked = _arguments()
    test = _test(asked)
    note(f"seed {test.seed}")
    folder = Path(tempfile.mkdtemp(prefix="txlog-system-test-said-"))
    with store_location(asked.store, asked.root, test.seed) as location:
        report = run_system_test(test, location, folder, note)
    report.figures = {"seed": test.seed, "store": asked.root or str(asked.store), **report.figures}
    show(report.figures, report.problems)
    if report.problems:
        note(f"What the processes said is in {folder}")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
