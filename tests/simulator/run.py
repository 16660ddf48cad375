"""Runs and checks one seed of one scenario."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tests.simulator.checks.anomaly import Anomaly
from tests.simulator.checks.group_checks import group_anomalies
from tests.simulator.checks.history_checks import anomalies
from tests.simulator.checks.history_facts import COMMITTED
from tests.simulator.checks.moment_checks import moment_anomalies
from tests.simulator.environment.final_state import BATCH
from tests.simulator.environment.world import Scenario, World
from tests.simulator.history import History
from txlog.verify.invariants import log_facts

_WRITES = ("put_object", "delete_object")


@dataclass(frozen=True, slots=True)
class SeedResult:
    """The result of one seed."""

    scenario: str
    seed: int
    findings: tuple[Anomaly, ...]
    requests: int
    faults: Counter[str]
    events: Counter[str]
    work: Counter[str]
    """Counts of committed work, and of what maintenance did."""

    def __str__(self) -> str:
        found = "\n  ".join(str(finding) for finding in self.findings) or "sound"
        return f"scenario {self.scenario}, seed {self.seed}:\n  {found}"


def checked(scenario: Scenario, seed: int) -> SeedResult:
    """Run the seed, and check its history and its stored bytes."""
    return checked_world(World(scenario, seed))


def checked_world(world: World) -> SeedResult:
    """Run this world and check it. The caller can write its history afterwards.

    An error of a world or a checker is a finding, too: it must not end a long run, nor a replay
    before its history is written.
    """
    try:
        world.run()
        return result_of(world)
    except Exception:  # noqa: BLE001 - whatever it is, the seed must be named
        failure = Anomaly(-1, "failure", traceback.format_exc())
        return SeedResult(
            world.scenario.name,
            world.seed,
            (failure,),
            world.state.requests,
            world.state.counts,
            Counter(),
            Counter(),
        )


def result_of(world: World) -> SeedResult:
    """The result of a world that has run."""
    state = world.state
    findings = (
        *anomalies(state.history),
        *moment_anomalies(state.history),
        *group_anomalies(state.history),
        *_stored(world),
    )
    kinds = Counter(event["what"] for event in state.history.events)
    work = Counter(_work(state.history))
    return SeedResult(
        world.scenario.name,
        world.seed,
        findings,
        state.requests,
        state.counts.copy(),
        kinds,
        work,
    )


def _work(history: History) -> Iterator[str]:
    """Counts of what was done, by name: histories in which nothing happens prove nothing."""
    for event in history.of("outcome"):
        if event["outcome"] == COMMITTED:
            is_batch = event["tx"].startswith(BATCH)
            yield "micro-batches committed" if is_batch else "transactions committed"
    for event in history.of("moved"):
        if event["answer"] == "ok":
            yield "positions committed"
    for event in history.of("maintained"):
        yield from event["tasks"]


def _stored(world: World) -> Iterator[Anomaly]:
    """Findings of I1 to I11 and I15 in the stored bytes alone."""
    steps = {path: step for step, _, _, method, path, _ in world.state.trace if method in _WRITES}
    for finding in log_facts(world.state.service.store).all_findings():
        step = steps.get(finding.path, -1)
        yield Anomaly(step, finding.invariant, f"{finding.path}: {finding.message}")
