"""A topic's configuration against its schema, and changes to it.

Concurrent changes of several admins are all kept. The only decision here is whether a configuration
fits a schema.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from txlog.engine.append.partitioner import partition_for_keys
from txlog.engine.connection import Connection
from txlog.errors import InvalidConfig, InvalidRecord, PublishContention
from txlog.settings import TopicConfig
from txlog.topic.events import AlterConfig
from txlog.topic.records.schema import is_kafka_schema

_ATTEMPTS_MAX = 5


def altered_configuration(
    connection: Connection, name: str, changes: Mapping[str, object]
) -> TopicConfig:
    """Change values by their dotted names; all others stay as they are when it is done.

    Raises UnknownTopic, InvalidConfig, and PublishContention if other admins are always faster.
    """
    attempts_left = _ATTEMPTS_MAX
    while True:
        topic = connection.cluster.present_topic(name, linearizable=True)
        known = topic.state.config
        config = known.altered(changes)
        check_configuration(name, topic.schema(), config)
        try:
            topic.execute(AlterConfig(config, known))
            return config
        except PublishContention:
            attempts_left -= 1
            if not attempts_left:
                raise


def check_configuration(name: str, schema: pa.Schema, config: TopicConfig) -> None:
    """Raises InvalidConfig if a topic of this schema cannot have that configuration."""
    _check_key_column(name, schema, config)
    _check_compaction(name, schema, config)


def _check_compaction(name: str, schema: pa.Schema, config: TopicConfig) -> None:
    if config.is_compacted and not config.key_column and not is_kafka_schema(schema):
        raise InvalidConfig(
            f"topic {name!r}: cleanup.policy is {config.cleanup_policy}, and a typed topic is "
            "compacted by its key.column; name one."
        )


def _check_key_column(name: str, schema: pa.Schema, config: TopicConfig) -> None:
    column = config.key_column
    if not column:
        return
    if column not in schema.names:
        raise InvalidConfig(
            f"topic {name!r}: key.column is {column!r}, and the schema has no such "
            f"column; it has {', '.join(schema.names)}."
        )
    try:
        partition_for_keys(pa.array([], schema.field(column).type), 1, 0)
    except InvalidRecord as error:
        raise InvalidConfig(f"topic {name!r}: key.column is {column!r}; {error.message}") from error
