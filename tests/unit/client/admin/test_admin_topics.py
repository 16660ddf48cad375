"""Topics: create, list, describe, alter, grow, evolve, delete; all checks precede all changes."""

from typing import Any

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.faulty_stores import DyingStore, ProcessDied
from tests.stores.scripted_store import preceded_by
from txlog.client.admin import Admin, NewTopic, PartitionDescription
from txlog.client.producer.producer import Producer
from txlog.engine.producer_config import STAGED
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


def test_R15_lists_are_of_now_also_after_journals_were_pruned(log: MemoryLog) -> None:
    """A process that was idle meanwhile does not see at once that there are newer entries."""
    idle = Admin(log.process())
    assert (idle.list_topics(), idle.list_groups()) == (["t", "u"], [])
    log.admin.create_topic("new")
    consumer = log.consumer("t", group_id="g")
    consumer.commit({TopicPartition("t", 0): 0})
    log.connection.cluster.journal.prune(0, 1)
    log.connection.coordinator_of("g").prune(0, 1)
    assert sorted(idle.connection.cluster.state().topics) == ["t", "u"], "it lags"
    assert (idle.list_topics(), idle.list_groups()) == (["new", "t", "u"], ["g"])
    idle.delete_topics(["new"])


def test_a_topic_is_described_as_it_was_made(log: MemoryLog) -> None:
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
def test_a_description_shows_the_ends_and_the_open_transactions(log: MemoryLog) -> None:
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
def test_every_compression_is_read_back(log: MemoryLog, compression: str) -> None:
    log.admin.create_topic("c", 1, config={"compression.type": compression})
    log.producer().send("c", b"x" * 10_000).get()
    assert log.values("c") == [b"x" * 10_000]
    (size,) = [len(data) for path, data in log.objects().items() if path.endswith(".arrow")]
    assert (size < 5_000) == (compression != "none")


@pytest.mark.parametrize(
    "name",
    [
        "", ".", "..", "a/b", "/etc", "../t", "t/../u", "a\\b", "a b", "ü", "a\x00b", "x\n",
        "~", "a:b", "%2e%2e", "x" * (NAME_LENGTH_MAX + 1), "__consumer_offsets", "__x", None, 5,
        b"t",
    ],
)  # fmt: skip
def test_a_topic_name_is_a_plain_safe_file_name(log: MemoryLog, name: Any) -> None:
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
def test_every_name_that_is_allowed_works(log: MemoryLog, name: str) -> None:
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


def test_of_two_processes_that_create_a_topic_one_is_told_that_it_exists(log: MemoryLog) -> None:
    others = [Admin(log.process()) for _ in range(2)]
    for admin in others:
        admin.list_topics()
    others[0].create_topic("x", 3)
    with pytest.raises(TopicExists):
        others[1].create_topic("x", 5)
    assert len(others[1].describe_topic("x").partitions) == 3


# Changes.


def test_partitions_are_only_added(log: MemoryLog) -> None:
    log.admin.create_partitions("t", 4)
    log.admin.create_partitions("t", 4)
    assert len(log.admin.describe_topic("t").partitions) == 4
    before = log.objects()
    for count in (3, 0, 10_001, "5", None):
        with pytest.raises(InvalidConfig):
            log.admin.create_partitions("t", count)  # type: ignore[arg-type]
    assert log.changed_since(before) == []


def test_configuration_is_changed_by_name(log: MemoryLog) -> None:
    changed = log.admin.alter_topic_config("t", {"max.message.bytes": "77"})
    assert changed == log.admin.describe_topic("t").config == TopicConfig(max_message_bytes=77)
    before = log.objects()
    for changes in ({"max.bytes": 5}, {"key.column": "nope"}, {"compression.type": "x"}):
        with pytest.raises(InvalidConfig):
            log.admin.alter_topic_config("t", changes)
    log.admin.alter_topic_config("t", {})
    assert log.changed_since(before) == []


def test_what_two_admins_change_at_the_same_time_is_both_changed(log: MemoryLog) -> None:
    slow, fast = Admin(log.connection), Admin(log.process())
    change = preceded_by(lambda: fast.alter_topic_config("t", {"retention.ms": 5}))
    log.store.on("create", "topics/t/.*/entries", change)
    slow.alter_topic_config("t", {"compression.type": "zstd"})
    config = log.admin.describe_topic("t").config
    assert (config.retention_ms, config.compression_type) == (5, "zstd")


def test_R15_an_admin_who_lags_behind_a_pruned_journal_undoes_nothing(log: MemoryLog) -> None:
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


def test_a_schema_grows_and_old_records_are_read_in_it(log: MemoryLog) -> None:
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
def test_any_other_change_of_schema_is_refused_with_the_reason(
    log: MemoryLog, schema: pa.Schema, message: str
) -> None:
    log.admin.create_topic("typed", 1, SCHEMA)
    before = log.objects()
    with pytest.raises(IncompatibleSchema, match=f"{message}.*create another topic"):
        log.admin.evolve_schema("typed", schema)
    assert log.changed_since(before) == []


def test_the_key_column_keeps_its_type_or_its_keys_would_move(log: MemoryLog) -> None:
    log.admin.create_topic("typed", 5, SCHEMA, {"key.column": "id"})
    wider = SCHEMA.set(0, pa.field("id", pa.int64(), nullable=False))
    with pytest.raises(IncompatibleSchema, match="'id' is the key.column.*other partitions"):
        log.admin.evolve_schema("typed", wider)
    assert log.admin.evolve_schema("typed", SCHEMA.append(pa.field("more", pa.int8()))) == 1


# Deleting.


def test_a_deleted_topic_is_gone_for_everybody(log: MemoryLog) -> None:
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


def test_no_topic_is_deleted_if_one_is_not_there(log: MemoryLog) -> None:
    before = log.objects()
    with pytest.raises(UnknownTopic, match="there is no topic 'nope'"):
        log.admin.delete_topics(["t", "nope"])
    assert log.changed_since(before) == []
    log.admin.delete_topics(["t", "t", "u"])
    assert log.admin.list_topics() == []


@pytest.mark.parametrize("by", ["create", "maintenance", "delete"])
def test_a_deletion_that_was_cut_off_is_finished_by_the_next(log: MemoryLog, by: str) -> None:
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


def test_R11_a_topic_created_again_is_another_topic(log: MemoryLog) -> None:
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
def test_R11_a_producer_that_knew_the_old_topic_writes_to_the_new_one(
    log: MemoryLog, transaction_records: str
) -> None:
    """The producer stages for the old topic; the check during the upload finds the new (R40)."""
    producer = log.elsewhere("a")
    with producer.transaction():
        producer.send("t", b"old")
    log.admin.delete_topics(["t"])
    log.admin.create_topic("t", 1)
    if transaction_records == STAGED:
        with pytest.raises(UnknownTopic, match="abort the transaction"), producer.transaction():
            producer.send("t", b"lost with the old topic")
    with producer.transaction():
        producer.send("t", b"new")
    assert log.values("t") == [b"new"]
    log.check()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", range(2))
def test_whoever_dies_deleting_a_topic_leaves_none_that_swallows_records(
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
def test_whoever_dies_creating_a_topic_leaves_a_whole_one_or_none(
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


def test_R15_a_topic_is_not_unknown_because_its_creation_was_pruned() -> None:
    log = MemoryLog()
    early = log.process().cluster
    assert not early.state().topics
    log.admin.create_topic("orders")
    log.connection.cluster.journal.prune(0)
    assert early.topic("orders").name == "orders"
