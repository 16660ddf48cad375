"""Metadata of a log and its topics, as Spark's driver has read them and its tasks take them.

Values that are pickled, for processes that stage records and leave the decision to another one:
with them they need neither the log's file nor a journal. It guards R31: nothing in it is a boundary
check, a registration or a state that is decided by. What it says may be old by the time it is used:
the coordinator refuses segments below its horizon, and a topic is looked at before a decision that
names records for it (R40).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from txlog.catalog.cluster import Cluster
from txlog.catalog.cluster_file import ClusterFile
from txlog.settings import TopicConfig
from txlog.topic.events import TopicOpened
from txlog.topic.state import PartitionState, TopicState
from txlog.topic.topic_log import TopicLog


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """What must be known of a topic in order to stage records for it."""

    opened: TopicOpened
    """Its incarnation."""
    config: TopicConfig
    schemas: tuple[str, ...]
    """By id, as they are stored."""
    partition_count: int
    horizon: str
    """Of staging: segments that are named below it would be refused (R17)."""

    @staticmethod
    def of(topic: TopicLog) -> TopicMetadata:
        """The topic as this process has seen it."""
        state = topic.state
        return TopicMetadata(
            topic.opened, state.config, state.schemas, len(state.partitions), state.horizon
        )

    def within(self, cluster: Cluster) -> TopicLog:
        """The topic, in another process. It asks nothing as long as records are only staged."""
        topic = TopicLog(cluster.store, self.opened, cluster.runtime, cluster.options)
        topic.journal.show(self._state())
        return topic

    def _state(self) -> TopicState:
        return TopicState(
            topic_id=self.opened.topic_id,
            name=self.opened.name,
            config=self.config,
            schemas=self.schemas,
            partitions=(PartitionState(),) * self.partition_count,
            horizon=self.horizon,
        )


@dataclass(frozen=True, slots=True)
class LogMetadata:
    """A log, and those of its topics that are written."""

    file: ClusterFile
    topics: tuple[TopicMetadata, ...] = ()

    @staticmethod
    def of(cluster: Cluster, topics: Iterable[TopicLog] = ()) -> LogMetadata:
        """The log as this process has it open."""
        return LogMetadata(cluster.file, tuple(map(TopicMetadata.of, topics)))
