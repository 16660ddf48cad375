"""Topics as the admin client manages them: create, describe, change, delete.

Arguments are checked before anything is written. The rules of the topic's journal decide which
changes are allowed. It must not know groups or transactions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import pyarrow as pa

from txlog.catalog.state import unknown_topic
from txlog.client.admin.descriptions import PartitionDescription, TopicDescription
from txlog.client.admin.record_deletion import delete_records
from txlog.client.positions.position_arguments import checked_names
from txlog.engine.connection import Connection
from txlog.engine.new_topic import (
    NewTopic,
    check_configuration,
    checked_topic,
    create_topic,
    evolve_schema,
)
from txlog.errors import InvalidConfig, PublishContention, TopicExists, UsageError
from txlog.fan_out import OnError, in_background, unless_unread
from txlog.model import TopicPartition, validate_topic_name
from txlog.settings import TopicConfig
from txlog.topic.events import AddPartitions, AlterConfig, check_partition_count
from txlog.topic.topic_log import TopicLog

_ATTEMPTS_MAX = 5
"""Attempts to change a configuration. Each fails only if another admin has changed the same topic
since this one read it; admins are few, so more than one failure in a row is rare."""

FAN_OUT_TOPICS_MAX = 100
"""Up to this many topics are read in parallel; of more, some are timed first. On a disk both ways
take 10 ms for 100 topics; threads take longer for many more."""
TIMED_TOPICS = 3
"""Topics that are timed. The first read may also open connections, so the fastest counts; on a
distant store each takes a round trip."""

QUICK_MS = 5.0
"""A store is quick if the fastest of these reads is: a disk takes a tenth of this time, an object
store ten times as long."""


class TopicAdmin:
    """The part of `Admin` that manages topics."""

    connection: Connection

    def create_topics(self, topics: Iterable[NewTopic]) -> None:
        """Create topics; all are checked before the first is created.

        Raises InvalidName, InvalidConfig, IncompatibleSchema, TopicExists.
        """
        checked = [(topic, *checked_topic(topic)) for topic in _checked_topics(topics)]
        if len(checked) > 1:  # For a single topic, writing its entry is the check.
            self._require_free_names([topic.name for topic, _, _ in checked])
        for topic, schema, config in checked:
            create_topic(self.connection, topic, schema, config)

    def _require_free_names(self, names: list[str]) -> None:
        """Raises TopicExists, and InvalidConfig for a name that is given twice."""
        taken = set(names) & set(self.list_topics())
        # A name may belong to a topic whose deletion was interrupted before the name was free.
        finished = [self.connection.cluster.finish_deletion(name) for name in sorted(taken)]
        if any(finished):
            taken = set(names) & set(self.list_topics())
        counts = Counter(names)
        for name in names:
            if name in taken:
                raise TopicExists(
                    f"topic {name!r} exists already; use it, or choose another name.", topic=name
                )
            if counts[name] > 1:
                raise InvalidConfig(f"topic {name!r} is given {counts[name]} times; give it once.")

    def create_topic(
        self,
        name: str,
        num_partitions: int = 1,
        schema: pa.Schema | None = None,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Create one topic. Raises the errors of `create_topics`."""
        self.create_topics([NewTopic(name, num_partitions, schema, config or {})])

    def list_topics(self) -> list[str]:
        """Names of all topics."""
        return sorted(self.connection.cluster.state(linearizable=True).topics)

    def describe_topic(self, name: str) -> TopicDescription:
        """One topic. Raises UnknownTopic."""
        return self.describe_topics([name])[0]

    def describe_topics(
        self, names: Iterable[str] | str | None = None, *, on_error: OnError | None = None
    ) -> list[TopicDescription]:
        """Several topics, by default all. Raises UnknownTopic for a given name.

        One that cannot be read raises, or, with `on_error`, is left out: this is called with
        "topic", its name and the error.
        """
        cluster = self.connection.cluster
        read = partial(cluster.deletions_begun, on_error)
        deletions = in_background(self.connection.runtime.fan_out, read)
        if names is None:
            topics = self._present(cluster.topics(), on_error)
        else:
            find = partial(cluster.present_topic, linearizable=True)
            calls = [
                unless_unread(on_error, "topic", name, partial(find, name))
                for name in checked_names(names)
            ]
            topics = self.connection.runtime.fan_out.run_all(calls)
        being_deleted = deletions()
        return [_described(t, t.topic_id in being_deleted) for t in topics if t is not None]

    def _present(
        self, topics: list[TopicLog], on_error: OnError | None
    ) -> Sequence[TopicLog | None]:
        """The topics that still exist, caught up. Many topics on a quick store are read one after
        the other: with threads, waiting for each other would take longer than the reads."""
        runtime = self.connection.runtime

        def newest(topic: TopicLog) -> Callable[[], TopicLog | None]:
            return unless_unread(on_error, "topic", topic.name, partial(self._newest, topic))

        found: list[TopicLog | None] = []
        shortest_ms = QUICK_MS
        for topic in topics[:TIMED_TOPICS] if len(topics) > FAN_OUT_TOPICS_MAX else ():
            began_ms = runtime.clock.monotonic_ms()
            found.append(newest(topic)())
            shortest_ms = min(shortest_ms, runtime.clock.monotonic_ms() - began_ms)
        calls = [newest(topic) for topic in topics[len(found) :]]
        is_quick = shortest_ms < QUICK_MS
        found += [call() for call in calls] if is_quick else runtime.fan_out.run_all(calls)
        return found

    def _newest(self, topic: TopicLog) -> TopicLog | None:
        """The topic, caught up; if it was deleted, the one that has its name now."""
        if not topic.catch_up(linearizable=True).closed:
            return topic
        return self.connection.cluster.find_topic(topic.opened.name)

    def delete_topics(self, names: Iterable[str] | str) -> None:
        """Delete topics with all their records. Raises InvalidName and UnknownTopic before any is
        deleted."""
        state = self.connection.cluster.state(linearizable=True)
        doomed = [validate_topic_name(name) for name in checked_names(names)]
        for name in doomed:
            if name not in state.topics:
                raise unknown_topic(name, state)
        self.connection.cluster.delete_topics(dict.fromkeys(doomed))

    def create_partitions(self, name: str, total_count: int) -> None:
        """Add partitions, up to this number in all; existing records stay where they are. From then
        on a key may map to another partition. Raises UnknownTopic, and InvalidConfig for fewer
        partitions than there are."""
        count = check_partition_count(name, total_count)
        self.connection.cluster.present_topic(name).execute(AddPartitions(count))

    def alter_topic_config(self, name: str, changes: Mapping[str, object]) -> TopicConfig:
        """Change values by their dotted names; concurrent changes of other values are kept.

        Raises UnknownTopic, InvalidConfig, and PublishContention if other admins win every attempt.
        """
        attempts_left = _ATTEMPTS_MAX
        while True:
            topic = self.connection.cluster.present_topic(name, linearizable=True)
            known = topic.state.config
            config = known.altered(changes)
            check_configuration(name, topic.schema(), config)
            # The journal compares `known`: the whole configuration is replaced, and would undo what
            # another admin has changed meanwhile.
            try:
                topic.execute(AlterConfig(config, known))
                return config
            except PublishContention:
                attempts_left -= 1
                if not attempts_left:
                    raise

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete records below these offsets; -1 means up to the last stable offset.

        Returns the log starts afterwards (Kafka's low watermarks). Raises OffsetOutOfRange before
        anything is deleted, UnknownTopic, UnknownPartition.
        """
        return delete_records(self.connection, offsets)

    def evolve_schema(self, name: str, schema: pa.Schema) -> int:
        """Make an additive change to a topic's schema; returns the schema's id.

        Raises IncompatibleSchema, which names each incompatible column.
        """
        return evolve_schema(self.connection.cluster.present_topic(name), schema)


def _checked_topics(topics: object) -> list[NewTopic]:
    """Raises UsageError."""
    is_one = isinstance(topics, str | NewTopic) or not isinstance(topics, Iterable)
    found: list[NewTopic] = []
    for topic in [topics] if is_one else topics:  # type: ignore[attr-defined]
        if not isinstance(topic, NewTopic):
            raise UsageError(
                f"{topic!r:.80} is not a NewTopic; give NewTopic(name, num_partitions), or call "
                "create_topic(name)."
            )
        found.append(topic)
    return found


def _described(topic: TopicLog, is_being_deleted: bool) -> TopicDescription:
    state = topic.state
    partitions = tuple(
        PartitionDescription(
            number, part.log_start, state.last_stable_offset(number), part.next_offset
        )
        for number, part in enumerate(state.partitions)
    )
    return TopicDescription(
        topic.name,
        topic.topic_id,
        topic.schema(),
        state.newest_schema_id,
        state.config,
        partitions,
        tuple(sorted(tx_id for tx_id, _ in state.open_transactions())),
        is_being_deleted,
    )
