"""Metadata of a log and its topics, which Spark's driver reads and passes to its tasks.

Pickled values for processes that stage records and leave the decision to another process: they need
neither the cluster file nor a journal. It guards R31: it contains no boundary check, no
registration, and no state that a decision rests on. It may be old when it is used: the coordinator
refuses segments below its horizon, and a topic is read again before a decision that names records
for it (R40).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from txlog.catalog.cluster import Cluster
from txlog.catalog.cluster_file import ClusterFile
from txlog.topic.events import TopicOpened
from txlog.topic.state import PartitionState, TopicState
from txlog.topic.topic_log import TopicLog


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """What a process needs to stage records for a topic."""

    opened: TopicOpened
    """The topic's name and incarnation."""
    state: TopicState
    """Its configuration, schemas, number of partitions and staging horizon, and nothing else."""

    @staticmethod
    def of(topic: TopicLog) -> TopicMetadata:
        """The topic as this process last read it."""
        known = topic.state
        state = TopicState(
            topic_id=topic.topic_id,
            name=topic.name,
            config=known.config,
            schemas=known.schemas,
            partitions=(PartitionState(),) * len(known.partitions),
            horizon=known.horizon,
        )
        return TopicMetadata(topic.opened, state)

    def within(self, cluster: Cluster) -> TopicLog:
        """The topic in another process. Staging records makes no request to its journal."""
        topic = TopicLog(cluster.store, self.opened, cluster.runtime, cluster.options)
        topic.journal.show(self.state)
        return topic


@dataclass(frozen=True, slots=True)
class LogMetadata:
    """A log, and the topics to write to."""

    file: ClusterFile
    topics: tuple[TopicMetadata, ...] = ()

    @staticmethod
    def of(cluster: Cluster, topics: Iterable[TopicLog] = ()) -> LogMetadata:
        """The log as this process has it open."""
        return LogMetadata(cluster.file, tuple(map(TopicMetadata.of, topics)))
