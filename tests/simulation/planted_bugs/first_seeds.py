"""Finds the first seed that shows each planted bug: rows of the table in docs/dev/planted-bugs.md.

`python -m tests.simulation.planted_bugs.first_seeds --help`. When the simulation changes, a seed
gives another history.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace

import pytest

from tests.simulation.planted_bugs.mutant import Mutant
from tests.simulation.planted_bugs.mutants import MUTANTS
from tests.simulator.environment.world import forget_logs


def row(name: str, mutant: Mutant) -> str:
    """The table's row for the bug."""
    length = f", with {mutant.requests_max} requests" if mutant.requests_max else ""
    seed = f"none of {mutant.unseen_seeds}" if mutant.unseen_seeds else mutant.seed
    return f"| {name} | {mutant.scenario} | {seed}{length} |"


def shown(mutant: Mutant, seeds: Sequence[int]) -> Generator[tuple[int, Counter[str]]]:
    """The seeds that show the bug, with the kinds of anomalies found."""
    forget_logs()
    try:
        with pytest.MonkeyPatch.context() as patch:
            mutant.plant(patch)
            if mutant.beside is not None:
                mutant.beside(patch)
            for seed in seeds:
                if kinds := mutant.kinds(seed):
                    yield seed, kinds
    finally:
        forget_logs()


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns exit code 1 if one of the bugs is not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.planted_bugs.first_seeds")
    parser.add_argument("names", nargs="*", help="parts of the names of planted bugs; all of them")
    parser.add_argument("--seeds", type=int, default=300, help="how many are tried (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the seed to begin with (%(default)s)")
    parser.add_argument(
        "--stated", action="store_true", help="try the stated seed alone; tell who is not found"
    )
    asked = parser.parse_args(arguments)
    missing = 0
    for name, mutant in MUTANTS.items():
        if asked.names and not any(part in name for part in asked.names):
            continue
        last = asked.first + asked.seeds
        if asked.stated and mutant.unseen_seeds:
            continue
        seeds = [mutant.seed] if asked.stated else range(asked.first, last)
        with closing(shown(mutant, seeds)) as found:  # The bug must be gone before the next one.
            seed, kinds = next(found, (None, Counter[str]()))
        if seed is None:
            missing += 1
            print(f"{name}: not in {len(seeds)} seeds from {seeds[0]} (stated {mutant.seed})")
        elif not asked.stated:
            counts = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
            print(f"{row(name, replace(mutant, seed=seed, unseen_seeds=0))} {counts}", flush=True)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
