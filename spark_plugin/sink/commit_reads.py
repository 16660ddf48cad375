"""What the commit of a micro-batch reads before it decides: all of it at once.

Each answer is as of another time, so that they may disagree: what follows from them is checked
where it is decided, by the pend and by PREPARE. It guards R40: a topic that has records is read
anew, and that waited for, before a decision that names them. It must not know what is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from spark_plugin.sink.staging import TaskMessage
from txlog.coordinator.coordinator import Coordinator
from txlog.coordinator.events import Participant
from txlog.engine.connection import Connection
from txlog.errors import UnknownTopic
from txlog.groups.state import GroupState
from txlog.topic.rules import check_segment


def read_for_commit(
    connection: Connection,
    coordinator: Coordinator,
    groups: Sequence[str],
    messages: Sequence[TaskMessage],
    staged: Sequence[Participant],
) -> dict[str, GroupState]:
    """Bring the coordinator up to now, require the topics, and answer where the groups stand.

    Raises UnknownTopic (R40), InvalidRecord, InternalError, and the store's errors.
    """
    cluster = connection.cluster
    for message in messages:
        if message.log is not None and message.log.file == cluster.file:
            for topic in message.log.topics:
                cluster.learn_topic(topic.opened)
    calls: list[Callable[[], Any]] = [coordinator.catch_up]
    calls += [partial(_require_topic, connection, participant) for participant in staged]
    offsets = connection.offsets
    elsewhere = [group for group in groups if offsets.partition_of(group) != coordinator.partition]
    first = len(calls)
    calls += [partial(offsets.group, group) for group in elsewhere]
    found = dict(zip(elsewhere, cluster.fan_out.run_all(calls)[first:], strict=True))
    # A group in the coordinator's journal came with it: two reads of one journal take turns.
    return {group: found[group] if group in found else offsets.seen(group) for group in groups}


def require_topics(connection: Connection, staged: Sequence[Participant]) -> None:
    """Raises UnknownTopic if one was deleted since rows were staged for it (R40), InvalidRecord."""
    calls = [partial(_require_topic, connection, participant) for participant in staged]
    connection.cluster.fan_out.run_all(calls)


def _require_topic(connection: Connection, participant: Participant) -> None:
    """It is there, and has the partitions and the schema that its records were staged for: a marker
    is refused for nothing of that any more."""
    topic = connection.cluster.topic_of_id(participant.topic, participant.topic_id)
    state = topic.catch_up(linearizable=True)
    if state.closed:
        raise UnknownTopic(
            f"topic {participant.topic!r} was deleted since rows were staged for it; nothing of "
            "this batch was committed. Write it again, or start the query again: then it goes "
            "into the topic that has the name by then, or into a new one if createTopics is true.",
            topic=participant.topic,
            topic_id=participant.topic_id,
        )
    for segment in participant.segments:
        check_segment(state, segment)
