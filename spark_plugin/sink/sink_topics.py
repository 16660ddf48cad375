"""The topics that a sink writes to: found, checked against the DataFrame, or created.

A job creates missing topics, and so does a query when it starts. If a topic is missing later in a
query, it was deleted with its records and its configuration: the sink creates it again only if the
option `createTopics` says so. A name that never had a topic may still get one, as rows may name it
for the first time. A listing distinguishes the two (I14 allows it, as nothing of the protocol
depends on it); without LIST permission the sink creates nothing.

The driver refuses a DataFrame which cannot be written, before any task runs: for some types
(year-month intervals) pyarrow would fail inside the task with a KeyError.
`txlog.topic.records.schema` refuses the rest (reserved names, names that differ only in case). The
JVM labels timestamps with the session's time zone; a topic keeps them in UTC, the same instant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CalendarIntervalType,
    DataType,
    DateType,
    GeographyType,
    GeometryType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    UserDefinedType,
    VariantType,
    YearMonthIntervalType,
)

from spark_plugin.connections import open_log
from spark_plugin.options import WriterOptions
from txlog.catalog.cluster import LogMetadata
from txlog.engine.connection import Connection
from txlog.engine.new_topic import NewTopic, checked_topic, create_topic, evolve_schema
from txlog.errors import (
    IncompatibleSchema,
    InvalidOption,
    NotATxlog,
    PublishContention,
    StoreDenied,
    TopicExists,
    TxlogError,
    UnknownTopic,
)
from txlog.fan_out import in_background
from txlog.layout import TOPICS
from txlog.settings import TopicConfig
from txlog.topic.events import check_partition_count
from txlog.topic.records.column_types import fits
from txlog.topic.records.schema import KAFKA_SCHEMA, is_kafka_schema, validate_schema
from txlog.topic.topic_log import TopicLog

SCHEMA_ATTEMPTS_MAX = 100
"""Attempts to add columns. Each fails only if another process has changed the topic's schema since
the last one; a hundred tasks of a batch may do so at once, and each adds columns for the others."""


HANDED_OVER_MAX = 100
"""Topics whose metadata the driver passes to its tasks if each row names its topic. It reads each
once a batch, which saves every task the same read. Of more topics it passes none, as it cannot tell
which of them the rows will name: each task then opens those that it sees."""

HANDED_OVER_BYTES_MAX = 256 << 10
"""Together the stored schemas of these topics: each task receives a copy."""


class Creation(StrEnum):
    """What the sink may create."""

    ALL = "all"
    """Every topic that is missing, and the log."""
    NEW_NAMES = "new names"
    """Topics whose name never had one."""
    NONE = "none"


def creation(requested: bool | None, is_later: bool) -> Creation:
    """By the option `createTopics` (None: not given), and whether this is a later batch."""
    if requested is None:
        return Creation.NEW_NAMES if is_later else Creation.ALL
    return Creation.ALL if requested else Creation.NONE


def prepare_topics(options: WriterOptions, schema: StructType, allowed: Creation) -> LogMetadata:
    """Check columns and topic; create the log, and the topic that the option names, if missing.

    Returns the metadata of both, for the tasks. If rows name their topics, it is that of the topics
    that exist; others are found or created by the tasks that first see them. Raises InvalidOption,
    InvalidConfig, UnknownTopic, IncompatibleSchema, before it creates anything that is then
    refused.
    """
    check_columns(options, schema)
    connection = open_log(options, create=allowed is Creation.ALL)
    return SinkTopics(connection, options, schema, allowed).prepared()


def prepare_job(
    options: WriterOptions, schema: StructType, allowed: Creation
) -> tuple[LogMetadata, bool]:
    """The same for a job, whose tasks create missing topics: only they have the batch id. Returns
    also whether the log was created.

    Raises the errors of `prepare_topics`, and NotATxlog if there is no log and none may be made.
    """
    check_columns(options, schema)
    if options.topic is None:
        frame_schema(schema, [TOPIC_COLUMN])
    connection: Connection | None = None
    topics: list[TopicLog] = []
    try:
        connection = open_log(options)
        if options.topic is None:
            topics = topics_of_rows(connection, waits=allowed is Creation.ALL)
        else:
            topics = [connection.cluster.present_topic(options.topic, linearizable=True)]
    except (NotATxlog, UnknownTopic):
        if options.create_topics is False or (connection is None and allowed is not Creation.ALL):
            raise
        if options.topic is not None:
            _checked_new(options.topic, options, schema)
    for topic in topics if options.topic is not None else ():
        require_fit(topic, options, schema)
    is_new = connection is None
    connection = connection or open_log(options, create=True)
    return LogMetadata.of(connection.cluster, topics), is_new


def check_columns(options: WriterOptions, schema: StructType) -> None:
    """Check the columns that options name. Raises InvalidOption, InvalidConfig."""
    names = schema.names
    check_partition_count(options.topic or "of each row", options.partitions)
    if options.topic is None:
        if TOPIC_COLUMN not in names:
            raise InvalidOption(
                "the rows have no topic: set the option 'topic', or name each row's topic in a "
                "column 'topic'."
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


@dataclass(frozen=True, slots=True)
class SinkTopics:
    """The topics of a log that one DataFrame is written to."""

    connection: Connection
    options: WriterOptions
    schema: StructType
    """The DataFrame's columns."""
    allowed: Creation

    def prepared(self) -> LogMetadata:
        """The metadata of the log, and of the topics for which the tasks may have rows.
        Raises the errors of `prepare_topics`."""
        cluster = self.connection.cluster
        if self.options.topic is None:
            frame_schema(self.schema, [TOPIC_COLUMN])
            waits = self.allowed is Creation.ALL
            return LogMetadata.of(cluster, topics_of_rows(self.connection, waits=waits))
        topic = self.written_topic(self.options.topic)
        try:
            require_fit(topic, self.options, self.schema)
        except IncompatibleSchema:
            # Another process may have changed the columns since this one read them.
            topic = self.topic_or_new(self.options.topic)
            require_fit(topic, self.options, self.schema)
        return LogMetadata.of(cluster, [topic])

    def written_topic(self, name: str) -> TopicLog:
        """The topic to stage records for, created as by `topic_or_new`.

        If a read takes a round trip, this uses the topic as this process has last read it, and
        reads it again in the background for the next batch: a new partition or column is used one
        batch later. The decision is refused if the topic was deleted (R40).
        """
        cluster = self.connection.cluster
        # With ALL the read is awaited: a missing topic must exist before rows are staged for it
        # (0030).
        if not cluster.is_far or self.allowed is Creation.ALL:
            return self.topic_or_new(name)
        try:
            topic = cluster.known_topic(name)
        except UnknownTopic:
            return self.topic_or_new(name)
        # Neither its result nor its error is awaited: PREPARE refuses a deleted topic (R40).
        in_background(self.connection.runtime.fan_out, partial(topic.catch_up, linearizable=True))
        return topic

    def topic_or_new(self, name: str) -> TopicLog:
        """The topic, created with the DataFrame's columns if it is missing and that is allowed.

        The read is linearizable: this process may have read a topic of that name that was deleted
        since, and rows that are staged for a deleted topic are lost.
        """
        cluster = self.connection.cluster
        try:
            return cluster.present_topic(name, linearizable=True)
        except UnknownTopic as missing:
            self._require_may_create(name, missing)
        self._create(name)
        return cluster.present_topic(name, linearizable=True)

    def _create(self, name: str) -> None:
        new = _checked_new(name, self.options, self.schema)
        # Another task of the batch may create it at the same time.
        with suppress(TopicExists):
            create_topic(self.connection, *new)

    def _require_may_create(self, name: str, missing: UnknownTopic) -> None:
        """Raises UnknownTopic with the remedy, if the missing topic may not be created."""
        if self.allowed is Creation.NONE:
            raise UnknownTopic(
                f"{missing.message} The sink creates none, as createTopics is false.", topic=name
            ) from missing
        if self.allowed is Creation.NEW_NAMES and _may_have_been_deleted(self.connection, name):
            raise UnknownTopic(
                f"{missing.message} A topic of that name was deleted, with its records and its "
                "configuration, or this process may not list its objects. A running query creates "
                "it again only on request: set createTopics=true, or create the topic.",
                topic=name,
            ) from missing


def topics_of_rows(connection: Connection, *, waits: bool) -> list[TopicLog]:
    """The topics of the log that rows may name, for the tasks; none on a disk, where each task
    reads them itself for less than it would take to pass them on.

    Unless it `waits`, it returns them as this process has last read them, as `written_topic` does.
    A topic that cannot be read is left to the tasks, as the rows need not name it.
    """
    cluster, fan_out = connection.cluster, connection.runtime.fan_out
    if not cluster.is_far:
        return []
    if waits or not cluster.journal.is_open:
        topics = cluster.topics()
    else:
        topics = cluster.topics(is_known=True)
        in_background(fan_out, partial(cluster.state, linearizable=True))
    if len(topics) > HANDED_OVER_MAX:
        return []
    read = [in_background(fan_out, partial(one.catch_up, linearizable=True)) for one in topics]
    for topic, answer in zip(topics, read, strict=True):
        if waits or not topic.state.topic_id:
            with suppress(TxlogError):
                answer()
    found = [topic for topic in topics if topic.state.topic_id and not topic.state.closed]
    size = sum(len(text) for topic in found for text in topic.state.schemas.values())
    return found if size <= HANDED_OVER_BYTES_MAX else []


def _checked_new(
    name: str, options: WriterOptions, schema: StructType
) -> tuple[NewTopic, pa.Schema, TopicConfig]:
    """The topic to create for this DataFrame, which must fit: one that is refused leaves no topic
    behind. Raises the errors of `checked_topic`."""
    config = dict(options.topic_config)
    if options.key is not None and not is_kafka_frame(schema):
        config["key.column"] = options.key
    new = NewTopic(name, options.partitions, new_schema(options, schema), config)
    stored, checked = checked_topic(new)
    _check_columns_fit(name, stored, options, schema)
    return new, stored, checked


def new_schema(options: WriterOptions, schema: StructType) -> pa.Schema:
    """The schema of a topic that is created for this DataFrame. Raises IncompatibleSchema."""
    if is_kafka_frame(schema):
        return KAFKA_SCHEMA
    left_out = [TOPIC_COLUMN] if options.topic is None else []
    if options.partition == PARTITION_COLUMN:
        left_out.append(PARTITION_COLUMN)
    return validate_schema(frame_schema(schema, left_out))


def require_fit(topic: TopicLog, options: WriterOptions, schema: StructType) -> None:
    """Check that the current topic has every column; with `mergeSchema` those that it lacks are
    added first. Raises IncompatibleSchema, PublishContention."""
    if options.merge_schema and not is_kafka_schema(topic.schema()):
        add_columns(topic, schema, _unknown_columns(topic.schema(), options, schema))
    _check_columns_fit(topic.name, topic.schema(), options, schema)


def add_columns(topic: TopicLog, schema: StructType, names: Iterable[str]) -> None:
    """Add these columns of the DataFrame to the topic's schema, all of them nullable.

    The entry precedes the marker that makes the rows visible, so no reader sees a value of a column
    before the column. A job that fails leaves it, without values. If another process adds columns
    at the same time, this adds those that are still missing; of one column with two types the
    second is refused. Raises IncompatibleSchema, PublishContention.
    """
    wanted = frame_schema(StructType([StructField(n, schema[n].dataType) for n in names]))
    for attempt in range(SCHEMA_ATTEMPTS_MAX):
        stored = topic.schema()
        missing = [field for field in wanted if field.name not in stored.names]
        if not missing:
            return
        try:
            evolve_schema(topic, pa.schema([*stored, *missing]))
        except PublishContention:
            if attempt == SCHEMA_ATTEMPTS_MAX - 1:
                raise
            topic.catch_up(linearizable=True)


def _unknown_columns(stored: pa.Schema, options: WriterOptions, schema: StructType) -> list[str]:
    """The DataFrame's columns that are values and that the topic lacks."""
    allowed = {*stored.names, options.partition or ""}
    if options.topic is None:
        allowed.add(TOPIC_COLUMN)
    if is_kafka_schema(stored):
        allowed |= {"timestamp", PARTITION_COLUMN} | kafka_metadata(schema)
    return [column for column in schema.names if column not in allowed]


def _check_columns_fit(
    name: str, stored: pa.Schema, options: WriterOptions, schema: StructType
) -> None:
    unknown = _unknown_columns(stored, options, schema)
    if unknown:
        # Kafka's clients of such a topic know only its three columns.
        remedy = "" if is_kafka_schema(stored) else ", or add the new ones with mergeSchema=true"
        raise IncompatibleSchema(
            f"topic {name!r} has no column {', '.join(map(repr, unknown))}; it has "
            f"{', '.join(stored.names)}. Select the columns it has{remedy}.",
            topic=name,
            columns=unknown,
        )
    if is_kafka_schema(stored):
        _require_time(name, schema)
    _require_values(name, stored, schema)


def _require_values(name: str, stored: pa.Schema, schema: StructType) -> None:
    """The columns must have types that the topic's hold, and those that may not be null exist."""
    remedy = "Cast it"
    if not is_kafka_schema(stored):  # The columns of a Kafka-shaped topic do not change.
        remedy += ", or widen the topic's column with Admin.evolve_schema()"
    for field in schema:
        if field.name not in stored.names:
            continue
        given, wanted = _arrow_type(field), stored.field(field.name).type
        if given is not None and not (given.equals(wanted) or fits(given, wanted)):
            raise IncompatibleSchema(
                f"column {field.name!r} is {field.dataType.simpleString()}, and in topic {name!r} "
                f"it is {wanted}: the types do not fit. {remedy}.",
                topic=name,
                columns=[field.name],
            )
    missing = [f.name for f in stored if not f.nullable and f.name not in schema.names]
    if missing:
        raise IncompatibleSchema(
            f"the rows have no column {', '.join(map(repr, missing))}, which may not be null in "
            f"topic {name!r}. Add it, or make it nullable with Admin.evolve_schema().",
            topic=name,
            columns=missing,
        )


def _arrow_type(field: StructField) -> pa.DataType | None:
    """The type in which Spark passes the column to a task. None for that of `array()`, whose items
    have no type and no nulls, which pyarrow cannot express. Raises IncompatibleSchema."""
    try:
        return to_arrow_schema(StructType([field]), timezone="UTC").field(0).type
    except PySparkTypeError:
        _require_storable(field.dataType, field.name)
        raise
    except ValueError:
        return None


def _require_time(name: str, schema: StructType) -> None:
    """The column `timestamp` of a Kafka-shaped topic is the record's time."""
    kind = schema["timestamp"].dataType if "timestamp" in schema.names else TimestampType()
    if not isinstance(kind, _TIMES):
        raise IncompatibleSchema(
            f"column 'timestamp' is {kind.simpleString()}, and in topic {name!r} it is the "
            "record's time; cast it to timestamp.",
            topic=name,
            columns=["timestamp"],
        )


def _may_have_been_deleted(connection: Connection, name: str) -> bool:
    """Whether the name has objects: a deleted topic leaves its last boundary for ever (R14)."""
    try:
        left = connection.cluster.store.list_after(f"{TOPICS}/{name}/")
        return next(iter(left), None) is not None
    except StoreDenied:
        return True


# DataFrame columns to topic columns.

_NO_TOPIC_TYPE: tuple[tuple[type[DataType], str], ...] = (
    (NullType, "cast it to the type that its values will have"),
    (VariantType, "write to_json of it"),
    (YearMonthIntervalType, "cast it to int, a number of months"),
    (CalendarIntervalType, "write its parts as numbers"),
    (GeometryType, "write its WKB as binary"),
    (GeographyType, "write its WKB as binary"),
    (UserDefinedType, "write its parts as plain columns"),
)

TOPIC_COLUMN = "topic"
PARTITION_COLUMN = "partition"
"""Columns with a row's topic and partition. If an option gives these, they are plain columns."""

TIME_COLUMN = "timestamp"
"""The column with a record's time, of a Kafka-shaped topic."""

_KAFKA_COLUMNS = frozenset({"key", "value", "headers", "partition", "timestamp"})
_KAFKA_VALUES = (StringType, BinaryType)
_TIMES = (TimestampType, TimestampNTZType, DateType, LongType)
"""Types of the column `timestamp`; a whole number is in milliseconds, as in Kafka."""

_KAFKA_METADATA: Mapping[str, DataType] = {
    TOPIC_COLUMN: StringType(),
    "offset": LongType(),
    "timestampType": IntegerType(),
}
"""Columns of Kafka's source with a record's position; Kafka's sink does not store them."""


def kafka_metadata(schema: StructType) -> frozenset[str]:
    """The columns that a Kafka-shaped topic does not store: `offset`, `timestampType`, `topic`.

    A column counts only if it has the type that Kafka's source gives it; otherwise it is data.
    """
    return frozenset(
        field.name for field in schema if _KAFKA_METADATA.get(field.name) == field.dataType
    )


def is_kafka_frame(schema: StructType) -> bool:
    """Whether the columns are those of Kafka's source and sink: `value`, and no others."""
    kinds = {field.name: field.dataType for field in schema}
    return (
        isinstance(kinds.get("value"), _KAFKA_VALUES)
        and isinstance(kinds.get("key", BinaryType()), _KAFKA_VALUES)
        and kinds.keys() <= _KAFKA_COLUMNS | kafka_metadata(schema)
    )


def frame_schema(schema: StructType, left_out: Iterable[str] = ()) -> pa.Schema:
    """The Arrow schema of a topic for these columns, without `left_out`.

    Raises IncompatibleSchema, which names the column and the remedy.
    """
    dropped = frozenset(left_out)
    kept = StructType([field for field in schema if field.name not in dropped])
    for field in kept:
        _require_storable(field.dataType, field.name)
    # Without Spark's own metadata of a column, such as the delay of its watermark.
    plain = [StructField(field.name, field.dataType, field.nullable) for field in kept]
    return to_arrow_schema(StructType(plain), timezone="UTC")


def _require_storable(kind: DataType, path: str) -> None:
    for refused, remedy in _NO_TOPIC_TYPE:
        if isinstance(kind, refused):
            raise IncompatibleSchema(
                f"column {path!r} is {kind.simpleString()}, which a topic cannot hold; {remedy}.",
                column=path,
            )
    if isinstance(kind, ArrayType):
        _require_storable(kind.elementType, f"{path}[]")
    elif isinstance(kind, MapType):
        _require_storable(kind.keyType, f"{path}.key")
        _require_storable(kind.valueType, f"{path}.value")
    elif isinstance(kind, StructType):
        for field in kind:
            _require_storable(field.dataType, f"{path}.{field.name}")
