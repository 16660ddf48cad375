"""`python -m tests.soak [--minutes M] [--root FOLDER]`: load for a long time, and a count.

16 producers, 4 copiers and 4 readers on one log, with `txlog maintain` beside them, each in a
process of its own. Prints figures on stdout and progress on stderr. Exits with status 1 if a record
is lost, duplicated or out of order, or if the memory or open files of a run of five minutes or more
grow beyond their bounds (`resources.py`). Speed is not judged.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import fields
from pathlib import Path

from tests.soak.run import Soak, run_soak
from tests.system_test.figures import note, show


def _arguments() -> argparse.Namespace:
    default = {field.name: field.default for field in fields(Soak)}
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default 10)")
    texts = {
        "producers": "processes that write transactions",
        "copiers": "processes that copy them to another topic, exactly once",
        "readers": "processes that read either topic",
        "partitions": "partitions of both topics",
        "transaction_records": "records in a producer's transaction",
        "copier_records": "most records in a copier's transaction",
        "value_bytes": "bytes of a record's value",
    }
    for name, text in texts.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(
            option, type=int, default=default[name], help=f"{text} (default %(default)s)"
        )
    parser.add_argument(
        "--pause-ms",
        type=float,
        default=default["pause_ms"],
        help="pause of a producer between two transactions (default %(default)s)",
    )
    parser.add_argument("--root", default="", help="a new log here, which stays")
    return parser.parse_args()


def main() -> int:
    """Exit status 0 if no record is lost, duplicated or out of order, and no resource grows."""
    asked = vars(_arguments())
    minutes, root = asked.pop("minutes"), asked.pop("root")
    soak = Soak(seconds=minutes * 60, **asked)
    said = Path(tempfile.mkdtemp(prefix="txlog-soak-said-"))
    with tempfile.TemporaryDirectory(prefix="txlog-soak-") as folder:
        report = run_soak(soak, root or f"{folder}/log", said, note)
    report.figures = {"minutes": minutes, "processors": os.cpu_count(), **report.figures}
    show(report.figures, report.problems)
    if report.problems:
        note(f"What the processes said is in {said}")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
