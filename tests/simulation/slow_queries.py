"""Queries that take long between the plan of a batch and its commit.

Another run or another query then finds a batch that is planned and not committed: a run that
restarts (R27), or a query that reads the checkpoint of another one (R24).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import ClassVar

from spark_plugin.checkpoints.checkpoint import Checkpoint
from spark_plugin.options import WriterOptions
from spark_plugin.sink import batch_commit
from spark_plugin.sink.batch_commit import BatchCommitter
from spark_plugin.sink.staging import TaskMessage
from tests.simulation.micro_batches import Driver, Folder, Place, Run
from tests.simulation.rivals import Ledger, RivalDriver
from tests.simulator.actors.bank_transfers import ConsistentCutReader
from tests.simulator.actors.producers import PlainProducer
from tests.simulator.actors.readers import Reader
from tests.simulator.actors.role import Role
from tests.simulator.environment.process import SimulatedProcess
from tests.simulator.environment.world import Scenario
from txlog.errors import CheckpointConflict

PLANNED_MS = 10_000
"""The longest time that a batch waits for its tasks."""


class SlowRivalDriver(RivalDriver):
    """Each of its commits comes from a process without the registration of the run."""

    batches_max: ClassVar[int] = 20

    def _something_happens(self, process: SimulatedProcess) -> None:
        """Do nothing, unless the process dies."""

    def _is_planned(self, process: SimulatedProcess, run: Run) -> bool:
        is_planned = super()._is_planned(process, run)
        process.sleep(1, PLANNED_MS)
        return is_planned

    def _committer(
        self,
        process: SimulatedProcess,
        run: Run,
        options: WriterOptions,
        checkpoint: Checkpoint | None,
        messages: Sequence[TaskMessage],
    ) -> BatchCommitter:
        batch_commit._sessions.clear()
        return super()._committer(process, run, options, checkpoint, messages)


class MisplacedDriver(Driver):
    """Every third commit of its sink gets the checkpoint of the other query."""

    def __init__(self, name: str, place: Place, other: Place, group: str, sink: str) -> None:
        super().__init__(name, place, group, ["ta"], [sink])
        self._other = other
        self._is_elsewhere = False

    def _something_happens(self, process: SimulatedProcess) -> None:
        """Do nothing, unless the process dies."""

    def _is_planned(self, process: SimulatedProcess, run: Run) -> bool:
        is_planned = super()._is_planned(process, run)
        process.sleep(1, PLANNED_MS)
        return is_planned

    def _seen(self, process: SimulatedProcess, run: Run) -> Checkpoint | None:
        self._is_elsewhere = process.random.random() < 0.3
        return (self._other if self._is_elsewhere else self._place).folder.checkpoint

    def _is_mistaken(self, run: Run) -> bool:
        """See Driver._is_mistaken: the batch is in another checkpoint."""
        return self._is_elsewhere

    def _is_wrong(self, error: CheckpointConflict) -> bool:
        """A batch of another checkpoint may be refused for any reason."""
        return not self._is_elsewhere and super()._is_wrong(error)


_BACK = {"ta": 2, "tx": 1}
_ELSEWHERE = {"ta": 2, "tx": 1, "ty": 2}


def _back_again(choices: random.Random) -> Sequence[Role]:
    """Three drivers on one checkpoint, which overtake each other."""
    batch_commit._sessions.clear()
    ledger = Ledger()
    place = Place("query", Folder("query-0"))
    return [
        PlainProducer("plain", ("ta",)),
        *(SlowRivalDriver(f"d{n}", place, ("ta", ("tx",)), ledger) for n in range(1, 4)),
        Reader("committed", tuple(_BACK), "read_committed"),
    ]


def _elsewhere(choices: random.Random) -> Sequence[Role]:
    """Two queries, each with its own group, whose sinks mistake one checkpoint for the other."""
    batch_commit._sessions.clear()
    one = Place("one", Folder("one-0"), losses=1)
    two = Place("two", Folder("two-0"), losses=1)
    return [
        PlainProducer("plain", ("ta",)),
        MisplacedDriver("d1", one, two, "g", "tx"),
        MisplacedDriver("d2", two, one, "h", "ty"),
        ConsistentCutReader("auditor", ("tx", "ty")),
        Reader("committed", tuple(_ELSEWHERE), "read_committed"),
    ]


OF_SLOW_QUERIES: Mapping[str, Scenario] = {
    "back-again": Scenario("back-again", _BACK, _back_again, requests_max=300),
    "elsewhere": Scenario("elsewhere", _ELSEWHERE, _elsewhere, requests_max=300),
}
