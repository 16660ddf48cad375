"""Readers as actors: they poll while the world is busy, and then read to the end."""

from __future__ import annotations

from typing import ClassVar

from tests.simulator.actors.role import UNCLEAR, poll_wait_ms
from tests.simulator.environment.process import SimulatedProcess
from tests.simulator.topics import as_history, require_topics
from txlog.client.consumer.consumer import Consumer

QUIET_TRIES = 50
"""Polls that a reader needs at most to read to the end. With more it is stuck."""


class Reader:
    """Reads topics from their start. A new life begins there again."""

    is_reader: ClassVar[bool] = True
    is_always_restarted: ClassVar[bool] = True

    def __init__(self, name: str, topics: tuple[str, ...], isolation: str) -> None:
        self.name = name
        self._topics = topics
        self._isolation = isolation

    def live(self, process: SimulatedProcess) -> None:
        """See Role.live."""
        consumer: Consumer | None = None
        world_state = process.network.world_state
        while not world_state.is_draining:
            consumer = self._poll(process, consumer) or consumer
            process.sleep(*((10, 30_000) if process.is_busy else (60_000, 300_000)))
        empty = 0
        for _ in range(QUIET_TRIES):
            before = len(world_state.history.events)
            consumer = self._poll(process, consumer) or consumer
            empty = empty + 1 if len(world_state.history.events) == before else 0
            if empty > lag(process):
                process.note("caught_up", isolation=self._isolation, topics=self._topics)
                return
        process.note("stuck", isolation=self._isolation, topics=self._topics)

    def _poll(self, process: SimulatedProcess, consumer: Consumer | None) -> Consumer | None:
        try:
            if consumer is None:
                require_topics(process.connection, self._topics)
                consumer = Consumer(
                    *self._topics,
                    root=process.connection,
                    isolation_level=self._isolation,
                    auto_offset_reset="earliest",
                    enable_auto_commit=False,
                )
            polled = consumer.poll(poll_wait_ms(process), process.random.choice((2, 10, 500)))
        except UNCLEAR:
            return consumer
        if polled:
            process.note("poll", isolation=self._isolation, records=as_history(polled))
        return consumer


def lag(process: SimulatedProcess) -> int:
    """Empty polls after which nothing more comes: a poll may lag behind pruning (R15)."""
    return process.connection.cluster.process.boundary_probe_polls
