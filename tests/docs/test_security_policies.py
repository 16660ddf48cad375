"""The policies of docs/security.md suffice for each role, and each of their lines is used."""

import re
from collections.abc import Callable

import pytest

from tests.docs.guarded_store import ACTIONS, GuardedStore, Policy
from tests.docs.pages import Page
from tests.source_tree import ROOT
from tests.stores.scripted_store import ScriptedStore, unavailable
from txlog.catalog.cluster_file import create_cluster
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.coordinator.events import Participant
from txlog.engine.connection import Connection, open_connection
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import StoreDenied, StoreUnavailable
from txlog.groups.state import PendingOffset
from txlog.maintenance.maintenance import Maintenance
from txlog.model import TopicPartition
from txlog.settings import LogSettings, ProcessSettings
from txlog.storage import MemoryStore, Store
from txlog.testing.clock import manual_runtime
from txlog.topic.records.conversion import with_timestamp
from txlog.topic.records.python_rows import record_batch_from_rows

pytestmark = pytest.mark.slow

PAGE = Page(ROOT / "docs" / "security.md")
ROUNDS = 12
"""Enough for a snapshot to be due in every journal that a role writes to."""

RECORDS = 150
"""More than a boundary needs, and enough segments to be merged and deleted."""

TOPICS: dict[str, dict[str, object]] = {
    "in": {"retention.bytes": 2_000, "cleanup.policy": "compact,delete"},
    "orders": {},
}

TOLERATED = {"producer": {("create", "cluster/*/snapshots/*"), ("replace", "cluster/*/hint.json")}}
"""Actions that a role tries but does not need."""
TOLERATED["Spark query"] = TOLERATED["producer"]

EARLY = ProcessSettings(staging_retention_ms=1, file_delete_delay_ms=1, journal_retention_entries=1)


def log() -> MemoryStore:
    """A log with the topics `in` and `orders`, some records, and all rights."""
    runtime = manual_runtime()
    store = MemoryStore(runtime)
    create_cluster(store, runtime, LogSettings(journal_snapshot_entries=4))
    connection = open_connection(store, runtime)
    for name, config in TOPICS.items():
        Admin(connection).create_topic(name, 1, config=config)
    with Producer(connection) as producer:
        for number in range(RECORDS):
            producer.send("in", b"%d" % number, key=b"%d" % (number % 3)).get()
    for number in range(20):
        with Producer(connection, transactional_id=f"job-{number}") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("orders", b"%d" % number)
                producer.send_offsets_to_transaction(
                    {TopicPartition("in", 0): 1}, f"group-{number}"
                )
    left_open = Producer(
        connection,
        transactional_id="late",
        transaction_timeout_ms=900_000,
        transaction_records="in.log",
    )
    left_open.init_transactions()
    left_open.begin_transaction()
    left_open.send("in", b"open", key=b"k")
    left_open.flush()
    return store


def opened(store: Store) -> Connection:
    return open_connection(store, manual_runtime(seed=2))


def read(store: Store) -> None:
    connection = opened(store)
    assert Admin(connection).describe_topics()
    assert Admin(connection).describe_group("group-1").partitions
    with Consumer("in", root=connection, auto_offset_reset="earliest") as consumer:
        assert consumer.poll()


def produce(store: Store) -> None:
    connection = opened(store)
    for number in range(ROUNDS):
        with Producer(connection, transactional_id=f"shop-{number % 2}") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("orders", b"x")
    with Producer(connection) as producer:
        producer.send("orders", b"x")


def consume(store: Store) -> None:
    connection = opened(store)
    for _ in range(ROUNDS):
        options = {"group_id": "billing", "auto_offset_reset": "earliest"}
        with Consumer("in", root=connection, **options) as consumer:
            assert consumer.poll(max_records=1)
            consumer.commit()


def stream(store: Store) -> None:
    """The work of the Spark source and sink in a micro-batch, without Spark."""
    connection = opened(store)
    session = TransactionSession(connection, "spark.query")
    session.register("run")
    source, sink = (connection.cluster.present_topic(name) for name in ("in", "orders"))
    for number in range(ROUNDS):
        source.catch_up()
        rows = with_timestamp(record_batch_from_rows([{"value": b"v"}], sink.schema()), 0)
        session.begin()
        staged = sink.stage({0: [rows]}, 0)
        moved = PendingOffset("in", source.topic_id, 0, number, number + 1)
        session.pend_staged("query", (moved,))
        session.commit((Participant(sink.topic_id, "orders", (), (staged,)),))
    session.join()
    with Consumer("in", root=connection, auto_offset_reset="earliest") as consumer:
        assert consumer.poll()


def maintain(store: Store) -> None:
    connection = opened(store)
    clock = connection.runtime.clock
    for _ in range(3):
        maintenance = Maintenance(connection, EARLY)
        for _ in range(2):
            assert maintenance.run_once().failures == []
            clock.sleep_ms(100_000_000)
    # `run_once` does this once a journal has grown by some thousand entries.
    assert connection.cluster.journal.prune(1)
    assert sum(coordinator.journal.prune(1, 1) for coordinator in connection.coordinators())
    assert sum(connection.cluster.topic(name).journal.prune(1, 1) for name in TOPICS)


def administer(store: Store) -> None:
    connection = opened(store)
    admin = Admin(connection)
    for number in range(ROUNDS):
        admin.create_topic(f"new-{number}", 1)
        admin.alter_topic_config("orders", {"retention.ms": 1_000 + number})
        admin.alter_topic_config("in", {"retention.ms": 1_000 + number})
    admin.delete_topics(["new-0"])
    where = TopicPartition("in", 0)
    for number in range(ROUNDS):
        with Consumer(root=connection, group_id="moved", auto_offset_reset="earliest") as consumer:
            consumer.assign([where])
            consumer.commit({where: number + 1})
    (left_open,) = (topic.open_transactions for topic in admin.describe_topics(["in"]))
    admin.abort_transaction(left_open[0])


def create(store: Store) -> None:
    """Create a log in an empty store."""
    runtime = manual_runtime(seed=3)
    assert create_cluster(store, runtime)
    assert open_connection(store, runtime, create=True)


WORK: dict[str, Callable[[Store], None]] = {
    "read-only": read,
    "producer": produce,
    "consumer": consume,
    "Spark query": stream,
    "maintenance": maintain,
    "admin": administer,
    "creation of the log": create,
}


def policies() -> dict[str, Policy]:
    """The table of the page: role, action, patterns."""
    found: dict[str, Policy] = {}
    for role, action, names in PAGE.rows("<!-- policies -->"):
        patterns = tuple(re.findall(r"`([^`]+)`", names))
        found.setdefault(role, {})[action] = patterns
    return found


def test_page_has_a_policy_for_each_role() -> None:
    found = policies()
    assert list(found) == list(WORK)
    assert {action for policy in found.values() for action in policy} <= set(ACTIONS)


@pytest.mark.parametrize("role", WORK)
def test_policy_suffices_for_its_role_and_grants_nothing_unused(role: str) -> None:
    """The test fails if the code needs another prefix or action: then the page must list it."""
    store = MemoryStore(manual_runtime()) if role == "creation of the log" else log()
    policy = policies()[role]
    guarded = GuardedStore(store, policy)
    WORK[role](guarded)
    assert guarded.denied - TOLERATED.get(role, set()) == set()
    granted = {(action, pattern) for action, patterns in policy.items() for pattern in patterns}
    assert granted - guarded.used == set()


@pytest.mark.parametrize("role", [role for role in WORK if role != "creation of the log"])
def test_role_with_a_reduced_policy_is_denied(role: str) -> None:
    policy = policies()[role]
    lacking = {action: patterns for action, patterns in policy.items() if action != "create"}
    if lacking == policy:
        lacking["read"] = policy["read"][1:]
    guarded = GuardedStore(log(), lacking)
    with pytest.raises((StoreDenied, AssertionError)):
        WORK[role](guarded)
    assert guarded.denied


def test_producer_policy_denies_writes_to_other_topics() -> None:
    guarded = GuardedStore(log(), policies()["producer"])
    with Producer(opened(guarded)) as producer, pytest.raises(StoreDenied):
        producer.send("in", b"x").get()
    assert ("read", "topics/in/*/hint.json") in guarded.denied


def commit_and_die_before_the_marker(store: Store) -> None:
    """Commit a record of `orders` whose transaction is decided; the topic has no marker yet."""
    scripted = ScriptedStore(store)
    producer = Producer(
        open_connection(scripted, manual_runtime(seed=3)),
        transactional_id="dead",
        transaction_records="in.log",
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("orders", b"decided").get()
    scripted.on("create", "topics/", unavailable, holding="marker_written", times=100)
    with pytest.raises(StoreUnavailable):
        producer.commit_transaction()


def test_read_only_reader_waits_for_a_decided_transaction_until_a_writer_finishes_it() -> None:
    """The reader may write no marker, and its denied attempt to do so does not fail the poll."""
    store = log()
    guarded = GuardedStore(store, policies()["read-only"])
    options = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    with Consumer("orders", root=opened(guarded), **options) as reader:
        assert len(values_of(reader)) == 20
        commit_and_die_before_the_marker(store)
        for _ in range(3):
            assert values_of(reader) == []
        assert ("create", "topics/orders/*/entries/*") in guarded.denied
        with Consumer("orders", root=opened(store), **options) as writer:
            assert len(values_of(writer)) + len(values_of(writer)) == 21
        assert values_of(reader) == [b"decided"]


def values_of(consumer: Consumer) -> list[object]:
    """The values that one poll of up to five seconds returns."""
    polled = consumer.poll(timeout_ms=5_000, max_records=1_000)
    return [record.value for records in polled.values() for record in records]


def test_read_only_policy_suffices_for_read_committed_reads() -> None:
    """The reader may not end the open transaction behind the records, and need not."""
    store = log()
    guarded = GuardedStore(store, policies()["read-only"])
    connection = opened(guarded)
    options = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    with Consumer("in", root=connection, **options) as consumer:
        seen = sum(map(len, consumer.poll(max_records=1_000).values()))
    assert seen == RECORDS
