"""The creation of a topic and changes of its schema: definition, checks and requests.

A topic or a change that cannot be made is refused before anything is written. The rules of the
topic's journal decide all other changes. It must not know the clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from txlog.engine.connection import Connection
from txlog.errors import IncompatibleSchema, InvalidConfig, InvalidRecord, TopicExists
from txlog.model import validate_topic_name
from txlog.settings import TopicConfig
from txlog.topic.events import EvolveSchema, check_partition_count
from txlog.topic.records.schema import (
    KAFKA_SCHEMA,
    encode_schema,
    evolve,
    is_kafka_schema,
    validate_schema,
)
from txlog.topic.topic_log import TopicLog
from txlog.topic.write.partitioner import partition_for_keys


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. Without a schema it has Kafka's columns: key, value, headers."""

    name: str
    num_partitions: int = 1
    schema: pa.Schema | None = None
    config: Mapping[str, object] = field(default_factory=dict)
    """Values by the dotted names of TopicConfig."""


def checked_topic(topic: NewTopic) -> tuple[pa.Schema, TopicConfig]:
    """The topic's schema and configuration in the form that is stored; needs no log.

    Raises InvalidName, InvalidConfig, IncompatibleSchema.
    """
    validate_topic_name(topic.name)
    check_partition_count(topic.name, topic.num_partitions)
    schema = validate_schema(topic.schema if topic.schema is not None else KAFKA_SCHEMA)
    config = TopicConfig.from_dotted(topic.config)
    check_configuration(topic.name, schema, config)
    return schema, config


def create_topic(
    connection: Connection, topic: NewTopic, schema: pa.Schema, config: TopicConfig
) -> None:
    """Create a topic with the results of `checked_topic`. An interrupted deletion of a topic of
    that name is finished first. Raises TopicExists."""
    cluster, stored = connection.cluster, encode_schema(schema)
    try:
        cluster.create_topic(topic.name, topic.num_partitions, stored, config)
    # A process that died while it deleted the topic leaves a name that is taken and of no use.
    except TopicExists:
        if not cluster.finish_deletion(topic.name):
            raise
        cluster.create_topic(topic.name, topic.num_partitions, stored, config)


def evolve_schema(topic: TopicLog, schema: pa.Schema) -> int:
    """Make an additive change to the schema of a topic, as this process last read it; returns the
    schema's id. Raises IncompatibleSchema, PublishContention if another process has changed it."""
    name, state = topic.name, topic.state
    schema_id, key = state.newest_schema_id, state.config.key_column
    evolved = evolve(topic.schema(schema_id), validate_schema(schema))
    if key and evolved.field(key).type != topic.schema(schema_id).field(key).type:
        raise IncompatibleSchema(
            f"column {key!r} is the key.column of topic {name!r}: with another type its keys "
            "would go to other partitions. Leave its type as it is, or create another topic.",
            column=key,
        )
    new_id: int = topic.execute(EvolveSchema(encode_schema(evolved), schema_id))
    return new_id


def check_configuration(name: str, schema: pa.Schema, config: TopicConfig) -> None:
    """Raises InvalidConfig if a topic with this schema cannot have this configuration."""
    column = config.key_column
    if column and column not in schema.names:
        raise InvalidConfig(
            f"topic {name!r}: key.column is {column!r}, and the schema has no such "
            f"column; it has {', '.join(schema.names)}."
        )
    if column:
        try:
            # An empty column is enough: whether keys can be hashed depends on their type alone.
            partition_for_keys(pa.array([], schema.field(column).type), 1, 0)
        except InvalidRecord as error:
            raise InvalidConfig(
                f"topic {name!r}: key.column is {column!r}; {error.message}"
            ) from error
    elif config.is_compacted and not is_kafka_schema(schema):
        raise InvalidConfig(
            f"topic {name!r}: cleanup.policy is {config.cleanup_policy}, and a typed topic is "
            "compacted by its key.column; name one."
        )
