"""Mutation testing, module by module: `make mutants`, or `python -m tests.mutation --help`."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from tests.mutation.modules import MODULES, Mutated, grouped
from tests.mutation.mutant import Mutant
from tests.mutation.run import (
    WORK,
    MutationFailed,
    latest_run,
    outcome,
    prepare,
    renew_tests,
    run,
)
from tests.mutation.sample import Sample, interval
from tests.mutation.unchanged import listed

STOPPED = 130
HEAD = (
    *("module", "mutants", "tried", "killed", "unchanged", "survivors", "score", "95 %", "tests s"),
    *("words", "types"),
)
ROW = "| {:<44} | {:>7} | {:>5} | {:>6} | {:>9} | {:>9} | {:>6} | {:>7} | {:>7} | {:>5} | {:>5} |"


@dataclass(frozen=True)
class Figures:
    """The results of a module's mutants, or of several modules'."""

    killed: int = 0
    unchanged: int = 0
    """Survivors that change nothing, according to `unchanged.toml`."""
    survivors: int = 0
    """All other survivors."""
    tests_seconds: float = 0.0
    left_out: int = 0
    """Mutants that are not in the sample."""
    words: int = 0
    """Mutants that change words only; they are in no other number."""
    type_errors: int = 0
    """Mutants that mypy refuses; they are in no other number."""

    @property
    def score(self) -> float:
        """The share of behaviour-changing mutants that the tests detected."""
        counted = self.killed + self.survivors
        return self.killed / counted if counted else 1.0

    def __add__(self, other: "Figures") -> "Figures":
        return Figures(*(sum(pair) for pair in zip(astuple(self), astuple(other), strict=True)))

    def row(self, name: str) -> str:
        """A line of the table."""
        tried = self.killed + self.unchanged + self.survivors
        low, high = interval(self.killed, self.killed + self.survivors)
        return ROW.format(
            *(name, tried + self.left_out, tried, self.killed, self.unchanged, self.survivors),
            f"{self.score:.1%}",
            f"{low:.0%}-{high:.0%}" if self.left_out else "",
            f"{self.tests_seconds:.1f}",
            *(self.words, self.type_errors),
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Mutate the given modules; returns 0 if each reaches the aim, 1 if one does not or could not
    be tried, STOPPED if SIGINT or SIGTERM ended the run early: it then sums up the results so far.
    """
    parser = _parser()
    asked = parser.parse_args(arguments)
    names = asked.module or list(MODULES)
    if unknown := [name for name in names if name not in MODULES]:
        parser.error(f"unknown: {', '.join(unknown)}; --help lists the modules")
    figures: dict[str, Figures] = {}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(ROW.format(*HEAD), "|---|" + "---:|" * (len(HEAD) - 1), sep="\n", flush=True)
    try:
        for group in _groups(names, asked):
            try:
                _try(group, asked)
                for name in group:
                    figures[name] = _judged(name, MODULES[name], asked)
            except MutationFailed as error:
                print(f"{', '.join(group)}: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        _sum_up(names, figures)
        print("Stopped. The same command with --resume goes on from here.", file=sys.stderr)
        return STOPPED
    _sum_up(names, figures)
    return 1 if len(figures) < len(names) or _below_aim(figures) else 0


def _groups(names: Sequence[str], asked: argparse.Namespace) -> list[list[str]]:
    """The modules that one run of mutmut tries: those that the same tests judge; if the last run is
    gone on with, those that it tried."""
    fresh, groups = [], dict[Path, list[str]]()
    for name in names:
        folder = latest_run(MODULES[name])
        if folder and (asked.survivors or asked.resume or asked.report):
            groups.setdefault(folder, []).append(name)
        else:
            fresh.append(name)
    return [*groups.values(), *grouped(fresh)]


def _judged(name: str, module: Mutated, asked: argparse.Namespace) -> Figures:
    folder = latest_run(module)
    if not folder:
        raise MutationFailed(f"There is no run of {module.path}; run it first.")
    found = outcome(folder, module)
    survivors = [one for one in found.survivors if not _is_listed(name, one)]
    unchanged = len(found.survivors) - len(survivors)
    figures = Figures(
        *(found.killed, unchanged, len(survivors), found.tests_seconds),
        *(found.left_out, found.words, found.type_errors),
    )
    print(figures.row(name), flush=True)
    if found.out_of_time:
        count = len(found.out_of_time)
        text = f"{name}: {count} killed for want of time; --survivors tries these again, too."
        print(text, file=sys.stderr)
    if asked.verbose:
        print(*survivors, sep="\n", flush=True)
    return figures


def _try(names: Sequence[str], asked: argparse.Namespace) -> None:
    modules = [MODULES[name] for name in names]
    folder = latest_run(modules[0])
    if asked.report:
        return
    if asked.survivors and folder:
        again = [one.name for module in modules for one in outcome(folder, module).in_doubt]
        if again:
            renew_tests(folder)
            run(folder, names, asked.workers, again)
    elif asked.resume and folder:
        run(folder, names, asked.workers, sample=Sample(asked.sample, asked.seed))
    else:
        run(prepare(names), names, asked.workers, sample=Sample(asked.sample, asked.seed))


def _sum_up(names: Sequence[str], figures: dict[str, Figures]) -> None:
    total = sum(figures.values(), Figures())
    if len(names) > 1:
        print(total.row(f"{len(figures)} of {len(names)} modules"), flush=True)
    for name in _below_aim(figures):
        print(f"{name}: below {MODULES[name].aim:.0%}.", file=sys.stderr)
    if total.survivors:
        print("--report --verbose prints what survived.", file=sys.stderr)


def _below_aim(figures: dict[str, Figures]) -> list[str]:
    return [name for name, found in figures.items() if found.score < MODULES[name].aim]


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
    parser.add_argument("--sample", type=int, metavar="N", help="try only N mutants of a module")
    parser.add_argument("--seed", type=int, default=0, help="another seed, another sample")
    again = parser.add_mutually_exclusive_group()
    again.add_argument(
        "--survivors",
        action="store_true",
        help="try only what survived the last run or ran out of time, with the tests as they are "
        "now",
    )
    again.add_argument(
        "--resume",
        action="store_true",
        help="go on where the last run was stopped, with the code and the tests as they were then",
    )
    again.add_argument("--report", action="store_true", help="run nothing: show the last run again")
    return parser


if __name__ == "__main__":
    sys.exit(main())
