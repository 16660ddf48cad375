"""Consume, transform, produce, as actors: records and offsets in one transaction.

Several copiers of one group work without coordination: the slower one is refused (I6).
"""

from __future__ import annotations

from typing import ClassVar

from tests.simulator.actors.producers import (
    abort,
    begun,
    commit,
    registered,
    send,
    with_news,
)
from tests.simulator.actors.role import EXPECTED, UNCLEAR
from tests.simulator.environment.process import SimulatedProcess
from tests.simulator.history import Record
from tests.simulator.topics import as_history, require_topics
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.engine.append.producer_batch import RecordFuture
from txlog.errors import AbortableError, FencedError


class Copier:
    """Copies one topic to another, each record once."""

    is_reader: ClassVar[bool] = False
    is_always_restarted: ClassVar[bool] = False

    def __init__(
        self,
        name: str,
        transactional_id: str,
        group: str,
        source: str,
        sink: str,
        *,
        lingers: bool = False,
    ) -> None:
        """`lingers`: it waits after it has sent its offsets, and then may abort."""
        self.name = name
        self._lingers = lingers
        self._id = transactional_id
        self._group = group
        self._source = source
        self._sink = sink
        self._values = 0
        self._consumers = 0

    def live(self, process: SimulatedProcess) -> None:
        """See Role.live."""
        process.note("copies", group=self._group, sources=[self._source], sinks=[self._sink])
        process.note("holds", transactional_id=self._id)
        producer: Producer | None = None
        consumer: Consumer | None = None
        while process.is_busy:
            try:
                producer = producer or registered(process, self._id)
                consumer = consumer or self._consumer(process)
                goes_on, stays = self._copy(process, producer, consumer)
            except EXPECTED:
                goes_on, stays = False, False
            producer = producer if goes_on else None
            consumer = consumer if stays else None
            process.sleep(1, 10_000)

    def _consumer(self, process: SimulatedProcess) -> Consumer:
        self._consumers += 1
        require_topics(process.connection, [self._source])
        return Consumer(
            self._source,
            root=process.connection,
            group_id=self._group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )

    def _copy(
        self, process: SimulatedProcess, producer: Producer, consumer: Consumer
    ) -> tuple[bool, bool]:
        """Make one poll and its transaction. Returns whether the producer and the consumer can go
        on."""
        polled = as_history(consumer.poll(max_records=process.random.randint(1, 5)))
        if not polled:
            return True, True
        reader = f"{process.network.process}.{self.name}.{self._consumers}"
        process.note("poll", isolation="read_committed", records=polled, reader=reader)
        tx = begun(process, producer)
        sent: list[tuple[str, RecordFuture]] = []
        try:
            self._write(process, producer, consumer, tx, polled, sent)
        except FencedError:
            return False, False
        except (AbortableError, *UNCLEAR):
            # Not all records and offsets are in it, so it must not be committed.
            return abort(process, producer, tx), False
        if self._lingers and process.random.random() < 0.3:
            return abort(process, producer, tx), False
        is_committed, goes_on = commit(process, producer, tx, sent)
        return goes_on, is_committed

    def _write(
        self,
        process: SimulatedProcess,
        producer: Producer,
        consumer: Consumer,
        tx: str,
        polled: list[Record],
        sent: list[tuple[str, RecordFuture]],
    ) -> None:
        names = [f"{self.name}/{self._values + n}" for n in range(len(polled))]
        names = [with_news(process, self._sink, name) for name in names]
        values = [f"{name}<{r[3]}" for name, r in zip(names, polled, strict=True)]
        self._values += len(values)
        process.note("send", tx=tx, topic=self._sink, values=values)
        metadata = consumer.group_metadata()
        ends = {where: consumer.position(where) for where in sorted(consumer.assignment())}
        moved = {where: end for where, end in ends.items() if end != metadata.committed.get(where)}
        ranges = [[*where, metadata.committed[where], end] for where, end in moved.items()]
        process.note(
            "consumed", tx=tx, group=self._group, ranges=ranges, reads=[r[3] for r in polled]
        )
        for value in values:
            sent.append((value, send(process, producer, self._sink, value)))
        if process.random.random() < 0.3:
            producer.flush()
        producer.send_offsets_to_transaction(moved, metadata)
        if self._lingers:
            process.sleep(1, 20_000)
