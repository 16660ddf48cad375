"""The coordinators' part in the deletion of topics: from some entry on, no decision names them.

Keeps R54. Before a topic's journal is closed, every coordinator's journal says that the topic is
being deleted, so that its own state refuses decisions that name it (R40); and the topic has the
markers of all that was decided before. A crash in between leaves a topic that takes no transactions
of some coordinators, until any process finishes the deletion. It must not know the list of topics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from txlog.catalog.cluster import Cluster
from txlog.coordinator.coordinator import Coordinator, with_records_of_decision
from txlog.coordinator.events import TopicDeletionBegun
from txlog.coordinator.marker_carrier import decided_markers
from txlog.topic.topic_log import TopicLog


@dataclass(frozen=True, slots=True)
class CoordinatedDeletion:
    """Deletions in the coordinators of one log. Safe to use from threads."""

    cluster: Cluster
    coordinators: Callable[[], Sequence[Coordinator]]

    def begin(self, topics: Sequence[TopicLog]) -> None:
        """Have every coordinator refuse these topics, then finish in them what was decided before.
        May be repeated, by any process. Raises the store's errors."""
        event = TopicDeletionBegun(tuple(topic.topic_id for topic in topics))
        first, *others = self.coordinators()
        # Before the others: `begun` asks this one only.
        first.execute(event)
        list(self.cluster.answers([partial(other.execute, event) for other in others]))
        now_ms = self.cluster.runtime.clock.wall_ms()
        for topic in topics:
            topic.catch_up(linearizable=True)
            for coordinator in (first, *others):
                # Of now or later: nothing that names the topic was decided since the event.
                known = (coordinator.number, coordinator.state)
                for marker in decided_markers(topic.topic_id, *known, now_ms):
                    topic.journal.execute(with_records_of_decision(topic, marker))

    def begun(self) -> Sequence[str]:
        """Ids of the topics whose deletion has begun, as far back as full ids are kept."""
        return self.coordinators()[0].catch_up().deleted_topics.newest
