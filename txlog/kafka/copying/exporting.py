"""Topics of a log copied into a Kafka cluster, each record once.

A transaction there has the records and, in the metadata of offsets of the group
`txlog-export.<log id>`, how far the log is read. So the copy can be killed at any time, and another
one fences it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaException, Producer, cimpl
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from txlog.client.consumer.consumer import Consumer
from txlog.engine.connection import Connection
from txlog.errors import StoreUnavailable, UsageError
from txlog.model import IsolationLevel, TopicPartition
from txlog.topic.records.schema import is_kafka_schema

RECORDS_MAX = 10_000
"""Of one transaction: about a megabyte of small records."""
_KEPT_SETTINGS = ("cleanup.policy", "retention.ms", "retention.bytes")
"""Of a topic that is created there: a broker's own would delete records that are a week old."""
TIMEOUT_S = 30.0
"""For an answer of Kafka's."""


class KafkaExport:
    """One export. Call `prepare`, then `step` repeatedly."""

    def __init__(
        self, connection: Connection, target: Mapping[str, str], topics: Sequence[str]
    ) -> None:
        """`target`: the configuration of a client of librdkafka."""
        self.name = f"txlog-export.{connection.cluster.log_id}"
        self._connection, self._topics = connection, tuple(topics)
        self._target: dict[str, Any] = dict(target)
        self._producer = Producer({**self._target, "transactional.id": self.name})
        # It reads nothing: it says where the group is, and for whom its offsets are sent.
        self._group = KafkaConsumer(
            {**self._target, "group.id": self.name, "enable.auto.commit": False}
        )
        self._consumer = Consumer(
            root=connection, isolation_level="read_committed", enable_auto_commit=False
        )
        self._ends: dict[TopicPartition, int] = {}

    def prepare(self) -> None:
        """Create missing topics, fence an earlier export, and go where it ended. Raises UsageError,
        StoreUnavailable."""
        partitions = []
        for name in self._topics:
            topic = self._connection.cluster.present_topic(name, linearizable=True)
            if not is_kafka_schema(topic.schema()):
                raise UsageError(f"topic {name!r} has columns; export it to a file.")
            count = len(topic.state.partitions)
            partitions += [TopicPartition(name, number) for number in range(count)]
            for where in partitions[-count:]:
                committed = IsolationLevel.READ_COMMITTED
                self._ends[where] = topic.state.visible_end(where.partition, committed)
        try:
            self._create(partitions)
            self._producer.init_transactions(TIMEOUT_S)
            asked = [KafkaPartition(*where) for where in partitions]
            known = self._group.committed(asked, timeout=TIMEOUT_S)
        except KafkaException as error:
            raise _unavailable(error) from error
        self._consumer.assign(partitions)
        for at in known:
            where = TopicPartition(at.topic, at.partition)
            if at.offset >= 0 and at.metadata:
                self._consumer.seek(where, int(at.metadata))
            else:
                self._consumer.seek_to_beginning(where)

    def _create(self, partitions: Sequence[TopicPartition]) -> None:
        admin = AdminClient(self._target)
        found = admin.list_topics(timeout=TIMEOUT_S).topics
        counts = {where.topic: where.partition + 1 for where in partitions}
        for name, count in counts.items():
            if name not in found:
                topic = self._connection.cluster.present_topic(name)
                settings = topic.state.config.to_dotted()
                config = {setting: str(settings[setting]) for setting in _KEPT_SETTINGS}
                (made,) = admin.create_topics([cimpl.NewTopic(name, count, config=config)]).values()
                made.result(TIMEOUT_S)
            elif len(found[name].partitions) < count:
                raise UsageError(f"Kafka's topic {name!r} has fewer than {count} partitions.")

    @property
    def is_complete(self) -> bool:
        """Whether each partition was read to the end that it had."""
        return all(self._consumer.position(where) >= end for where, end in self._ends.items())

    def step(self, timeout_ms: int = 1_000) -> int:
        """Copy what is there within the time, in one transaction; returns the number of records.
        Raises StoreUnavailable: a new export then goes on."""
        polled = self._consumer.poll(timeout_ms=timeout_ms, max_records=RECORDS_MAX)
        if not polled:
            return 0
        try:
            self._producer.begin_transaction()
            for where, records in polled.items():
                for record in records:
                    self._producer.produce(
                        where.topic,
                        record.value,
                        record.key,
                        where.partition,
                        headers=list(record.headers) or None,
                        timestamp=max(record.timestamp, 1),  # librdkafka takes 0 for now.
                    )
            # Kafka's own offset says nothing here, and a log refuses one beyond its end.
            done = [
                KafkaPartition(*where, 0, metadata=str(self._consumer.position(where)))
                for where in polled
            ]
            self._producer.send_offsets_to_transaction(
                done, self._group.consumer_group_metadata(), TIMEOUT_S
            )
            self._commit()
        except KafkaException as error:
            with suppress(KafkaException):
                self._producer.abort_transaction(TIMEOUT_S)
            raise _unavailable(error) from error
        return sum(map(len, polled.values()))

    def _commit(self) -> None:
        """Again while it is not known whether it is committed."""
        while True:
            try:
                self._producer.commit_transaction(TIMEOUT_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def close(self) -> None:
        """Leave an open transaction to the next export, which aborts it."""
        self._group.close()
        self._consumer.close()


def _unavailable(error: KafkaException) -> StoreUnavailable:
    return StoreUnavailable(f"Kafka: {error.args[0].str()}. Try again, and look at the address.")
