"""The cluster as each process sees it: topics by name and incarnation, producer ids, its file."""

import gc
import json
import weakref
from collections.abc import Callable
from typing import TypeVar

import pytest

from tests.protocol.world import NAMES, SCHEMA, World
from tests.stores.faulty_stores import HookedStore
from txlog.catalog.cluster import TOPICS_KEPT_MIN, Cluster, open_cluster
from txlog.catalog.cluster_file import create_cluster, decode_cluster_file, read_cluster_file
from txlog.catalog.state import PRODUCER_ID_BLOCK
from txlog.errors import NotATxlog, StoreUnavailable, UnknownTopic
from txlog.fan_out import SerialFanOut
from txlog.layout import CLUSTER_FILE
from txlog.settings import TopicConfig
from txlog.storage import MemoryStore
from txlog.testing.clock import manual_runtime
from txlog.topic.events import AdvanceHorizon, CloseTopic
from txlog.topic.records.schema import encode_schema
from txlog.topic.topic_log import TopicLog

T = TypeVar("T")


@pytest.fixture
def world() -> World:
    world = World()
    world.create_topics("a")
    return world


def cluster_of(world: World) -> Cluster:
    return world.process().connection.cluster


def create(cluster: Cluster, name: str = "a") -> str:
    """Create a topic and return its id."""
    return cluster.create_topic(name, 1, encode_schema(SCHEMA), TopicConfig()).topic_id


def lengthen(cluster: Cluster, name: str) -> None:
    """Add more entries than a snapshot needs, so that pruning hides them from a lagging replica."""
    for count in range(6):
        cluster.topic(name).execute(AdvanceHorizon(f"{count:020d}"))


# Topics.


def test_repeated_lookups_of_a_topic_return_the_same_object(world: World) -> None:
    cluster = cluster_of(world)
    topic = cluster.topic("a")
    assert cluster.topic("a") is topic
    assert cluster.topic_of_id("a", topic.topic_id) is topic
    assert cluster.topics() == [topic]
    assert cluster.topic("a") is topic
    assert len(topic.topic_id) == 16


def test_deleted_topics_are_not_kept_as_long_as_the_process_lives(world: World) -> None:
    """A query with a pattern may read topics of each day, which another process deletes."""
    reader, other = cluster_of(world), cluster_of(world)
    seen = []
    for day in range(4 * TOPICS_KEPT_MIN):
        create(other, f"day-{day}")
        topic = reader.topic(f"day-{day}")
        other.delete_topics([topic.name])
        assert topic.catch_up().closed
        seen.append(weakref.ref(topic))
    del topic
    gc.collect()
    assert sum(found() is not None for found in seen) <= 2 * TOPICS_KEPT_MIN
    assert reader.topic("a") is reader.topic("a")


def test_second_process_adds_a_topic_to_an_existing_log(world: World) -> None:
    create(cluster_of(world), "b")
    assert list(cluster_of(world).state().topics) == ["a", "b"]


def test_internal_topic_name_is_looked_up(world: World) -> None:
    with pytest.raises(UnknownTopic, match="there is no topic '__offsets'"):
        cluster_of(world).topic("__offsets")


def test_R11_each_incarnation_is_found_by_its_id(world: World) -> None:
    cluster, other = cluster_of(world), cluster_of(world)
    old = cluster.topic("a").topic_id
    cluster.delete_topics(["a"])
    new = create(cluster)
    for one in (cluster, other):
        assert one.topic("a").topic_id == new
        assert one.topic_of_id("a", old).topic_id == old
        assert one.topic_of_id("a", new).topic_id == new
        assert one.topic_of_id("a", old).catch_up().closed


def test_R15_closed_topic_with_pruned_journal_is_not_found(world: World) -> None:
    cluster, other = cluster_of(world), cluster_of(world)
    cluster.topic("a").catch_up()
    lengthen(other, "a")
    other.topic("a").execute(CloseTopic())
    other.topic("a").journal.prune(keep_entries=1)
    assert cluster.find_topic("a") is None


def test_R15_closed_successor_of_a_closed_topic_is_not_found(world: World) -> None:
    """Another thread opened the successor; later the successor was closed and its journal was
    pruned.
    """
    process, other = world.process(), cluster_of(world)
    cluster = process.connection.cluster
    old = cluster.topic("a")
    old.catch_up()

    def replace_and_close() -> None:
        other.delete_topics(["a"])
        new = create(other)
        cluster.topic_of_id("a", new).catch_up()
        lengthen(other, "a")
        other.topic("a").execute(CloseTopic())
        other.topic("a").journal.prune(keep_entries=1)

    process.store.before("get", old.layout.entry(old.next_slot), replace_and_close)
    assert cluster.find_topic("a") is None
    assert process.store.is_met


def test_R15_deletion_applies_to_the_current_incarnation(world: World) -> None:
    cluster, other = cluster_of(world), cluster_of(world)
    cluster.topic("a").catch_up()
    lengthen(other, "a")
    old = other.topic("a")
    other.delete_topics(["a"])
    old.journal.prune(keep_entries=1)
    create(other)
    cluster.delete_topics(["a"])
    with pytest.raises(UnknownTopic):
        cluster_of(world).topic("a")


@pytest.mark.parametrize("verb", ["delete_topics", "finish_deletion"])
def test_R11_deletion_spares_recreated_topic_of_same_name(world: World, verb: str) -> None:
    process, other = world.process(), cluster_of(world)
    cluster = process.connection.cluster
    cluster.topic("a").catch_up()
    if verb == "finish_deletion":
        cluster.topic("a").execute(CloseTopic())
    created: list[str] = []

    def finish_and_create() -> None:
        assert other.finish_deletion("a")
        created.append(create(other))

    slot = cluster.journal.next_slot
    process.store.before("create", NAMES.cluster().entry(slot), finish_and_create)
    getattr(cluster, verb)("a")
    assert process.store.is_met
    assert cluster_of(world).topic("a").topic_id == created[0]


def test_R11_deletion_leaves_the_opened_next_topic_of_the_name_open(world: World) -> None:
    """Another thread opens the next topic of the name while this one still deletes the old one."""
    process, other = world.process(), cluster_of(world)
    cluster = process.connection.cluster
    old = cluster.topic("a")
    old.catch_up()
    opened: list[TopicLog] = []

    def delete_and_open_next() -> None:
        other.delete_topics(["a"])
        create(other)
        opened.extend(cluster.topics())

    process.store.before("create", old.layout.entry(old.next_slot), delete_and_open_next)
    cluster.delete_topics(["a"])
    assert process.store.is_met
    assert cluster.topic("a") is opened[0]
    assert opened[0].topic_id != old.topic_id


class LateFanOut(SerialFanOut):
    """Other threads and processes act before the caller gets the result of a call."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self._meanwhile = meanwhile

    def start(self, call: Callable[[], T]) -> Callable[[], T]:
        result = call()

        def late() -> T:
            self._meanwhile()
            return result

        return late


def test_R11_creation_leaves_the_opened_next_topic_of_the_name_open(world: World) -> None:
    """Another process deletes the new topic and creates the next one before the call is over."""
    cluster, other = cluster_of(world), cluster_of(world)
    opened: list[TopicLog] = []

    def delete_and_open_next() -> None:
        other.delete_topics(["b"])
        create(other, "b")
        opened.extend(topic for topic in cluster.topics() if topic.name == "b")

    cluster.state()
    cluster.request_fan_out = LateFanOut(delete_and_open_next)
    first = create(cluster, "b")
    assert opened[0].topic_id != first
    assert cluster.topic("b") is opened[0]


def test_interrupted_deletion_is_finished_once(world: World) -> None:
    cluster = cluster_of(world)
    assert not cluster.finish_deletion("a")
    assert not cluster.finish_deletion("b")
    cluster_of(world).topic("a").execute(CloseTopic())
    assert cluster.finish_deletion("a")
    assert not cluster.finish_deletion("a")
    create(cluster)


def test_R15_interrupted_deletion_with_pruned_journal_is_finished(world: World) -> None:
    cluster, other = cluster_of(world), cluster_of(world)
    cluster.topic("a").catch_up()
    lengthen(other, "a")
    other.topic("a").execute(CloseTopic())
    other.topic("a").journal.prune(keep_entries=1)
    assert cluster.finish_deletion("a")


def test_R15_finish_deletion_finds_a_topic_whose_creation_was_pruned(world: World) -> None:
    cluster, other = cluster_of(world), cluster_of(world)
    cluster.state()
    for name in "bcdefgh":
        create(other, name)
    other.topic("h").execute(CloseTopic())
    other.journal.prune(keep_entries=1)
    assert list(cluster.state().topics) == ["a"], "this read may lag"
    assert cluster.finish_deletion("h")


def test_R15_list_of_all_topics_is_linearizable(world: World) -> None:
    cluster, other = cluster_of(world), cluster_of(world)
    cluster.state()
    for name in "fedcb":
        create(other, name)
    other.journal.prune(keep_entries=1)
    assert [topic.name for topic in cluster.topics()] == list("abcdef")


def test_known_topic_is_read_only_on_first_use(world: World) -> None:
    process = world.process()
    cluster = process.connection.cluster
    topic = cluster.known_topic("a")
    assert topic.state.topic_id == topic.topic_id
    process.store.before("get", topic.layout.entry(topic.next_slot), lambda: None)
    assert cluster.known_topic("a") is topic
    assert not process.store.is_met, "nothing was read again"


def test_topic_looked_up_by_id_is_the_same_object_by_name(world: World) -> None:
    cluster = cluster_of(world)
    topic_id = cluster_of(world).topic("a").topic_id
    topic = cluster.topic_of_id("a", topic_id)
    assert cluster.topic("a") is topic
    assert topic.opened.schema == encode_schema(SCHEMA)


# The journal, and producer ids.


def test_cluster_journal_is_snapshotted_and_pruned_as_requested(world: World) -> None:
    cluster = cluster_of(world)
    for name in "bcdef":
        create(cluster, name)  # 7 entries with the first two; every fourth has a snapshot.
    layout = NAMES.cluster()
    assert world.store.get(layout.snapshot(3)) is not None
    assert cluster.journal.prune(keep_entries=5, apart_entries=3) == 0
    assert cluster.journal.prune(keep_entries=6) == 1
    assert cluster.journal.prune(keep_entries=4, apart_entries=2) == 2


def test_I7_producer_ids_are_allocated_in_blocks_without_gaps(world: World) -> None:
    cluster = cluster_of(world)
    given = [cluster.producer_id() for _ in range(2 * PRODUCER_ID_BLOCK)]
    assert given == list(range(2 * PRODUCER_ID_BLOCK))
    assert cluster_of(world).producer_id() == 2 * PRODUCER_ID_BLOCK


# The file.


def test_log_is_created_only_on_request() -> None:
    store = MemoryStore(manual_runtime())
    with pytest.raises(NotATxlog, match="there is no log at memory://"):
        open_cluster(store, manual_runtime())
    assert read_cluster_file(store) is None
    made = open_cluster(store, manual_runtime(), create=True)
    assert open_cluster(store, manual_runtime()).log_id == made.log_id


def test_cluster_file_contains_the_probe_result() -> None:
    store = MemoryStore(manual_runtime())
    file = create_cluster(store, manual_runtime())
    assert json.loads(file.probe)["keys"] > 0
    data = store.get(CLUSTER_FILE)
    assert data is not None
    assert b'", "' not in data


@pytest.mark.parametrize("page", [b"<!DOCTYPE html>", b"\n  <html>"])
def test_web_page_in_place_of_the_cluster_file_is_store_unavailable(page: bytes) -> None:
    with pytest.raises(StoreUnavailable, match="a web page came instead of an object"):
        decode_cluster_file(page, "s3://bucket/log")


@pytest.mark.parametrize("moment", ["before its file", "after the first look"])
def test_processes_creating_a_log_concurrently_get_the_same_log(moment: str) -> None:
    inner = MemoryStore(manual_runtime())
    store = HookedStore(inner)

    def make_it() -> None:
        other = open_cluster(inner, manual_runtime(9), create=True)
        create(other)

    if moment == "before its file":
        store.before("create", CLUSTER_FILE, make_it)
    else:
        store.after("get", CLUSTER_FILE, make_it)
    file = create_cluster(store, manual_runtime())
    assert store.is_met
    assert file == read_cluster_file(inner)
    assert list(open_cluster(inner, manual_runtime()).state().topics) == ["a"]
