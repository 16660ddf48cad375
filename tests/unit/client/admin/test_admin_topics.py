"""Topics: create, list, describe, alter, grow, evolve, delete; all checks precede all changes."""

from typing import Any

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.faulty_stores import DyingStore, ProcessDied
from tests.stores.scripted_store import preceded_by
from txlog.client.admin import Admin, NewTopic, PartitionDescription
from txlog.client.producer.producer import Producer
from txlog.errors import (
    IncompatibleSchema,
    InvalidConfig,
    InvalidName,
    InvalidRecord,
    TopicExists,
    UnknownTopic,
)
from txlog.maintenance.maintenance import Maintenance
from txlog.model import NAME_LENGTH_MAX, TopicPartition
from txlog.settings import TopicConfig
from txlog.topic.events import CloseTopic
from txlog.topic.records.schema import KAFKA_SCHEMA

SCHEMA = pa.schema([pa.field("id", pa.int32(), nullable=False), ("name", pa.string())])


def test_R15_topic_and_group_lists_are_current_after_pruning(log: MemoryLog) -> None:
    """A process that was idle during the pruning does not see at once that newer entries exist."""
    idle = Admin(log.process())
    assert (idle.list_topics(), idle.list_groups()) == (["t", "u"], [])
    log.admin.create_topic("new")
    consumer = log.consumer("t", group_id="g")
    consumer.commit({TopicPartition("t", 0): 0})
    log.connection.cluster.journal.prune(0, 1)
    log.connection.coordinator_of("g").journal.prune(0, 1)
    assert sorted(idle.connection.cluster.state().topics) == ["t", "u"], "it lags"
    assert (idle.list_topics(), idle.list_groups()) == (["new", "t", "u"], ["g"])
    idle.delete_topics(["new"])


def test_describe_topic_returns_what_was_created(log: MemoryLog) -> None:
    config = {"compression.type": "zstd", "max.message.bytes": "5000", "key.column": "id"}
    log.admin.create_topics([NewTopic("a", 3, SCHEMA, config), NewTopic("b")])
    assert log.admin.list_topics() == ["a", "b", "t", "u"]
    found = Admin(log.process()).describe_topic("a")
    assert (found.name, found.schema, found.schema_id) == ("a", SCHEMA, 0)
    assert found.config == TopicConfig("zstd", 5_000, "id")
    assert found.partitions == tuple(PartitionDescription(p, 0, 0, 0) for p in range(3))
    assert found.open_transactions == ()
    plain = log.admin.describe_topic("b")
    assert (plain.schema, plain.config, len(plain.partitions)) == (KAFKA_SCHEMA, TopicConfig(), 1)
    assert plain.topic_id != found.topic_id


@pytest.mark.in_log
def test_describe_topic_shows_end_offsets_and_open_transactions(log: MemoryLog) -> None:
    log.producer().send("t", b"x", partition=0).get()
    producer = log.producer("a")
    tx_id = producer.begin_transaction()
    producer.send("t", b"y", partition=0).get()
    (found,) = log.admin.describe_topics(["t"])
    assert found.partitions == (PartitionDescription(0, 0, 1, 2), PartitionDescription(1, 0, 0, 0))
    assert found.open_transactions == (tx_id,)
    producer.commit_transaction()
    assert log.admin.describe_topic("t").partitions[0].last_stable_offset == 2
    assert [topic.name for topic in log.admin.describe_topics()] == ["t", "u"]
    assert log.admin.describe_topics([]) == []


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_records_round_trip_with_every_compression_type(log: MemoryLog, compression: str) -> None:
    log.admin.create_topic("c", 1, config={"compression.type": compression})
    before = log.objects()
    log.producer().send("c", b"x" * 10_000).get()
    assert log.values("c") == [b"x" * 10_000]
    size = sum(len(log.objects()[path]) for path in log.changed_since(before))
    assert (size < 5_000) == (compression != "none")


@pytest.mark.parametrize(
    "name",
    [
        "", ".", "..", "a/b", "/etc", "../t", "t/../u", "a\\b", "a b", "ü", "a\x00b", "x\n",
        "~", "a:b", "%2e%2e", "x" * (NAME_LENGTH_MAX + 1), "__consumer_offsets", "__x", None, 5,
        b"t",
    ],
)  # fmt: skip
def test_invalid_topic_name_is_refused_by_every_call(log: MemoryLog, name: Any) -> None:
    before = log.objects()
    for create in (
        lambda: log.admin.create_topic(name),
        lambda: log.admin.create_topics([NewTopic("good"), NewTopic(name)]),
    ):
        with pytest.raises(InvalidName):
            create()
    producer = log.producer()
    consumer = log.consumer()
    after_init = log.objects()
    for use in (
        lambda: producer.send(name, b"x"),
        lambda: producer.send_batch(name, pa.table({"value": [b"x"]})),
        lambda: consumer.end_offsets([TopicPartition(name, 0)]),
        lambda: log.admin.describe_topic(name),
        lambda: log.admin.delete_topics([name]),
        lambda: log.admin.create_partitions(name, 5),
    ):
        with pytest.raises((InvalidName, InvalidRecord, UnknownTopic)):
            use()
    assert log.changed_since(after_init) == []
    assert all(path.startswith("cluster/") for path in set(after_init) - set(before))


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * NAME_LENGTH_MAX, "_x", "-"])
def test_valid_topic_name_is_accepted(log: MemoryLog, name: str) -> None:
    log.admin.create_topic(name)
    log.producer().send(name, b"x").get()
    assert log.values(name) == [b"x"]


@pytest.mark.parametrize(
    ("topic", "error", "message"),
    [
        (NewTopic("t"), TopicExists, "'t' exists already; use it, or choose another name"),
        (NewTopic("good"), InvalidConfig, "'good' is given 2 times"),
        (NewTopic("x", 0), InvalidConfig, "cannot have 0 partitions; choose 1 to 10000"),
        (NewTopic("x", 10_001), InvalidConfig, "cannot have 10001 partitions"),
        (NewTopic("x", "4"), InvalidConfig, "cannot have '4' partitions"),  # type: ignore[arg-type]
        (NewTopic("x", True), InvalidConfig, "cannot have True partitions"),
        (NewTopic("x", 1, pa.schema([])), IncompatibleSchema, "column"),
        (NewTopic("x", 1, pa.schema([("_offset", pa.int64())])), IncompatibleSchema, "reserved"),
        (NewTopic("x", 1, pa.schema([("a", pa.null())])), IncompatibleSchema, "'a'"),
        (NewTopic("x", 1, "a int"), IncompatibleSchema, "must be a pyarrow.Schema"),
        (NewTopic("x", config={"key.column": "id"}), InvalidConfig, "no such column; it has key"),
        (NewTopic("x", config={"max.message.byte": 5}), InvalidConfig, "max.message.bytes"),
        (NewTopic("x", config={"max.message.bytes": "big"}), InvalidConfig, "a whole number"),
        (NewTopic("x", config={"max.message.bytes": 0}), InvalidConfig, "between 1"),
        (NewTopic("x", config={"compression.type": "gzip"}), InvalidConfig, "none, lz4, zstd"),
        (
            NewTopic("x", 1, pa.schema([("l", pa.list_(pa.int8()))]), {"key.column": "l"}),
            InvalidConfig,
            "no serialized form",
        ),
    ],
)
def test_all_topics_are_checked_before_the_first_is_created(
    log: MemoryLog, topic: NewTopic, error: type[Exception], message: str
) -> None:
    before = log.objects()
    with pytest.raises(error, match=message):
        log.admin.create_topics([NewTopic("good"), topic])
    assert log.changed_since(before) == []


def test_second_process_creating_same_topic_gets_topic_exists(log: MemoryLog) -> None:
    others = [Admin(log.process()) for _ in range(2)]
    for admin in others:
        admin.list_topics()
    others[0].create_topic("x", 3)
    with pytest.raises(TopicExists):
        others[1].create_topic("x", 5)
    assert len(others[1].describe_topic("x").partitions) == 3


# Changes.


def test_partition_count_can_only_grow(log: MemoryLog) -> None:
    log.admin.create_partitions("t", 4)
    log.admin.create_partitions("t", 4)
    assert len(log.admin.describe_topic("t").partitions) == 4
    before = log.objects()
    for count in (3, 0, 10_001, "5", None):
        with pytest.raises(InvalidConfig):
            log.admin.create_partitions("t", count)  # type: ignore[arg-type]
    assert log.changed_since(before) == []


def test_alter_topic_config_applies_valid_options_and_refuses_invalid(log: MemoryLog) -> None:
    changed = log.admin.alter_topic_config("t", {"max.message.bytes": "77"})
    assert changed == log.admin.describe_topic("t").config == TopicConfig(max_message_bytes=77)
    before = log.objects()
    for changes in (
        {"max.bytes": 5},
        {"key.column": "nope"},
        {"compression.type": "x"},
        {"min.cleanable.dirty.ratio": 10**400},
    ):
        with pytest.raises(InvalidConfig):
            log.admin.alter_topic_config("t", changes)
    log.admin.alter_topic_config("t", {})
    assert log.changed_since(before) == []


def test_concurrent_config_changes_are_both_applied(log: MemoryLog) -> None:
    slow, fast = Admin(log.connection), Admin(log.process())
    change = preceded_by(lambda: fast.alter_topic_config("t", {"retention.ms": 5}))
    log.store.on("create", "topics/t/.*/entries", change)
    slow.alter_topic_config("t", {"compression.type": "zstd"})
    config = log.admin.describe_topic("t").config
    assert (config.retention_ms, config.compression_type) == (5, "zstd")


def test_R15_lagging_admin_does_not_revert_config_change_after_pruning(log: MemoryLog) -> None:
    lagging, other = Admin(log.process()), log.process()
    lagging.describe_topic("t")
    Admin(other).alter_topic_config("t", {"retention.ms": 5})
    for number in range(10):
        log.producer().send("t", b"%d" % number).get()
    other.cluster.present_topic("t", linearizable=True)
    assert other.cluster.topic("t").journal.prune(2)
    lagging.alter_topic_config("t", {"compression.type": "zstd"})
    config = log.admin.describe_topic("t").config
    assert (config.retention_ms, config.compression_type) == (5, "zstd")


def test_old_records_are_read_with_evolved_schema(log: MemoryLog) -> None:
    log.admin.create_topic("typed", 1, SCHEMA)
    producer = log.producer()
    producer.send("typed", {"id": 1, "name": "x"}).get()
    wider = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("at", pa.date32())]
    )
    assert log.admin.evolve_schema("typed", wider) == 1
    assert log.admin.evolve_schema("typed", wider) == 1, "asking again changes nothing"
    producer.send("typed", {"id": 2**40, "name": None}).get()
    assert log.values("typed") == [
        {"id": 1, "name": "x", "at": None},
        {"id": 2**40, "name": None, "at": None},
    ]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (SCHEMA.remove(1), "'name' .string. is missing"),
        (SCHEMA.set(1, pa.field("name", pa.int64())), "'name' is string and would be int64"),
        (SCHEMA.append(pa.field("x", pa.int8(), nullable=False)), "'x' .int8. is new and not null"),
        (SCHEMA.set(0, pa.field("id", pa.int16(), nullable=False)), "'id' is int32"),
        (SCHEMA.set(1, pa.field("name", pa.string(), nullable=False)), "was nullable"),
    ],
)
def test_incompatible_schema_change_is_refused_with_reason(
    log: MemoryLog, schema: pa.Schema, message: str
) -> None:
    log.admin.create_topic("typed", 1, SCHEMA)
    before = log.objects()
    with pytest.raises(IncompatibleSchema, match=f"{message}.*create another topic"):
        log.admin.evolve_schema("typed", schema)
    assert log.changed_since(before) == []


def test_type_change_of_key_column_is_refused(log: MemoryLog) -> None:
    log.admin.create_topic("typed", 5, SCHEMA, {"key.column": "id"})
    wider = SCHEMA.set(0, pa.field("id", pa.int64(), nullable=False))
    with pytest.raises(IncompatibleSchema, match="'id' is the key.column.*other partitions"):
        log.admin.evolve_schema("typed", wider)
    assert log.admin.evolve_schema("typed", SCHEMA.append(pa.field("more", pa.int8()))) == 1


# Deleting.


def test_deleted_topic_is_unknown_to_every_client(log: MemoryLog) -> None:
    other = log.elsewhere()
    other.send("t", b"x").get()
    log.admin.delete_topics(["t"])
    assert log.admin.list_topics() == ["u"]
    for call in (
        lambda: log.admin.describe_topic("t"),
        lambda: log.admin.delete_topics(["t"]),
        lambda: log.consumer("t").end_offsets([TopicPartition("t", 0)]),
        lambda: other.send("t", b"y"),
    ):
        with pytest.raises(UnknownTopic):
            call()


def test_delete_topics_deletes_none_if_one_is_unknown(log: MemoryLog) -> None:
    before = log.objects()
    with pytest.raises(UnknownTopic, match="there is no topic 'nope'"):
        log.admin.delete_topics(["t", "nope"])
    assert log.changed_since(before) == []
    log.admin.delete_topics(["t", "t", "u"])
    assert log.admin.list_topics() == []


@pytest.mark.parametrize("by", ["create", "maintenance", "delete"])
def test_interrupted_topic_deletion_is_completed_by_later_operation(
    log: MemoryLog, by: str
) -> None:
    """The simulation once found a topic that could neither be used nor be created."""
    log.connection.cluster.topic("t").execute(CloseTopic())
    if by == "create":
        log.admin.create_topic("t", 3)
        assert len(Admin(log.process()).describe_topic("t").partitions) == 3
        return
    if by == "maintenance":
        report = Maintenance(log.process()).run_once()
        assert ("deletion", "t") in [(action.task, action.subject) for action in report.actions]
    else:
        log.admin.delete_topics(["t"])
    assert Admin(log.process()).list_topics() == ["u"]


def test_R11_recreated_topic_has_new_id_and_starts_empty(log: MemoryLog) -> None:
    reader = log.process()
    log.producer().send("t", b"old").get()
    old = Admin(reader).describe_topic("t")
    log.admin.delete_topics(["t"])
    log.admin.create_topic("t", 5, SCHEMA)
    new = Admin(reader).describe_topic("t")
    assert new.topic_id != old.topic_id
    assert (new.schema, [part.end_offset for part in new.partitions]) == (SCHEMA, [0] * 5)
    log.check()


@pytest.mark.both_ways
def test_R11_producer_of_old_topic_writes_to_recreated_topic(log: MemoryLog) -> None:
    """It learns of the deletion when its next transaction begins (R40)."""
    producer = log.elsewhere("a")
    with producer.transaction():
        producer.send("t", b"old")
    log.admin.delete_topics(["t"])
    log.admin.create_topic("t", 1)
    with producer.transaction():
        producer.send("t", b"new")
    assert log.values("t") == [b"new"]
    log.check()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", range(2))
def test_crash_during_topic_deletion_loses_no_accepted_record(
    log: MemoryLog, write: int, after: bool
) -> None:
    """A writer that has the topic open gets an error, or its records can be read."""
    producer = log.elsewhere()
    producer.send("t", b"before").get()
    store = DyingStore(log.memory)
    admin = Admin(log.process(store))
    admin.list_topics()
    store.die_at(write, after=after)
    with pytest.raises(ProcessDied):
        admin.delete_topics(["t"])
    if _is_accepted(producer):
        assert sorted(log.values("t")) == [b"after", b"before"]
    elif "t" in log.admin.list_topics():
        with pytest.raises(UnknownTopic, match="was deleted"):
            log.admin.describe_topic("t")
    if "t" in log.admin.list_topics():
        log.admin.delete_topics(["t"])
    log.admin.create_topic("t")
    log.check()


def _is_accepted(producer: Producer) -> bool:
    try:
        producer.send("t", b"after").get()
    except UnknownTopic:
        return False
    return True


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", range(2))
def test_crash_during_topic_creation_leaves_complete_topic_or_none(
    log: MemoryLog, write: int, after: bool
) -> None:
    store = DyingStore(log.memory)
    admin = Admin(log.process(store))
    admin.list_topics()
    store.die_at(write, after=after)
    with pytest.raises(ProcessDied):
        admin.create_topic("x", 3, SCHEMA)
    if "x" not in log.admin.list_topics():
        log.admin.create_topic("x", 3, SCHEMA)
    log.producer().send("x", {"id": 1}).get()
    assert log.values("x") == [{"id": 1, "name": None}]
    assert len(log.admin.describe_topic("x").partitions) == 3
    log.check()


def test_R15_topic_is_found_after_its_creation_entry_was_pruned() -> None:
    log = MemoryLog()
    early = log.process().cluster
    assert not early.state().topics
    log.admin.create_topic("orders")
    log.connection.cluster.journal.prune(0)
    assert early.topic("orders").name == "orders"
