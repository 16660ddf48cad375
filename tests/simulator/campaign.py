"""Runs many seeds in several processes, with progress and a command for each failing seed."""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.simulator.environment.world import Scenario, World
from tests.simulator.run import SeedResult, checked, checked_world

STOPPED = 130
"""Exit status of a run that was ended early; shells use it for Ctrl-C."""

SEEDS_AT_ONCE = 20
"""Seeds that a worker process runs at a time."""


@dataclass(slots=True)
class CampaignTally:
    """Totals of a campaign."""

    seeds: int = 0
    requests: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    work: Counter[str] = field(default_factory=Counter)
    failed: list[SeedResult] = field(default_factory=list)

    def add(self, found: SeedResult) -> None:
        """Add the result of one seed."""
        self.seeds += 1
        self.requests += found.requests
        self.faults.update(found.faults)
        self.events.update(found.events)
        self.work.update(found.work)
        if found.findings:
            self.failed.append(found)

    def __str__(self) -> str:
        return (
            f"{self.seeds} seeds, {self.requests} requests, {self.faults.total()} faults, "
            f"{self.work['transactions committed']} transactions and "
            f"{self.work['micro-batches committed']} micro-batches committed, "
            f"{len(self.failed)} failed"
        )


def campaign(
    scenarios: Mapping[str, Scenario],
    seeds: range,
    workers: int = 1,
    until: float = float("inf"),
) -> Iterator[SeedResult]:
    """Run each seed in every scenario, seed by seed, until that time of `time.monotonic()`."""
    work = ((name, seed) for seed in seeds for name in scenarios)
    judge = partial(_checked, scenarios)
    if workers == 1:
        for item in work:
            if time.monotonic() > until:
                return
            yield judge(item)
        return
    # Forked, because scenarios contain functions, which cannot be pickled.
    with multiprocessing.get_context("fork").Pool(workers, _adopt, (scenarios,)) as pool:
        for found in pool.imap_unordered(_adopted, work, chunksize=SEEDS_AT_ONCE):
            yield found
            if time.monotonic() > until:
                return


def _checked(scenarios: Mapping[str, Scenario], item: tuple[str, int]) -> SeedResult:
    name, seed = item
    return checked(scenarios[name], seed)


_scenarios: dict[str, Scenario] = {}
"""In a worker process: what it was forked with."""


def _adopt(scenarios: Mapping[str, Scenario]) -> None:
    # Ctrl-C is handled by the parent, which ends its workers by SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _scenarios.update(scenarios)


def _adopted(item: tuple[str, int]) -> SeedResult:
    return _checked(_scenarios, item)


def main(arguments: Sequence[str] | None, scenarios: Mapping[str, Scenario], program: str) -> int:
    """The command line. Returns 0 if all seeds are sound, 1 if one is not, STOPPED if SIGINT or
    SIGTERM ended the run early; it then reports the seeds run so far."""
    parser = _parser(scenarios, program)
    asked = parser.parse_args(arguments)
    chosen = {name: scenarios[name] for name in asked.scenario or scenarios}
    if asked.seed is not None:
        return _one(chosen, asked, program)
    first, begun = asked.first, time.monotonic()
    until = begun + asked.minutes * 60 if asked.minutes else float("inf")
    last = sys.maxsize if asked.minutes and asked.seeds is None else first + (asked.seeds or 100)
    tally, said = CampaignTally(), float("-inf")
    # A world is small and soon gone: at Python's own threshold every sixth of a run is spent here.
    gc.freeze()
    gc.set_threshold(200_000, 20, 20)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for found in campaign(chosen, range(first, last), asked.workers, until):
            tally.add(found)
            if found.findings:
                print(f"{found}\nreplay: {_replay(program, found)}", flush=True)
            if time.monotonic() - said > 5:
                said = time.monotonic()
                print(f"{said - begun:6.0f} s: {tally}", flush=True)
    except KeyboardInterrupt:
        print("Stopped. So far:")
        _report(tally, time.monotonic() - begun)
        return STOPPED
    _report(tally, time.monotonic() - begun)
    return 1 if tally.failed else 0


def _parser(scenarios: Mapping[str, Scenario], program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        description="Run simulated worlds: one seed, one history, checked for everything that "
        "a log may not do. A seed that fails prints the command that replays it.",
    )
    parser.add_argument("--seeds", type=int, help="how many seeds of each scenario (100)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--minutes", type=float, help="stop after so many minutes")
    parser.add_argument("--workers", type=int, default=1, help="processes (1)")
    parser.add_argument(
        "--scenario", action="append", choices=sorted(scenarios), help="only this one; repeatable"
    )
    parser.add_argument("--seed", type=int, help="replay one seed")
    parser.add_argument(
        "--trace", type=Path, help="with --seed: write history.jsonl and requests.jsonl there"
    )
    return parser


def _replay(program: str, found: SeedResult) -> str:
    return f"{program} --scenario {found.scenario} --seed {found.seed} --trace sim-{found.seed}"


def _one(scenarios: Mapping[str, Scenario], asked: argparse.Namespace, program: str) -> int:
    failed = 0
    for scenario in scenarios.values():
        world = World(scenario, asked.seed)
        found = checked_world(world)
        print(found)
        print(f"fingerprint {world.fingerprint()}")
        failed += bool(found.findings)
        if asked.trace is not None:
            _write(world, asked.trace)
    return 1 if failed else 0


def _write(world: World, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    history = folder / f"{world.scenario.name}.history.jsonl"
    history.write_text("".join(f"{line}\n" for line in world.state.history.lines()))
    requests = folder / f"{world.scenario.name}.requests.jsonl"
    requests.write_text("".join(f"{json.dumps(line)}\n" for line in world.state.trace))
    print(f"wrote {history} and {requests}")


def _report(tally: CampaignTally, seconds: float) -> None:
    print(f"{tally}, in {seconds:.0f} s")
    for title, counts in (
        ("work", tally.work),
        ("faults", tally.faults),
        ("events", tally.events),
    ):
        print(f"{title}: " + ", ".join(f"{name} {n}" for name, n in counts.most_common()))
    for found in tally.failed[:20]:
        print(f"failed: scenario {found.scenario}, seed {found.seed}")
