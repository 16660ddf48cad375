"""The cluster's journal: the topics, and the producer ids that were given out. Pure.

A topic's own journal is the authority on its partitions, schema and configuration. The cluster only
gives a name its incarnation id (rule R11), so that a topic which is deleted and created again is
another topic. The events that create and delete a topic are also the commands that ask for it.
"""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, get_args

from txlog.errors import CorruptData, PublishContention, TopicExists, UnknownTopic
from txlog.journal.codec import EventCodec, Json, SectionCodec
from txlog.journal.entry import EVENTS_MAX
from txlog.journal.machine import Decided, SimpleMachine
from txlog.model import ProducerId, TopicNumber, WallMs, topic_number
from txlog.sorted_map import SortedMap
from txlog.stored import stored
from txlog.topic.events import TopicOpened

PRODUCER_ID_BLOCK = 100
"""Producer ids that a process takes from the cluster's journal in one entry. With fewer, new
producers would write more entries to the one journal that all processes share; ids that a process
does not use are lost, of 2 to the 62nd."""

COMPARED_MAX = 100
"""Names with which the error for an unknown topic compares the given name."""


@stored("topic_created", opened="topic", created_ms="created_ms")
@dataclass(frozen=True, slots=True)
class TopicCreated:
    """The name has a topic from now on; `opened` is the first event of the topic's journal.

    As a command: the topic gets the next number (R55). Answer: `opened` with the id that has it."""

    opened: TopicOpened
    created_ms: WallMs


@stored("topic_deleted", name="name", topic_id="topic_id")
@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """The name of this incarnation (rule R11) is free from now on."""

    name: str
    topic_id: str


@stored("producer_ids_allocated", next_pid="next_producer_id")
@dataclass(frozen=True, slots=True)
class ProducerIdsAllocated:
    """All producer ids below this one were given out."""

    next_pid: ProducerId


ClusterEvent: TypeAlias = TopicCreated | TopicDeleted | ProducerIdsAllocated


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """Reserve a block of producer ids. Answer: the first."""

    count: int


ClusterCommand: TypeAlias = TopicCreated | TopicDeleted | AllocateProducerIds


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The whole state of the cluster's journal."""

    topics: SortedMap[str, TopicCreated] = field(default_factory=SortedMap)
    next_pid: int = 0
    next_topic: int = 0
    """The number of the next topic: more than those of all topics that ever existed (rule R55)."""


def topic_exists(name: str) -> TopicExists:
    """The error for a name that is taken."""
    return TopicExists(
        f"topic {name!r} exists already; use it, or choose another name.", topic=name
    )


def unknown_topic(name: str, state: ClusterState, url: str = "") -> UnknownTopic:
    """The error for an unknown name, with the nearest existing name."""
    near = difflib.get_close_matches(name, _neighbours(name, state.topics), n=1)
    where = f" in {url}" if url else ""
    remedy = (
        f"did you mean {near[0]!r}? 'txlog topic list' shows all"
        if near
        else f"'txlog topic list' shows all, 'txlog topic create {name}' creates one"
    )
    return UnknownTopic(f"there is no topic {name!r}{where}; {remedy}.", topic=name)


def _neighbours(name: str, names: Iterable[str]) -> list[str]:
    """The names around `name` in alphabetical order; all names if there are few. Comparing 10,000
    names takes a second, and a consumer that waits for a topic raises this error five times a
    second."""
    ordered = sorted(names)
    first = bisect_left(ordered, name) - COMPARED_MAX // 2
    first = max(min(first, len(ordered) - COMPARED_MAX), 0)
    return ordered[first : first + COMPARED_MAX]


def half_deleted_topic(name: str, url: str) -> UnknownTopic:
    """The error for a name whose topic is closed: its deletion is in progress or interrupted."""
    return UnknownTopic(
        f"topic {name!r} in {url} was deleted, and its name is not free yet. If the deletion was "
        f"interrupted, 'txlog topic delete {name}' or 'txlog maintain' finishes it, and so does "
        f"'txlog topic create {name}', which creates another topic.",
        topic=name,
    )


def _require_plausible(state: ClusterState, event: ClusterEvent) -> None:
    """Check that `decide` could have led from this state to this event. Raises CorruptData."""
    match event:
        case TopicCreated():
            if event.opened.name in state.topics:
                raise CorruptData(f"topic {event.opened.name!r} is created a second time")
            # Coordinators would take it for an earlier topic, which may be deleted (R55).
            if topic_number(event.opened.topic_id) < state.next_topic:
                raise CorruptData(f"topic {event.opened.name!r} has the number of an earlier one")
        case TopicDeleted():
            found = state.topics.get(event.name)
            if found is None or found.opened.topic_id != event.topic_id:
                raise CorruptData(f"topic {event.name!r} is deleted and does not exist")
        case ProducerIdsAllocated():
            # Topics would take the records of a second producer for a repeat of the first's (I7).
            given = event.next_pid - state.next_pid
            if given <= 0:
                raise CorruptData("producer ids are given out a second time")
            if given > PRODUCER_ID_BLOCK:
                raise CorruptData(f"{given} producer ids are given out at once")


_EVENTS = EventCodec(*get_args(ClusterEvent))
SECTIONS = SectionCodec(
    {"next_producer_id": 1, "next_topic_number": 1},
    next_producer_id=ProducerId,
    next_topic_number=TopicNumber,
    topic=TopicCreated,
)


class ClusterMachine(SimpleMachine):
    """The cluster's rules as a machine on a journal."""

    rows_max = SECTIONS.rows_max

    def initial(self) -> ClusterState:
        """No topics."""
        return ClusterState()

    def decide(self, state: ClusterState, command: ClusterCommand) -> Decided:
        """The events of `command`. Raises TopicExists or UnknownTopic."""
        match command:
            case TopicCreated():
                name = command.opened.name
                if name in state.topics:
                    raise topic_exists(name)
                if command.opened.topic_id[:8] != f"{state.next_topic:08x}":
                    raise PublishContention("another process has created a topic; try again.")
                return Decided((command,))
            case TopicDeleted():
                found = state.topics.get(command.name)
                # By the id: another process may have freed the name and created its next topic
                # (R11).
                if found is None or command.topic_id != found.opened.topic_id:
                    raise unknown_topic(command.name, state)
                return Decided((command,))
            case AllocateProducerIds():
                allocated = ProducerIdsAllocated(state.next_pid + command.count)
                return Decided((allocated,), state.next_pid)

    def apply(self, state: ClusterState, event: ClusterEvent, slot: int) -> ClusterState:
        """The state after `event`. Raises CorruptData for one that cannot follow the state."""
        _require_plausible(state, event)
        match event:
            case TopicCreated():
                topics = state.topics.with_item(event.opened.name, event)
                next_topic = topic_number(event.opened.topic_id) + 1
                return replace(state, topics=topics, next_topic=next_topic)
            case TopicDeleted():
                return replace(state, topics=state.topics.without([event.name]))
            case ProducerIdsAllocated():
                return replace(state, next_pid=event.next_pid)

    def encode_event(self, event: ClusterEvent) -> Json:
        """The JSON value of an event."""
        return _EVENTS.encode(event)

    def decode_event(self, value: Json) -> ClusterEvent:
        """The event of a JSON value. Raises CorruptData."""
        event: ClusterEvent = _EVENTS.decode(value)
        return event

    def encode_state(self, state: ClusterState) -> Mapping[str, Iterable[Json]]:
        """Sections of a snapshot."""
        return SECTIONS.encode(
            {
                "next_producer_id": [state.next_pid],
                "next_topic_number": [state.next_topic],
                "topic": SECTIONS.texts("topic", state.topics, lambda _, topic: topic),
            }
        )

    def decode_state(self, sections: Mapping[str, list[Json]]) -> ClusterState:
        """The state of these sections. Raises CorruptData."""
        found = SECTIONS.decode(sections)
        (next_pid,) = found["next_producer_id"] or [0]
        (next_topic,) = found["next_topic_number"] or [0]
        topics = SortedMap((topic.opened.name, topic) for topic in found["topic"])
        if any(topic_number(one.opened.topic_id) >= next_topic for one in found["topic"]):
            raise CorruptData("a topic has a number that is not given out yet")
        return ClusterState(topics, next_pid, next_topic)

    def require_reachable(self, state: ClusterState, slot: int) -> None:
        """Raises CorruptData if more producer ids or topics were given out than so many entries can
        give: a forged number near the last one would leave none for new ones."""
        if state.next_pid > (slot + 1) * EVENTS_MAX * PRODUCER_ID_BLOCK:
            raise CorruptData(f"{state.next_pid} producer ids were given out in {slot + 1} entries")
        if state.next_topic > (slot + 1) * EVENTS_MAX:
            raise CorruptData(f"{state.next_topic} topics were created in {slot + 1} entries")
