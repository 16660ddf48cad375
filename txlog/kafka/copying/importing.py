"""Topics of a Kafka cluster copied into a log, each record once, and groups to the record.

A transaction has the records, and for each partition how far the source is read (in the metadata of
a position of the group `kafka-import.<cluster id>`). So the copy can be killed at any time. Where
each record is in both is kept as runs, in a topic of that name, written in the same transaction: a
group's offset there is exactly translated, and MirrorMaker's translation is not. An import is the
only writer of its topics.
"""

from __future__ import annotations

import json
import logging
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
)
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from txlog.client.admin import Admin
from txlog.client.consumer import consumer as txlog_consumer
from txlog.client.consumer.consumer_group import ConsumerGroupMetadata
from txlog.client.producer.producer import Producer
from txlog.engine.append.producer_batch import headers_column
from txlog.engine.new_topic import NewTopic
from txlog.errors import CommitFailed, OffsetOutOfRange, StoreUnavailable, UsageError
from txlog.model import OffsetAndMetadata, TopicPartition
from txlog.topic.records.schema import is_kafka_schema

log = logging.getLogger(__name__)

RECORDS_MAX = 10_000
"""Of one transaction."""
TIMEOUT_S = 30.0
"""For an answer of Kafka's."""


@dataclass(slots=True)
class Place:
    """The next offset of a partition, in Kafka and in the log, and the runs of earlier records."""

    source: int = -1
    """-1: from its first record."""
    target: int = 0
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    """First offset in Kafka, number of records, first offset in the log; in order."""

    def translated(self, offset: int) -> int | None:
        """The log's offset of the first record at or after Kafka's `offset`; None if that is not
        imported yet."""
        if offset > self.source:
            return None
        index = bisect_left(self.runs, (offset,)) - 1
        if index < 0:
            return self.runs[0][2] if self.runs else self.target
        first, count, target = self.runs[index]
        return target + min(offset - first, count)

    def add(self, offsets: Iterable[int]) -> list[tuple[int, int, int]]:
        """Records with these offsets follow; returns their runs."""
        new: list[tuple[int, int, int]] = []
        for offset in offsets:
            if new and offset == new[-1][0] + new[-1][1]:
                new[-1] = (new[-1][0], new[-1][1] + 1, new[-1][2])
            else:
                new.append((offset, 1, self.target))
            self.target += 1
            self.source = offset + 1
        self.runs += new
        return new


class KafkaImport:
    """One import. Call `prepare`, then `step` repeatedly."""

    def __init__(
        self, admin: Admin, source: Mapping[str, str], topics: Sequence[str], groups: Sequence[str]
    ) -> None:
        """`source`: the configuration of a client of librdkafka."""
        self._admin, self._topics, self._groups = admin, tuple(topics), list(groups)
        self._kafka_admin = AdminClient(dict(source))
        self._consumer = Consumer(
            {
                **source,
                "group.id": "txlog-import",  # It commits nothing there.
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
            }
        )
        self.places: dict[TopicPartition, Place] = {}
        self._unread: set[TopicPartition] = set()
        self._set: dict[str, dict[TopicPartition, int]] = {}
        """The offsets of groups that this import has set here."""
        self.name = ""

    def prepare(self) -> None:
        """Create missing topics, fence an earlier import, and go where it ended. Raises UsageError,
        StoreUnavailable, OffsetOutOfRange."""
        try:
            found = self._consumer.list_topics(timeout=TIMEOUT_S)
        except KafkaException as error:
            raise _unavailable(error) from error
        self.name = f"kafka-import.{found.cluster_id}"
        for name in self._topics:
            if name not in found.topics or found.topics[name].error is not None:
                raise UsageError(f"Kafka has no topic {name!r}; give names of its topics.")
            self._create(name, len(found.topics[name].partitions))
        if self.name not in self._admin.list_topics():
            self._admin.create_topics([NewTopic(self.name)])
        self._producer = Producer(self._admin.connection, transactional_id=self.name)
        self._producer.init_transactions()
        self._read_places()
        starts = []
        for where, place in self.places.items():
            asked = KafkaPartition(*where)
            low, high = self._watermarks(asked)
            if place.source < 0:
                place.source = low
            if not low <= place.source <= high:
                raise OffsetOutOfRange(
                    f"Kafka has the offsets {low} to {high} of {where}, and the import goes on at "
                    f"{place.source}: records are gone, or it is another cluster."
                )
            starts.append(KafkaPartition(*where, place.source))
        self._unread = set(self.places)
        self._consumer.assign(starts)

    def _watermarks(self, where: KafkaPartition) -> tuple[int, int]:
        try:
            low, high = self._consumer.get_watermark_offsets(where, timeout=TIMEOUT_S)
        except KafkaException as error:
            raise _unavailable(error) from error
        return int(low), int(high)

    def _create(self, name: str, partitions: int) -> None:
        if name not in self._admin.list_topics():
            self._admin.create_topics([NewTopic(name, partitions)])
        topic = self._admin.connection.cluster.present_topic(name, linearizable=True)
        if not is_kafka_schema(topic.schema()) or len(topic.state.partitions) < partitions:
            raise UsageError(
                f"topic {name!r} has columns, or fewer than Kafka's {partitions} partitions; "
                "delete it, or import into another log."
            )
        self.places.update({TopicPartition(name, p): Place() for p in range(partitions)})

    def _read_places(self) -> None:
        """Raises UsageError if another program has written to the topics."""
        connection = self._admin.connection
        with txlog_consumer.Consumer(
            self.name,
            root=connection,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
        ) as book:
            for record in book.read_to_end():
                self._read_entry(json.loads(record.value))
        committed = connection.offsets.shown(self.name).committed
        for where, place in self.places.items():
            at = committed.get(where)
            known = json.loads(at.metadata) if at is not None else {"source": -1, "target": 0}
            place.source, place.target = known["source"], known["target"]
            topic = connection.cluster.present_topic(where.topic, linearizable=True)
            if topic.state.end_offset(where.partition) != place.target:
                raise UsageError(
                    f"{where} has records that another program wrote, so offsets would not be "
                    "translated; delete the topic, or import into another log."
                )

    def _read_entry(self, entry: Any) -> None:
        for topic, partition, rows in entry["runs"]:
            where = TopicPartition(topic, partition)
            if where in self.places:
                self.places[where].runs += [tuple(row) for row in rows]
        for group, topic, partition, offset in entry["groups"]:
            self._set.setdefault(group, {})[TopicPartition(topic, partition)] = offset

    def step(self, timeout_s: float = 1.0) -> int:
        """Copy what Kafka sends within the time, in one transaction; returns the number of records.
        Raises StoreUnavailable, FencedError if another import has begun, UsageError."""
        rows: dict[TopicPartition, list[Any]] = defaultdict(list)
        moved: set[TopicPartition] = set()
        messages: list[Any] = self._consumer.consume(RECORDS_MAX, timeout_s)
        for message in messages:
            where = TopicPartition(message.topic(), message.partition())
            error = message.error()
            if error is None:
                rows[where].append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._unread.discard(where)
                moved.add(where)
                self.places[where].source = max(self.places[where].source, message.offset())
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise OffsetOutOfRange(f"records of {where} are gone from Kafka before their copy")
            else:
                raise _unavailable(KafkaException(error))
        self._commit(rows, moved if rows else set())
        return sum(map(len, rows.values()))

    @property
    def is_complete(self) -> bool:
        """Whether each partition was read to the end that it had."""
        return not self._unread

    def copy_groups(self) -> None:
        """Set the groups' offsets, as far as their records are here. A group that has moved here by
        itself is left alone from then on. Raises StoreUnavailable."""
        for group in list(self._groups):
            try:
                self._commit({}, set(), group)
            except CommitFailed as error:
                log.warning("%s is used here now, and no longer copied: %s", group, error)
                self._groups.remove(group)

    def _commit(
        self,
        rows: Mapping[TopicPartition, Sequence[Any]],
        moved: set[TopicPartition],
        group: str = "",
    ) -> None:
        offsets = self._translated(group) if group else {}
        if not rows and not offsets:
            return
        producer = self._producer
        with producer.transaction():
            runs, positions = [], {}
            for where in {**rows, **dict.fromkeys(moved)}:
                place = self.places[where]
                begin, end = place.target, place.source
                messages = rows.get(where, ())
                if messages:
                    runs.append((*where, place.add(m.offset() for m in messages)))
                    place.source = max(place.source, end)
                    producer.send_batch(
                        where.topic, _table(messages), partition=where.partition, timestamp="time"
                    )
                # Of the log's own offsets only those before this transaction exist yet.
                known = json.dumps({"source": place.source, "target": place.target})
                positions[where] = OffsetAndMetadata(begin, known)
            entry = {"runs": runs, "groups": [(group, *w, at) for w, at in offsets.items()]}
            producer.send(self.name, json.dumps(entry).encode())
            producer.send_offsets_to_transaction(positions, self.name)
            if offsets:
                # Compared with what this import has set: I6.
                known_here = self._set.get(group, {})
                producer.send_offsets_to_transaction(
                    {w: OffsetAndMetadata(at) for w, at in offsets.items()},
                    ConsumerGroupMetadata(group, {w: known_here.get(w, 0) for w in offsets}),
                )
        self._set.setdefault(group, {}).update(offsets)

    def _translated(self, group: str) -> dict[TopicPartition, int]:
        """The group's offsets here, where they differ from what this import has set."""
        asked = [ConsumerGroupTopicPartitions(group)]
        try:
            (future,) = self._kafka_admin.list_consumer_group_offsets(asked).values()
            found = future.result(TIMEOUT_S).topic_partitions
        except KafkaException as error:
            raise _unavailable(error) from error
        known, changed = self._set.get(group, {}), {}
        for at in found:
            where = TopicPartition(at.topic, at.partition)
            if at.offset >= 0 and where in self.places:
                here = self.places[where].translated(at.offset)
                if here is not None and here != known.get(where):
                    changed[where] = here
        return changed

    def close(self) -> None:
        """Abort what is open."""
        self._consumer.close()
        self._producer.close()


def _table(messages: Sequence[Any]) -> pa.Table:
    headers = [
        None if m.headers() is None else [(name.encode(), value) for name, value in m.headers()]
        for m in messages
    ]
    return pa.table(
        {
            "key": pa.array([m.key() for m in messages], pa.binary()),
            "value": pa.array([m.value() for m in messages], pa.binary()),
            "headers": headers_column(headers),
            "time": pa.array([max(m.timestamp()[1], 0) for m in messages], pa.int64()),
        }
    )


def _unavailable(error: KafkaException) -> StoreUnavailable:
    return StoreUnavailable(f"Kafka: {error.args[0].str()}. Try again, and look at the address.")
