"""An observer of the moment between two steps of a commit, which no client is shown.

It must not finish anything that it meets: others would no longer see it unfinished.
"""

from __future__ import annotations

from txlog.testing.simulation.actors.role import Recurring
from txlog.testing.simulation.environment.process import SimulatedProcess
from txlog.topic.producer_state import NEW_PRODUCER


class OffsetObserver(Recurring):
    """Sees offsets of a group that a transaction committed, and then whether its topics have it."""

    pause_ms = (20, 2_000)

    def __init__(self, name: str, group: str, topics: tuple[str, ...]) -> None:
        super().__init__(name)
        self._group = group
        self._topics = topics

    def turn(self, process: SimulatedProcess) -> None:
        """The group first, then the topics: what is applied before the offsets is there by then."""
        tx_id = process.connection.offsets.group(self._group).last_commit
        if tx_id is None:
            return
        applied = []
        for name in self._topics:
            state = process.connection.cluster.present_topic(name, linearizable=True).state
            if state.producers.get(tx_id.pid, NEW_PRODUCER).is_finished(tx_id):
                applied.append(name)
        process.note("witnessed", tx=str(tx_id), group=self._group, applied=applied)
