"""Mutation testing, module by module: `make mutants`, or `python -m tests.mutation --help`."""

import argparse
import os
import sys
from collections.abc import Sequence

from tests.mutation.modules import MODULES, Mutated
from tests.mutation.mutant import Mutant
from tests.mutation.run import WORK, MutationFailed, outcome, prepare, renew_tests, run
from tests.mutation.unchanged import listed

AIM = 0.95
ROW = "| {:<20} | {:>7} | {:>6} | {:>9} | {:>9} | {:>6} | {:>7} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Mutates the modules asked for; 0 if each reaches the aim, 1 if one does not."""
    asked = _parser().parse_args(arguments)
    print(ROW.format("module", "mutants", "killed", "unchanged", "survivors", "score", "tests s"))
    failed = 0
    for name in asked.module or MODULES:
        try:
            failed += not _judged(name, MODULES[name], asked)
        except MutationFailed as error:
            failed += 1
            print(f"{name}: {error}", file=sys.stderr)
    return 1 if failed else 0


def _judged(name: str, module: Mutated, asked: argparse.Namespace) -> bool:
    folder = WORK / name
    if asked.survivors and folder.exists():
        renew_tests(folder, module)
        run(folder, module, asked.workers, [one.name for one in outcome(folder, module).survivors])
    elif not asked.report:
        run(prepare(name, module), module, asked.workers)
    found = outcome(folder, module)
    survivors = [one for one in found.survivors if not _is_listed(name, one)]
    counted = found.killed + len(survivors)
    score = found.killed / counted if counted else 1.0
    unchanged = len(found.survivors) - len(survivors)
    seconds = f"{found.tests_seconds:.1f}"
    figures = (
        counted + unchanged,
        found.killed,
        unchanged,
        len(survivors),
        f"{score:.1%}",
        seconds,
    )
    print(ROW.format(name, *figures), flush=True)
    if asked.verbose:
        print(*survivors, sep="\n")
    return score >= AIM


def _is_listed(module: str, mutant: Mutant) -> bool:
    return any(one.module == module and one.covers(mutant) for one in listed())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation",
        description="Change the product line by line and see whether its fast tests notice. "
        f"Copies of the project and mutmut's logs are kept in {WORK}.",
    )
    parser.add_argument(
        "module", nargs="*", help=f"of {', '.join(MODULES)}; all of them by default"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2, help="processes")
    parser.add_argument("--verbose", action="store_true", help="print every survivor")
    again = parser.add_mutually_exclusive_group()
    again.add_argument(
        "--survivors",
        action="store_true",
        help="try only what survived the last run, with the tests as they are now",
    )
    again.add_argument("--report", action="store_true", help="run nothing: show the last run again")
    return parser


if __name__ == "__main__":
    sys.exit(main())
