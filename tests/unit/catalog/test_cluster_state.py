"""The cluster state gives each topic a unique name and each producer a unique number (R11)."""

import pytest

from tests.unit.machine_without_journal import Fold
from txlog.catalog.state import (
    AllocateProducerIds,
    ClusterMachine,
    ClusterState,
    TopicCreated,
    TopicDeleted,
    unknown_topic,
)
from txlog.errors import TopicExists, UnknownTopic
from txlog.settings import TopicConfig
from txlog.topic.events import TopicOpened


@pytest.fixture
def cluster() -> Fold[ClusterState]:
    return Fold(ClusterMachine())


def opened(topic_id: str, name: str = "t") -> TopicOpened:
    return TopicOpened(topic_id, name, 2, "schema", TopicConfig())


def test_a_topic_is_created_once(cluster: Fold[ClusterState]) -> None:
    cluster.run(TopicCreated(opened("a"), 1))
    with pytest.raises(TopicExists, match="'t' exists already"):
        cluster.run(TopicCreated(opened("b"), 2))
    assert cluster.state.topics["t"].opened == opened("a")


def test_R11_a_name_that_is_created_again_is_another_topic(cluster: Fold[ClusterState]) -> None:
    cluster.run(TopicCreated(opened("a"), 1))
    cluster.run(TopicDeleted("t", "a"))
    cluster.run(TopicCreated(opened("b"), 2))
    assert cluster.state.topics["t"].opened.topic_id == "b"
    with pytest.raises(UnknownTopic, match="no topic 't'"):
        cluster.run(TopicDeleted("t", "a"))


def test_what_is_not_there_is_not_deleted(cluster: Fold[ClusterState]) -> None:
    cluster.run(TopicCreated(opened("a"), 1))
    cluster.run(TopicDeleted("t", "a"))
    with pytest.raises(UnknownTopic, match="no topic 't'"):
        cluster.run(TopicDeleted("t", "a"))


def test_I7_no_producer_id_is_given_out_twice(cluster: Fold[ClusterState]) -> None:
    blocks = [(cluster.run(AllocateProducerIds(count)), count) for count in (100, 1, 100)]
    given = [pid for first, count in blocks for pid in range(first, first + count)]
    assert given == list(range(201))


def test_a_snapshot_says_all_that_the_state_says(cluster: Fold[ClusterState]) -> None:
    assert cluster.reopened() == cluster.state
    cluster.run(TopicCreated(opened("a"), 1))
    cluster.run(TopicCreated(opened("b", "other"), 2))
    cluster.run(TopicDeleted("t", "a"))
    cluster.run(AllocateProducerIds(7))
    assert cluster.reopened() == cluster.state


def test_a_snapshot_without_topics_is_that_of_an_empty_cluster() -> None:
    assert ClusterMachine().decode_state({}) == ClusterState()


def test_an_unknown_topic_is_refused_with_the_log_and_the_nearest_name(
    cluster: Fold[ClusterState],
) -> None:
    for topic_id, name in [("a", "orders"), ("b", "order")]:
        cluster.run(TopicCreated(opened(topic_id, name), 1))
    said = str(unknown_topic("orderss", cluster.state, "file:///log"))
    assert said.startswith("there is no topic 'orderss' in file:///log; did you mean 'orders'?")
    said = str(unknown_topic("xyz", cluster.state))
    assert said.startswith("there is no topic 'xyz'; 'txlog topic list' shows all, ")
