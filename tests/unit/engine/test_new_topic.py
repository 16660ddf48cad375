"""What a topic can be, before anything is written: its schema, its configuration, its key."""

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import ScriptedStore, unavailable
from txlog.engine.new_topic import NewTopic, checked_topic, create_topic, evolve_schema
from txlog.errors import (
    IncompatibleSchema,
    InvalidConfig,
    InvalidName,
    StoreUnavailable,
    TopicExists,
)
from txlog.settings import TopicConfig
from txlog.topic.records.schema import KAFKA_SCHEMA

TYPED = pa.schema([("id", pa.int32()), ("tags", pa.list_(pa.string()))])


def test_topic_has_one_partition_and_kafkas_columns_unless_it_says_otherwise() -> None:
    topic = NewTopic("t")
    assert (topic.num_partitions, topic.schema, dict(topic.config)) == (1, None, {})
    assert checked_topic(topic) == (KAFKA_SCHEMA, TopicConfig())
    typed = NewTopic("t", 3, TYPED, {"key.column": "id", "retention.ms": 5})
    assert checked_topic(typed) == (TYPED, TopicConfig(key_column="id", retention_ms=5))


@pytest.mark.parametrize("name", ["", "a b", "..", "x" * 250])
def test_impossible_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidName):
        checked_topic(NewTopic(name))


@pytest.mark.parametrize("count", [0, -1])
def test_topic_without_partitions_is_refused(count: int) -> None:
    with pytest.raises(InvalidConfig, match="'t'"):
        checked_topic(NewTopic("t", count))


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_typed_topic_is_compacted_by_its_key_column(policy: str) -> None:
    config = {"cleanup.policy": policy}
    assert checked_topic(NewTopic("t", config=config))[1].is_compacted
    keyed = NewTopic("t", schema=TYPED, config={**config, "key.column": "id"})
    assert checked_topic(keyed)[1].is_compacted
    words = rf"topic 't': cleanup\.policy is {policy}, and a typed topic is compacted by its key"
    with pytest.raises(InvalidConfig, match=words):
        checked_topic(NewTopic("t", schema=TYPED, config=config))


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("key", "key.column is 'key', and the schema has no such column; it has id, tags"),
        ("tags", "key.column is 'tags'; a key of type list<item: string> has no serialized form"),
    ],
)
def test_key_column_is_a_flat_column_of_the_topic(column: str, words: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        checked_topic(NewTopic("t", schema=TYPED, config={"key.column": column}))
    assert words in refused.value.message


def test_key_column_keeps_its_type_while_others_widen(log: MemoryLog) -> None:
    schema = pa.schema([("id", pa.int32()), ("n", pa.int32())])
    for name, column in (("keyed", "id"), ("plain", "")):
        log.admin.create_topic(name, 1, schema=schema, config={"key.column": column})
    wider = pa.schema([("id", pa.int64()), ("n", pa.int32())])
    topic = log.connection.cluster.present_topic("keyed")
    with pytest.raises(IncompatibleSchema, match="column 'id' is the key.column") as refused:
        evolve_schema(topic, wider)
    assert refused.value.facts["column"] == "id"
    assert evolve_schema(topic, pa.schema([("id", pa.int32()), ("n", pa.int64())])) == 1
    plain = log.connection.cluster.present_topic("plain")
    assert evolve_schema(plain, wider) == 1
    assert plain.schema().field("id").type == pa.int64()


def test_name_of_an_interrupted_deletion_is_free_for_the_next_topic(log: MemoryLog) -> None:
    schema, config = checked_topic(NewTopic("t"))
    with pytest.raises(TopicExists):
        create_topic(log.connection, NewTopic("t", 5), schema, config)
    store = ScriptedStore(log.memory)
    store.on("create", "cluster/", unavailable, holding="topic_deleted", times=100)
    with pytest.raises(StoreUnavailable):
        log.process(store).cluster.delete_topics(["t"])
    create_topic(log.connection, NewTopic("t", 5), schema, TopicConfig(retention_ms=7))
    (made,) = log.process_admin().describe_topics("t")
    assert len(made.partitions) == 5
    assert log.connection.cluster.present_topic("t").state.config.retention_ms == 7
