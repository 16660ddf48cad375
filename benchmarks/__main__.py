"""`python -m benchmarks [NAME ...] [--json FILE]`: run benchmarks, and print a table of each.

A NAME selects all benchmarks whose names begin with it, such as `far` for those on a far store.

The exit status is 0 for all figures: a missed target is a finding, not a failure. A wrong result
(such as a missing row) raises.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from benchmarks import (
    commit,
    consumer,
    executors,
    far_clients,
    far_gateway,
    far_large,
    far_micro_batch,
    far_writers,
    growth,
    idle,
    kafka,
    local_writers,
    maintenance,
    memory,
    micro_batch_floor,
    producer,
    requests,
    small_flushes,
    sql,
    tasks,
    throughput,
)
from benchmarks.environment import described, environment
from benchmarks.figures import Figure, table

Benchmark: TypeAlias = Callable[[Path], Sequence[Figure]]

BENCHMARKS: dict[str, Benchmark] = {
    "producer": producer.run,
    "consumer": consumer.run,
    "commit": commit.run,
    "local_writers": local_writers.run,
    "small_flushes": small_flushes.run,
    "growth": growth.run,
    "maintenance": maintenance.run,
    "sql": sql.run,
    "kafka": kafka.run,
    "requests": requests.run,
    "micro_batch_floor": micro_batch_floor.run,
    "throughput": throughput.run,
    "tasks": tasks.run,
    "executors": executors.run,
    "idle": idle.run,
    "memory": memory.run,
    "far_clients": far_clients.run,
    "far_gateway": far_gateway.run,
    "far_large": far_large.run,
    "far_writers": far_writers.run,
    "far_micro_batch": far_micro_batch.run,
}


def main() -> None:
    """Run the benchmarks, print their tables, and write the JSON file."""
    asked = _arguments()
    logging.basicConfig(level=logging.WARNING)
    asked.folder.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="work-", dir=asked.folder))
    try:
        facts = environment(work)
        print("\n".join(["environment", *described(facts)]), flush=True)
        found = {name: _measured(name, work) for name in asked.names}
    finally:
        shutil.rmtree(work, ignore_errors=True)
    target = asked.json or asked.folder / "figures.json"
    figures = {name: [figure.to_json() for figure in taken] for name, taken in found.items()}
    target.write_text(json.dumps({"environment": facts, "figures": figures}, indent=2) + "\n")
    print(f"\n{_summary(found)} Written to {target}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write the figures")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("benchmarks/results"),
        help="where logs are made and deleted again; its disk is what is measured",
    )
    asked = parser.parse_args()
    for name in asked.names:
        if not any(known.startswith(name) for known in BENCHMARKS):
            parser.error(f"there is no benchmark {name!r}; there are: {', '.join(BENCHMARKS)}")
    asked.names = [name for name in BENCHMARKS if name.startswith(tuple(asked.names) or "")]
    return asked


def _measured(name: str, work: Path) -> Sequence[Figure]:
    folder = work / name
    folder.mkdir()
    found = BENCHMARKS[name](folder)
    shutil.rmtree(folder, ignore_errors=True)
    print("\n" + "\n".join(table(name, found)), flush=True)
    return found


def _summary(found: dict[str, Sequence[Figure]]) -> str:
    judged = [figure for figures in found.values() for figure in figures if figure.target]
    missed = [figure for figure in judged if figure.verdict != "met"]
    names = "".join(f"\n  not met: {figure.name}" for figure in missed)
    return f"{len(judged) - len(missed)} of {len(judged)} targets met.{names}\n"


if __name__ == "__main__":
    main()
