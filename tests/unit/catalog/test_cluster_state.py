"""The cluster state gives each topic a unique name and each producer a unique number (R11)."""

import pytest

from tests.unit.machine_without_journal import MachineHarness
from txlog.catalog.state import (
    AllocateProducerIds,
    ClusterEvent,
    ClusterMachine,
    ClusterState,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
    unknown_topic,
)
from txlog.errors import CorruptData, PublishContention, TopicExists, UnknownTopic
from txlog.settings import TopicConfig
from txlog.topic.events import TopicOpened


@pytest.fixture
def cluster() -> MachineHarness[ClusterState]:
    return MachineHarness(ClusterMachine())


A, B = "00000000aaaaaaaa", "00000001bbbbbbbb"
"""Ids of the first and of the second topic."""


def opened(topic_id: str, name: str = "t") -> TopicOpened:
    return TopicOpened(topic_id, name, 2, "schema", TopicConfig())


def test_creating_an_existing_topic_is_refused(cluster: MachineHarness[ClusterState]) -> None:
    cluster.run(TopicCreated(opened(A), 1))
    with pytest.raises(TopicExists, match="'t' exists already"):
        cluster.run(TopicCreated(opened(B), 2))
    assert cluster.state.topics["t"].opened == opened(A)


def test_R11_recreated_topic_is_a_new_incarnation(cluster: MachineHarness[ClusterState]) -> None:
    cluster.run(TopicCreated(opened(A), 1))
    cluster.run(TopicDeleted("t", A))
    cluster.run(TopicCreated(opened(B), 2))
    assert cluster.state.topics["t"].opened.topic_id == B
    with pytest.raises(UnknownTopic, match="no topic 't'"):
        cluster.run(TopicDeleted("t", A))


def test_deleting_an_unknown_topic_is_refused(cluster: MachineHarness[ClusterState]) -> None:
    cluster.run(TopicCreated(opened(A), 1))
    cluster.run(TopicDeleted("t", A))
    with pytest.raises(UnknownTopic, match="no topic 't'"):
        cluster.run(TopicDeleted("t", A))


def test_R55_topics_are_numbered_in_the_order_of_their_creation(
    cluster: MachineHarness[ClusterState],
) -> None:
    """Also if two processes expect the same number, and after the newest topic was deleted."""
    cluster.run(TopicCreated(opened("00000000bbbbbbbb", "first"), 1))
    for taken in ("00000000aaaaaaaa", "00000002aaaaaaaa"):
        with pytest.raises(PublishContention):
            cluster.run(TopicCreated(opened(taken, "second"), 1))
    cluster.run(TopicCreated(opened("00000001aaaaaaaa", "second"), 1))
    cluster.run(TopicDeleted("second", "00000001aaaaaaaa"))
    with pytest.raises(PublishContention):
        cluster.run(TopicCreated(opened("00000001aaaaaaaa", "third"), 1))
    cluster.run(TopicCreated(opened("00000002aaaaaaaa", "third"), 1))
    assert cluster.reopened() == cluster.state


def test_I7_producer_id_is_never_allocated_twice(cluster: MachineHarness[ClusterState]) -> None:
    blocks = [(cluster.run(AllocateProducerIds(count)), count) for count in (100, 1, 100)]
    given = [pid for first, count in blocks for pid in range(first, first + count)]
    assert given == list(range(201))


@pytest.mark.parametrize(
    "event",
    [
        TopicCreated(opened(B), 2),
        TopicCreated(opened(A, "other"), 2),
        TopicDeleted("t", B),
        TopicDeleted("unknown", A),
        ProducerIdsAllocated(99),
    ],
)
def test_event_that_cannot_follow_the_state_is_damage(
    cluster: MachineHarness[ClusterState], event: ClusterEvent
) -> None:
    cluster.run(TopicCreated(opened(A), 1))
    cluster.run(AllocateProducerIds(100))
    with pytest.raises(CorruptData):
        cluster.apply(event)


def test_snapshot_restores_the_whole_state(cluster: MachineHarness[ClusterState]) -> None:
    assert cluster.reopened() == cluster.state
    cluster.run(TopicCreated(opened(A), 1))
    cluster.run(TopicCreated(opened(B, "other"), 2))
    cluster.run(TopicDeleted("t", A))
    cluster.run(AllocateProducerIds(7))
    assert cluster.reopened() == cluster.state


def test_snapshot_without_topics_decodes_to_the_empty_state() -> None:
    assert ClusterMachine().decode_state({}) == ClusterState()


def test_unknown_topic_error_names_the_log_and_the_nearest_name(
    cluster: MachineHarness[ClusterState],
) -> None:
    for topic_id, name in [(A, "orders"), (B, "order")]:
        cluster.run(TopicCreated(opened(topic_id, name), 1))
    said = str(unknown_topic("orderss", cluster.state, "file:///log"))
    assert said.startswith("there is no topic 'orderss' in file:///log; did you mean 'orders'?")
    said = str(unknown_topic("xyz", cluster.state))
    assert said.startswith("there is no topic 'xyz'; 'txlog topic list' shows all, ")
