"""An observer of the state between two steps of a commit, which no client sees.

It must not finish the transactions that it finds: other actors are to find them unfinished.
"""

from __future__ import annotations

from tests.simulator.actors.role import Recurring
from tests.simulator.environment.process import SimulatedProcess
from txlog.topic.producer_state import NEW_PRODUCER


class OffsetObserver(Recurring):
    """Reads offsets that a transaction committed, and then whether its topics have applied it."""

    pause_ms = (20, 2_000)

    def __init__(self, name: str, group: str, topics: tuple[str, ...]) -> None:
        super().__init__(name)
        self._group = group
        self._topics = topics

    def turn(self, process: SimulatedProcess) -> None:
        """Read the group first, then the topics: a transaction is applied before its offsets are
        committed."""
        tx_id = process.connection.offsets.group(self._group).last_commit
        if tx_id is None:
            return
        applied = []
        for name in self._topics:
            state = process.connection.cluster.present_topic(name, linearizable=True).state
            if state.producers.get(tx_id.pid, NEW_PRODUCER).is_finished(tx_id):
                applied.append(name)
        process.note("witnessed", tx=str(tx_id), group=self._group, applied=applied)
