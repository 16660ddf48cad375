"""The data of the bundled drill: its input, and the output that must result.

Its topics and its group have unique names, so that a drill may run on a log that is in use.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from txlog.client.admin import Admin, NewTopic
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.coordinator.events import GroupReleased
from txlog.engine.connection import Connection
from txlog.engine.producer_config import IN_LOG
from txlog.errors import UnknownGroup, UnknownTopic

PORTION = 500
"""Numbers that one call writes."""

PARTITIONS = 4
NUMBERS = pa.schema([pa.field("n", pa.int64())])


@dataclass(slots=True)
class DrillLog:
    """Topics of one drill."""

    connection: Connection
    name: str
    count: int = 0
    """Numbers that were committed."""
    aborted: int = 0
    """Numbers whose transaction was aborted, which must stay invisible."""
    _producer: Producer | None = field(default=None, repr=False)

    @property
    def numbers(self) -> str:
        """The topic that the job reads, and the group that reads it."""
        return f"{self.name}.numbers"

    @property
    def outputs(self) -> tuple[str, str]:
        """The topics that the job writes: even, odd."""
        return f"{self.name}.even", f"{self.name}.odd"

    @property
    def job_arguments(self) -> list[str]:
        """The bundled job's arguments: where its data is."""
        even, odd = self.outputs
        return ["--numbers", self.numbers, "--even", even, "--odd", odd]

    def left_behind(self, root: str) -> str:
        """A message that names the topics and the group, and how to delete them by hand."""
        topics = ", ".join((self.numbers, *self.outputs))
        return (
            f"The drill's topics and its group {self.numbers} stay in {root}: {topics}. Inspect "
            "them, then delete each by 'txlog --root ROOT topic delete TOPIC --execute', and the "
            "group by 'txlog --root ROOT group delete GROUP --execute'."
        )

    def create(self) -> None:
        """Create the topics. Raises TopicExists."""
        admin = Admin(self.connection)
        outputs = [NewTopic(name, 2, NUMBERS) for name in self.outputs]
        admin.create_topics([NewTopic(self.numbers, PARTITIONS), *outputs])
        # With records in the log, so that readers must leave out aborted numbers.
        self._producer = Producer(
            self.connection, transactional_id=self.name, transaction_records=IN_LOG
        )
        self._producer.init_transactions()

    def feed(self) -> None:
        """Write the next numbers in two transactions; the first is aborted once, and sent again."""
        for half in (range(PORTION // 2), range(PORTION // 2, PORTION)):
            if not half.start:
                self._send(half, is_committed=False)
                self.aborted += len(half)
            self._send(half, is_committed=True)
        self.count += PORTION

    def _send(self, numbers: range, *, is_committed: bool) -> None:
        producer = self._producer
        if producer is None:
            return
        producer.begin_transaction()
        for number in numbers:
            text = b"%d" % (self.count + number)
            producer.send(self.numbers, text, partition=number % PARTITIONS)
        if is_committed:
            producer.commit_transaction()
        else:
            # Aborted numbers must be in the log, so that readers have something to skip.
            producer.flush()
            producer.abort_transaction()

    def lag(self) -> int:
        """Numbers that the group has not consumed; all of them if its lag is unknown."""
        try:
            lag = Admin(self.connection).describe_group(self.numbers).lag
        except UnknownGroup:
            return self.count
        return self.count if lag is None else lag

    def found(self, topic: str) -> list[int]:
        """The committed numbers of a topic, in order."""
        consumer = Consumer(
            topic,
            root=self.connection,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        found: list[int] = []
        while (table := consumer.poll_arrow()) is not None:
            column = table["n"] if topic != self.numbers else table["value"].cast(pa.string())
            found += column.cast(pa.int64()).to_pylist()
        return sorted(found)

    def close(self) -> None:
        """Close the producer, which checks that no record of it is in flight."""
        if self._producer is not None:
            self._producer.close()

    def delete(self) -> None:
        """Delete the topics and the group, once every process of the drill is gone.

        Two transactional ids stay in the coordinators' lists: the drill's own, until maintenance
        forgets it, and its query's, which stays for ever with its newest batch (rules R2, R27).
        """
        # The group's owner needs no check: the drill has seen it end.
        self.connection.offsets.delete(self.numbers)
        for coordinator in self.connection.coordinators():
            if self.numbers in coordinator.catch_up().owners:
                coordinator.execute(GroupReleased(self.numbers))
        admin = Admin(self.connection)
        for name in (self.numbers, *self.outputs):
            try:
                admin.delete_topics([name])
            except UnknownTopic:
                continue
