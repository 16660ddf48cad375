"""Queries that compete for a group, and a ledger of their commits.

The ledger is outside of the simulated processes. It applies rules R12 and R27: which commits had to
be refused, and which did not have to be fenced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from spark_plugin.checkpoints.checkpoint import Checkpoint
from spark_plugin.options import WriterOptions
from spark_plugin.sink import batch_commit
from spark_plugin.sink.batch_commit import BatchCommitter
from spark_plugin.sink.staging import TaskMessage, batch_identity
from tests.simulation.micro_batches import ROOT, Driver, Place, Run
from tests.simulator.environment.process import SimulatedProcess
from txlog.errors import ProducerFenced


@dataclass
class Attempt:
    """A call of the sink's commit that has registered."""

    query: str
    run: str
    began: int
    ended: int = 0
    """0 without a commit, or if its outcome is unknown."""
    is_committed: bool = False


@dataclass
class Ledger:
    """The order of the commits of all queries of one group, outside of the simulated processes."""

    steps: int = 0
    attempts: list[Attempt] = field(default_factory=list)

    def now(self) -> int:
        """A new point in time."""
        self.steps += 1
        return self.steps

    def trespass(self, own: Attempt, may_take_over: bool) -> str:
        """The reason by rule R12 or R27 why that commit should have been refused, or ""."""
        earlier = [a for a in self.attempts if a.is_committed and 0 < a.ended < own.began]
        if not may_take_over and any(a.query != own.query for a in earlier):
            return f"{own.query} committed in the group of another query"
        same = [a for a in earlier if a.query == own.query]
        others = [a for a in same if a.run != own.run]
        if any(a.run == own.run and a.ended < b.began for a in same for b in others):
            return f"run {own.run} of {own.query} came back after another"
        return ""

    def may_fence(self, query: str, run: str, began: int) -> bool:
        """Whether another run has registered, or may have, since this one did."""
        return any(
            a.query == query and a.run != run and not 0 < a.ended < began for a in self.attempts
        )


class WatchedCommitter(BatchCommitter):
    """A query that records its registrations in the ledger, and reports violations."""

    ledger: Ledger
    process: SimulatedProcess
    attempt: Attempt | None = None

    def commit(self) -> None:
        ledger, identity = self.ledger, self._identity
        first = next((a.began for a in ledger.attempts if a.run == identity.run_id), ledger.now())
        try:
            super().commit()
        except ProducerFenced:
            if not ledger.may_fence(identity.query_id, identity.run_id, first):
                self._tell(f"run {identity.run_id} was fenced without need")
            raise
        if self.attempt is not None:
            self.attempt.ended = ledger.now()
            text = self.attempt.is_committed and ledger.trespass(
                self.attempt, self._options.group_takeover
            )
            if text:
                self._tell(text)

    def _tell(self, text: str) -> None:
        self.process.note("failure", text=text)

    def _commit_transaction(self) -> None:
        if self.attempt is None:
            now = self.ledger.now()
            self.attempt = Attempt(self._identity.query_id, self._identity.run_id, now)
            self.ledger.attempts.append(self.attempt)
        super()._commit_transaction()
        self.attempt.is_committed = True


class RivalDriver(Driver):
    """Its checkpoint may be lost; whether its query may take the group over is drawn once.

    Spark runs a commit in any idle process, possibly one without the registration of the run.
    """

    batches_max: ClassVar[int] = 6

    def __init__(
        self,
        name: str,
        place: Place,
        copies: tuple[str, Sequence[str]],
        ledger: Ledger,
        may_take_over: bool = False,
    ) -> None:
        source, sinks = copies
        super().__init__(name, place, "g", [source], sinks)
        self._ledger = ledger
        self._may_take_over = may_take_over

    def _something_happens(self, process: SimulatedProcess) -> None:
        if process.random.random() < 0.06 * self._place.trouble:
            self._place.lose()

    def _options(self, process: SimulatedProcess) -> WriterOptions:
        return WriterOptions(ROOT, group_takeover=self._may_take_over)

    def _committer(
        self,
        process: SimulatedProcess,
        run: Run,
        options: WriterOptions,
        checkpoint: Checkpoint | None,
        messages: Sequence[TaskMessage],
    ) -> BatchCommitter:
        if process.random.random() < 0.4:
            for key in [key for key in batch_commit._sessions if key[2] == run.run_id]:
                del batch_commit._sessions[key]
        identity = batch_identity(messages, run.batch)
        committer = WatchedCommitter(process.connection, options, checkpoint, identity, messages)
        committer.ledger = self._ledger
        committer.process = process
        return committer
