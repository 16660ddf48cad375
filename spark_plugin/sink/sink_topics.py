"""The topics that a sink writes to: found, checked against the DataFrame, or created.

It guards that a DataFrame which cannot be written is refused on the driver, before any task runs.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import pyarrow as pa
from pyspark.sql.types import IntegerType, LongType, ShortType, StringType, StructType

from spark_plugin.log_access import open_log
from spark_plugin.options import WriterOptions
from spark_plugin.sink.frame_schema import (
    PARTITION_COLUMN,
    TOPIC_COLUMN,
    frame_schema,
    is_kafka_frame,
    kafka_metadata,
)
from spark_plugin.sink.topic_creation import Creation, require_may_create
from txlog.catalog.metadata import LogMetadata
from txlog.clock import begun
from txlog.engine.connection import Connection
from txlog.engine.new_topic import NewTopic, checked_topic, create_topic
from txlog.errors import (
    IncompatibleSchema,
    InvalidOption,
    NotATxlog,
    TopicExists,
    UnknownTopic,
)
from txlog.topic.events import check_partition_count
from txlog.topic.records.schema import KAFKA_SCHEMA, is_kafka_schema, validate_schema
from txlog.topic.topic_log import TopicLog


def prepare_topics(options: WriterOptions, schema: StructType, allowed: Creation) -> LogMetadata:
    """Check columns and topic; create the log, and the topic that the option names, if missing.
    Answers what tasks are told of both.

    Topics that rows name are found or created by the tasks that meet them. Raises InvalidOption,
    InvalidConfig, UnknownTopic, IncompatibleSchema, before it creates anything that is then
    refused.
    """
    check_columns(options, schema)
    return prepared_log(open_sink(options, allowed), options, schema, allowed)


def prepared_log(
    connection: Connection, options: WriterOptions, schema: StructType, allowed: Creation
) -> LogMetadata:
    """The same in a log that is open."""
    if options.topic is None:
        frame_schema(schema, [TOPIC_COLUMN])
        return LogMetadata.of(connection.cluster)
    topic = written_topic(connection, options, schema, options.topic, allowed)
    check_fit(topic, options, schema)
    return LogMetadata.of(connection.cluster, [topic])


def check_topics(options: WriterOptions, schema: StructType) -> None:
    """The same checks without creating anything: for a job, whose tasks alone know its batch.

    Raises as `prepare_topics`, and NotATxlog if there is no log and it may not be created.
    """
    check_columns(options, schema)
    if options.topic is None:
        frame_schema(schema, [TOPIC_COLUMN])
    try:
        connection = open_log(options)
        topic = options.topic and connection.cluster.present_topic(options.topic, linearizable=True)
    except (NotATxlog, UnknownTopic):
        if options.create_topics is False:
            raise
        if options.topic is not None:
            _check_columns_fit(options.topic, new_schema(options, schema), options, schema)
        return
    if topic:
        check_fit(topic, options, schema)


def open_sink(options: WriterOptions, allowed: Creation) -> Connection:
    """The log to write to, created if it is missing and that is allowed. Raises NotATxlog."""
    return open_log(options, create=allowed is Creation.ALL)


def check_columns(options: WriterOptions, schema: StructType) -> None:
    """Check the columns that options name. Raises InvalidOption, InvalidConfig."""
    names = schema.names
    check_partition_count(options.topic or "of each row", options.partitions)
    if options.topic is None:
        if TOPIC_COLUMN not in names:
            raise InvalidOption(
                "the sink does not know where to write: set the option 'topic', or give every row "
                "a topic in a column of that name."
            )
        if not isinstance(schema[TOPIC_COLUMN].dataType, StringType):
            raise InvalidOption("the column 'topic' must be a string: the name of a topic.")
    for option, column in (("key", options.key), ("partition", options.partition)):
        if column is not None and column not in names:
            raise InvalidOption(
                f"option {option!r} names the column {column!r}, which the DataFrame does not "
                f"have; it has {', '.join(names)}.",
                option=option,
            )
    if options.partition is not None:
        kind = schema[options.partition].dataType
        if not isinstance(kind, ShortType | IntegerType | LongType):
            raise InvalidOption(
                f"the partition column {options.partition!r} is {kind.simpleString()}; it must be "
                "a whole number."
            )


def written_topic(
    connection: Connection,
    options: WriterOptions,
    schema: StructType,
    name: str,
    allowed: Creation,
) -> TopicLog:
    """The topic to stage records for, created as `topic_or_new` says.

    Where a read takes a round trip, a topic that this process knows is as it was read last. It is
    read again beside what comes next, for the batch after this one: a new partition or column is
    used that much later. Whether the topic is there still is asked before the decision (R40).
    """
    cluster = connection.cluster
    if cluster.is_near or allowed is Creation.ALL:
        return topic_or_new(connection, options, schema, name, allowed)
    try:
        topic = cluster.known_topic(name)
    except UnknownTopic:
        return topic_or_new(connection, options, schema, name, allowed)
    begun(connection.runtime.fan_out, partial(topic.catch_up, linearizable=True))
    return topic


def topic_or_new(
    connection: Connection,
    options: WriterOptions,
    schema: StructType,
    name: str,
    allowed: Creation,
) -> TopicLog:
    """The topic, created with the DataFrame's columns if it is missing and that is allowed.

    A process that already knows the name may know a topic that was deleted since, and perhaps
    created again: rows that were staged for the old one would be lost with it.
    """
    try:
        return connection.cluster.present_topic(name, linearizable=True)
    except UnknownTopic as missing:
        require_may_create(connection, name, missing, allowed)
    new = NewTopic(
        name, options.partitions, new_schema(options, schema), _new_config(options, schema)
    )
    stored, config = checked_topic(new)
    _check_columns_fit(name, stored, options, schema)
    with suppress(TopicExists):
        create_topic(connection, new, stored, config)
    return connection.cluster.present_topic(name, linearizable=True)


def _new_config(options: WriterOptions, schema: StructType) -> dict[str, object]:
    """The configuration of a topic that is created for this DataFrame."""
    config: dict[str, object] = {}
    if options.compression:
        config["compression.type"] = options.compression
    if options.key is not None and not is_kafka_frame(schema):
        config["key.column"] = options.key
    return config


def new_schema(options: WriterOptions, schema: StructType) -> pa.Schema:
    """The schema of a topic that is created for this DataFrame. Raises IncompatibleSchema."""
    if is_kafka_frame(schema):
        return KAFKA_SCHEMA
    left_out = [TOPIC_COLUMN] if options.topic is None else []
    if options.partition == PARTITION_COLUMN:
        left_out.append(PARTITION_COLUMN)
    return validate_schema(frame_schema(schema, left_out))


def check_fit(topic: TopicLog, options: WriterOptions, schema: StructType) -> None:
    """Check that the current topic has every column. Raises IncompatibleSchema."""
    _check_columns_fit(topic.name, topic.schema(), options, schema)


def _check_columns_fit(
    name: str, stored: pa.Schema, options: WriterOptions, schema: StructType
) -> None:
    allowed = {*stored.names, options.partition or ""}
    if options.topic is None:
        allowed.add(TOPIC_COLUMN)
    if is_kafka_schema(stored):
        allowed |= {"timestamp", PARTITION_COLUMN} | kafka_metadata(schema)
    unknown = [column for column in schema.names if column not in allowed]
    if unknown:
        raise IncompatibleSchema(
            f"topic {name!r} has no column {', '.join(map(repr, unknown))}; it has "
            f"{', '.join(stored.names)}. Select the columns it has, or add the new ones with "
            "Admin.evolve_schema().",
            topic=name,
            columns=unknown,
        )
