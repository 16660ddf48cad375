"""Groups that commit outside of transactions, as actors: manually, automatically, and by a reset.

A record that was read and not yet committed may be read again. No consumer of the group reads a
committed record again, and none is skipped. `group_checks.py` checks that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tests.simulator.actors.role import UNCLEAR, Recurring, poll_wait_ms
from tests.simulator.environment.process import SimulatedProcess
from tests.simulator.topics import as_history, require_topics
from txlog.client.admin import Admin
from txlog.client.admin.offset_reset import ShiftBy, ToEarliest
from txlog.client.consumer.consumer import Consumer
from txlog.errors import AbortableError
from txlog.model import TopicPartition

Positions = list[list[object]]
"""[topic, partition, offset] of each partition."""

AUTO_COMMIT_MS = 2_000


class GroupConsumer:
    """A consumer of a group. When it finds that another consumer was faster, it starts again."""

    is_reader: ClassVar[bool] = False
    is_always_restarted: ClassVar[bool] = False

    def __init__(
        self, name: str, group: str, topics: tuple[str, ...], isolation: str, *, is_auto: bool
    ) -> None:
        """`is_auto`: each poll commits the records of the polls before it."""
        self.name = name
        self._group = group
        self._topics = topics
        self._isolation = isolation
        self._is_auto = is_auto
        self._consumers = 0
        self._moves = 0

    def live(self, process: SimulatedProcess) -> None:
        """See Role.live."""
        consumer: Consumer | None = None
        while process.is_busy:
            try:
                consumer = consumer or self._joined(process)
                self._poll(process, consumer)
                if process.random.random() < 0.1:
                    leaving, consumer = consumer, None
                    self._leave(process, leaving)
                elif not self._is_auto and process.random.random() < 0.7:
                    self._commit(process, consumer)
            except AbortableError:
                consumer = None
            except UNCLEAR:
                consumer = consumer if process.random.random() < 0.7 else None
            process.sleep(1, 20_000)

    def _reader(self, process: SimulatedProcess) -> str:
        return f"{process.network.process}.{self.name}.{self._consumers}"

    def _joined(self, process: SimulatedProcess) -> Consumer:
        self._consumers += 1
        reader = self._reader(process)
        process.note("joining", group=self._group, reader=reader)
        require_topics(process.connection, self._topics)
        consumer = Consumer(
            *self._topics,
            root=process.connection,
            group_id=self._group,
            isolation_level=self._isolation,
            auto_offset_reset="earliest",
            enable_auto_commit=self._is_auto,
            auto_commit_interval_ms=AUTO_COMMIT_MS,
        )
        positions = positions_of(consumer)
        process.note("joined", group=self._group, reader=reader, positions=positions)
        return consumer

    def _poll(self, process: SimulatedProcess, consumer: Consumer) -> None:
        move = self._moving(process, consumer) if self._is_auto else ""
        polled = as_history(consumer.poll(poll_wait_ms(process), process.random.choice((1, 3, 20))))
        if move:
            process.note("moved", move=move, group=self._group, answer="unknown")
        if polled:
            process.note(
                "poll",
                isolation=self._isolation,
                records=polled,
                reader=self._reader(process),
                group=self._group,
            )

    def _moving(self, process: SimulatedProcess, consumer: Consumer) -> str:
        self._moves += 1
        move = f"{self.name}/{self._moves}"
        process.note(
            "moving",
            move=move,
            group=self._group,
            reader=self._reader(process),
            positions=positions_of(consumer),
        )
        return move

    def _commit(self, process: SimulatedProcess, consumer: Consumer) -> None:
        move = self._moving(process, consumer)
        told(process, self._group, move, consumer.commit)

    def _leave(self, process: SimulatedProcess, consumer: Consumer) -> None:
        """Close the consumer, which commits if commits are automatic."""
        move = self._moving(process, consumer) if self._is_auto else ""
        told(process, self._group, move, consumer.close)


class OffsetResetter(Recurring):
    """Resets a group: to the earliest record, or by a few records."""

    pause_ms = (1_000, 60_000)

    def __init__(self, name: str, group: str, topic: str) -> None:
        super().__init__(name)
        self._group = group
        self._topic = topic
        self._moves = 0

    def turn(self, process: SimulatedProcess) -> None:
        """Reset one partition as planned some time before."""
        count = len(process.connection.cluster.present_topic(self._topic).state.partitions)
        where = TopicPartition(self._topic, process.random.randrange(count))
        known = process.connection.offsets.group(self._group).committed.get(where)
        to = ToEarliest() if known is None or process.random.random() < 0.5 else ShiftBy(-2)
        admin = Admin(process.connection)
        resets = admin.plan_group_reset(self._group, to, [where])
        process.sleep(1, 2_000)
        self._moves += 1
        move = f"{self.name}/{self._moves}"
        process.note(
            "moving",
            move=move,
            group=self._group,
            reader=self.name,
            positions=[[*reset.where, reset.new] for reset in resets],
        )
        told(process, self._group, move, lambda: admin.reset_group(self._group, resets))


def told(process: SimulatedProcess, group: str, move: str, call: Callable[[], object]) -> None:
    """Make the call that moves a group, and note its answer."""
    answer = "unknown"
    try:
        call()
        answer = "ok"
    except AbortableError:
        answer = "failed"
        raise
    finally:  # Also if the process dies, in which case no actor has an answer.
        if move:
            process.note("moved", move=move, group=group, answer=answer)


def positions_of(consumer: Consumer) -> Positions:
    """The positions of a consumer."""
    return [[*where, consumer.position(where)] for where in sorted(consumer.assignment())]
