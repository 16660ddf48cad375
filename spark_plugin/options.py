"""Options of the Spark source and sink: names, parsers, defaults, and forbidden combinations.

A wrong option is refused, with the nearest valid one, before anything is read or written. Spark
passes names in lower case and values as strings (`.option("minPartitions", 8)` arrives as
minpartitions, "8"), so names are compared in lower case. It must not open anything.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from spark_plugin import foreign_options
from spark_plugin import option_values as values
from spark_plugin.option_values import (
    OffsetPoint,
    OffsetSpec,
    Parser,
    Position,
    TimestampStrategy,
)
from txlog.engine.as_of import Moment
from txlog.errors import InvalidOption
from txlog.model import IsolationLevel, TopicPartition, validate_transactional_id
from txlog.settings import TopicConfig
from txlog.topic.read.time_lookup import AtTime

log = logging.getLogger(__name__)

STORAGE_PREFIX = "storage."
TOPIC_PREFIX = "topic."
BYTES_PER_TASK = 128 << 20
"""Stored bytes that one task reads, about: Spark's `maxPartitionBytes` for files. Memory does not
depend on it. With 64 MB, two million records of 100 bytes made 4 tasks on 2 cores, and took a sixth
of processor time more than by 2 tasks."""

PARTITIONS_OF_NEW_TOPIC = 4
"""A topic's partitions can be added and never removed, so the number is small. Consumers divide a
topic by its partitions: with one, as in Kafka, a second consumer would have nothing to read."""

MAX_TRIGGER_DELAY_MS = 15 * 60_000
"""As in Kafka's source."""

_EARLIEST = OffsetSpec(OffsetPoint.EARLIEST)
_LATEST = OffsetSpec(OffsetPoint.LATEST)
_END = OffsetSpec(OffsetPoint.LATEST, option="endingOffsets")

OptionsT = TypeVar("OptionsT", "ReaderOptions", "WriterOptions")


@dataclass(frozen=True, slots=True)
class Option:
    """An option's name for users, its parser, and its other names."""

    name: str
    parse: Parser
    aliases: tuple[str, ...] = ()


def _option(default: Any, name: str, parse: Parser, aliases: tuple[str, ...] = ()) -> Any:
    """A field that an option sets."""
    return field(default=default, metadata={"option": Option(name, parse, aliases)})


def _transactional_id(name: str, value: str) -> str:
    return validate_transactional_id(values.text(name, value))


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """Options of `spark.readStream.format("txlog")` and of `spark.read`."""

    root: str = field(metadata={"option": Option("root", values.root, ("path",))})
    """`root`, or the argument of `load`: the log's URL."""
    subscribe: tuple[str, ...] = _option((), "subscribe", values.topics)
    subscribe_pattern: str | None = _option(None, "subscribePattern", values.pattern)
    assign: Mapping[str, tuple[int, ...]] | None = _option(None, "assign", values.assignment)
    """topic -> the only partitions of it that are read."""
    starting_offsets: OffsetSpec = _option(_LATEST, "startingOffsets", values.offsets)
    """For a query without a checkpoint. Default: latest in a stream, earliest in a batch."""
    starting_timestamp: OffsetSpec | None = _option(None, "startingTimestamp", values.timestamp)
    starting_offsets_by_timestamp: OffsetSpec | None = _option(
        None, "startingOffsetsByTimestamp", values.offsets_by_timestamp
    )
    starting_offsets_by_timestamp_strategy: TimestampStrategy = _option(
        TimestampStrategy.ERROR,
        "startingOffsetsByTimestampStrategy",
        values.choice(TimestampStrategy),
    )
    ending_offsets: OffsetSpec = _option(_END, "endingOffsets", values.offsets)
    """Batch only, as the next two."""
    ending_timestamp: OffsetSpec | None = _option(None, "endingTimestamp", values.timestamp)
    ending_offsets_by_timestamp: OffsetSpec | None = _option(
        None, "endingOffsetsByTimestamp", values.offsets_by_timestamp
    )
    as_of: Moment | None = _option(None, "asOf", values.moment)
    """Batch only: a moment whose consistent cut is the end."""
    group_id: str | None = _option(None, "group.id", values.group, ("kafka.group.id", "groupId"))
    columns: tuple[str, ...] | None = _option(None, "columns", values.names)
    """Only these columns are read; the bytes of others are not decoded."""
    max_offsets_per_trigger: int | None = _option(None, "maxOffsetsPerTrigger", values.count)
    max_bytes_per_trigger: int | None = _option(None, "maxBytesPerTrigger", values.size_bytes)
    """Stored bytes, as in Delta's source; the smallest unit may be larger."""
    min_offsets_per_trigger: int | None = _option(None, "minOffsetsPerTrigger", values.count)
    """A batch waits for this many new offsets, at most `max_trigger_delay_ms`."""
    max_trigger_delay_ms: int = _option(MAX_TRIGGER_DELAY_MS, "maxTriggerDelay", values.duration_ms)
    min_partitions: int | None = _option(None, "minPartitions", values.count)
    """Default: see `plan_tasks`."""
    max_records_per_partition: int | None = _option(None, "maxRecordsPerPartition", values.count)
    """Of a task, which Spark calls a partition."""
    bytes_per_task: int = _option(BYTES_PER_TASK, "bytesPerTask", values.size_bytes)
    isolation_level: IsolationLevel = _option(
        IsolationLevel.READ_COMMITTED,
        "isolation.level",
        values.choice(IsolationLevel),
        ("kafka.isolation.level",),
    )
    fail_on_data_loss: bool = _option(True, "failOnDataLoss", values.flag)
    fail_on_missing_topics: bool = _option(True, "failOnMissingTopics", values.flag)
    """Otherwise a query waits for topics that do not exist yet."""
    abandoned_topics: tuple[str, ...] = _option((), "abandonedTopics", values.topics)
    """Not read, though the query has read them: their unread records are given up."""
    abandoned_group: str | None = _option(None, "abandonedGroup", values.group)
    """The query's group so far: it stays where it is, and `group_id` continues for it."""
    fail_on_new_columns: bool = _option(False, "failOnNewColumns", values.flag)
    """Stop at a topic that has more columns than the DataFrame, which has all that it had when it
    was loaded."""
    include_headers: bool = _option(False, "includeHeaders", values.flag)
    storage: Mapping[str, object] = field(default_factory=dict, repr=False)
    """Options for the store. They may contain credentials, and are never printed."""
    without_effect: tuple[str, ...] = ()
    """Accepted options of other connectors, each with the reason (`foreign_options`)."""

    def reads(self, topic: str) -> bool:
        """Whether that topic is subscribed to."""
        if topic in self.abandoned_topics:
            return False
        if self.subscribe_pattern is not None:
            return re.fullmatch(self.subscribe_pattern, topic) is not None
        return topic in self.topics

    def reads_partition(self, where: TopicPartition) -> bool:
        """Whether that partition is subscribed to or assigned."""
        assigned = (self.assign or {}).get(where.topic)
        return self.reads(where.topic) and (assigned is None or where.partition in assigned)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that are named; none with a pattern."""
        return self.subscribe or tuple(self.assign or ())

    @property
    def start(self) -> OffsetSpec:
        """Where a query without a checkpoint begins. If there are several options for it, the same
        one wins as in Kafka's source."""
        return (
            self.starting_timestamp or self.starting_offsets_by_timestamp or self.starting_offsets
        )

    @property
    def end(self) -> OffsetSpec:
        """Where a batch read ends."""
        return self.ending_timestamp or self.ending_offsets_by_timestamp or self.ending_offsets

    def knows(self, topic: str) -> bool:
        """Whether the options name that topic, so that a checkpoint with it is this query's."""
        return topic in self.abandoned_topics or self.reads(topic)


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """Options of `df.writeStream.format("txlog")` and of `df.write`."""

    root: str = field(metadata={"option": Option("root", values.root, ("path",))})
    """`root`, or the argument of `start` or `save`: the log's URL."""
    topic: str | None = _option(None, "topic", values.topic)
    """The topic for all rows; without it the column `topic` names each row's topic."""
    key: str | None = _option(None, "key", values.text)
    """Column whose hash chooses the partition."""
    partition: str | None = _option(None, "partition", values.text)
    """Column with the partition's number."""
    transactional_id: str | None = _option(
        None, "transactional.id", _transactional_id, ("kafka.transactional.id",)
    )
    """Default: made of the query id."""
    checkpoint_location: str | None = _option(None, "checkpointLocation", values.text)
    checkpoint_file_system: str | None = _option(None, "checkpointFileSystem", values.text)
    """Hadoop's fs.defaultFS, for a checkpointLocation without a scheme. Default: that of Hadoop's
    configuration files."""
    query_name: str | None = _option(None, "queryName", values.text)
    group_takeover: bool = _option(False, "group.takeover", values.flag)
    """Take over the consumer group from the query that owns it."""
    create_topics: bool | None = _option(None, "createTopics", values.flag)
    """Default: a job creates missing topics; a query does at its start, and for new names later."""
    merge_schema: bool = _option(False, "mergeSchema", values.flag)
    """Add columns of the DataFrame that a topic lacks to the topic's schema."""
    partitions: int = _option(PARTITIONS_OF_NEW_TOPIC, "partitions", values.count)
    """For topics that are created."""
    topic_config: Mapping[str, object] = field(default_factory=dict)
    """`topic.*`, for topics that are created: values by the dotted names of TopicConfig."""
    label: str = _option("", "label", values.id_part)
    """Distinguishes several writes of one foreachBatch (rule R30)."""
    txn_app_id: str | None = _option(None, "txnAppId", values.id_part)
    txn_version: int | None = _option(None, "txnVersion", values.version)
    """The application's version: a version that is not above the newest changes nothing, as in
    Delta."""
    storage: Mapping[str, object] = field(default_factory=dict, repr=False)
    """Options for the store. They may contain credentials, and are never printed."""
    without_effect: tuple[str, ...] = ()
    """Accepted options of other connectors, each with the reason (`foreign_options`)."""


def options_of(kind: type[ReaderOptions] | type[WriterOptions]) -> dict[str, Option]:
    """Field -> option."""
    return {f.name: f.metadata["option"] for f in fields(kind) if "option" in f.metadata}


_READER, _WRITER = options_of(ReaderOptions), options_of(WriterOptions)


def parse_reader_options(
    options: Mapping[str, str], *, streaming: bool | None = None
) -> ReaderOptions:
    """Parse the source's options. `streaming` is None while it is unknown.

    Raises InvalidOption, InvalidName.
    """
    found = _parse("reader", _READER, _WRITER, options)
    if streaming is False:
        found.setdefault("starting_offsets", _EARLIEST)
    parsed = _build(ReaderOptions, found, "load")
    _check_subscription(parsed)
    _check_offsets(parsed)
    _check_limits(parsed, found)
    if streaming is not None:
        _check_mode(parsed, found, streaming)
    return parsed


def parse_writer_options(options: Mapping[str, str]) -> WriterOptions:
    """Parse the sink's options. Raises InvalidOption, InvalidName, InvalidConfig."""
    parsed = _build(WriterOptions, _parse("writer", _WRITER, _READER, options), "start")
    config = parsed.topic_config
    key_column = TopicConfig.from_dotted(config).key_column if config else ""
    if parsed.key is not None and key_column not in ("", parsed.key):
        raise InvalidOption(
            f"option 'key' names the column {parsed.key!r}, and 'topic.key.column' {key_column!r}; "
            "leave one of them out."
        )
    if parsed.key is not None and parsed.key == parsed.partition:
        raise InvalidOption(
            f"options 'key' and 'partition' both name the column {parsed.key!r}; a row's partition "
            "is given by only one of them."
        )
    # The field has a default, so only the given names tell whether the user has set it.
    created = [
        n for n in options if n.lower() == "partitions" or n.lower().startswith(TOPIC_PREFIX)
    ]
    if parsed.create_topics is False and created:
        raise InvalidOption(
            f"option {created[0]!r} is for topics that are created, and 'createTopics' is false; "
            "leave one of them out."
        )
    if parsed.transactional_id is not None and parsed.label:
        validate_transactional_id(f"{parsed.transactional_id}.{parsed.label}")
    _check_version(parsed)
    return parsed


def _check_version(parsed: WriterOptions) -> None:
    if (parsed.txn_app_id is None) != (parsed.txn_version is None):
        raise InvalidOption(
            "only one of 'txnAppId' and 'txnVersion' is given; give both, or neither."
        )
    if parsed.txn_app_id is None:
        return
    for name, value in [
        ("transactional.id", parsed.transactional_id),
        ("checkpointLocation", parsed.checkpoint_location),
    ]:
        if value is not None:
            raise InvalidOption(
                f"a write with 'txnAppId' and 'txnVersion' is identified by these; leave "
                f"{name!r} out. In writeStream leave those two out: Spark numbers its batches.",
                option=name,
            )


def _parse(
    kind: str,
    table: Mapping[str, Option],
    others: Mapping[str, Option],
    options: Mapping[str, str],
) -> dict[str, Any]:
    known = {
        spelling.lower(): (target, option)
        for target, option in table.items()
        for spelling in (option.name, *option.aliases)
    }
    # First: otherwise the error would name 'provider', an option that Spark adds and no user gives.
    _refuse_catalog_table(options)
    found: dict[str, Any] = {"storage": {}, "without_effect": ()}
    texts: dict[str, str] = {}
    for name, value in options.items():
        if name.lower().startswith(STORAGE_PREFIX):
            plain = name[len(STORAGE_PREFIX) :]
            found["storage"][values.text(name, plain)] = values.storage_value(name, value)
            continue
        if table is _WRITER and name.lower().startswith(TOPIC_PREFIX):
            found.setdefault("topic_config", {})[name[len(TOPIC_PREFIX) :].lower()] = value
            continue
        if name.lower() not in known:
            foreign = foreign_options.found(foreign_options.IGNORED, name)
            if foreign is None:
                raise _unknown(kind, name, table, others)
            found["without_effect"] += ("{} ({})".format(*foreign),)
            continue
        target, option = known[name.lower()]
        # Equal values are accepted: `load(root)` sets 'path' beside a given option 'root'.
        if texts.setdefault(target, value) != value:
            raise InvalidOption(
                f"option {option.name!r} is given twice, under two names and with two values; "
                "leave one of them out.",
                option=option.name,
            )
        found[target] = option.parse(option.name, value)
    return found


def warn_of_options_without_effect(options: ReaderOptions | WriterOptions) -> None:
    """Log one warning for all of them, once in a process for each log and each set of options.

    Spark parses a query's options again in each batch, and often in the same process.
    """
    key = (options.root, options.without_effect)
    if options.without_effect and key not in _warned:
        _warned.add(key)
        log.warning("options without effect in txlog: %s", "; ".join(options.without_effect))


_warned: set[tuple[str, tuple[str, ...]]] = set()


def _refuse_catalog_table(options: Mapping[str, str]) -> None:
    """Refuse a table of Spark's catalog, whose options Spark 4.2 does not pass.

    `CREATE TABLE` asks for the columns with the table's properties as options; each use of the
    table passes only the options of that use, usually none.
    """
    if "provider" in {name.lower() for name in options}:
        raise InvalidOption(
            "Spark's catalog keeps the columns of a table, but passes its OPTIONS to no source "
            f"that is written in Python, so the table could not be read. {_VIEW_INSTEAD}",
            option="provider",
        )
    if not options:
        raise InvalidOption(
            "the log is not named, and no option is given. Set option 'root'. If this is a table "
            "of Spark's catalog: Spark passes its OPTIONS to no source that is written in Python. "
            f"{_VIEW_INSTEAD}"
        )


_VIEW_INSTEAD = (
    "Use CREATE TEMPORARY VIEW ... USING txlog OPTIONS (...), for INSERT INTO, too; or declare the "
    "table's columns, and give the options with each use: SELECT * FROM t WITH (root = '...', "
    "subscribe = '...')."
)


def _unknown(
    kind: str, name: str, table: Mapping[str, Option], others: Mapping[str, Option]
) -> InvalidOption:
    refused = foreign_options.found(foreign_options.REFUSED, name)
    if refused is not None:
        hint = refused[1]
        return InvalidOption(f"{kind} option {name!r} does not exist here; {hint}.", option=name)
    spellings = (s for option in others.values() for s in (option.name, *option.aliases))
    if name.lower() in map(str.lower, spellings):
        other = "writer" if kind == "reader" else "reader"
        return InvalidOption(
            f"option {name!r} is an option of the {other}, not of the {kind}; leave it out here.",
            option=name,
        )
    written = {spelling.lower(): spelling for spelling in sorted(o.name for o in table.values())}
    near = difflib.get_close_matches(name.lower(), written, n=1)
    remedy = (
        f"did you mean {written[near[0]]!r}?"
        if near
        else f"the options are {', '.join(written.values())} and {STORAGE_PREFIX}*."
    )
    return InvalidOption(f"unknown {kind} option {name!r}; {remedy}", option=name)


def _build(kind: Callable[..., OptionsT], found: Mapping[str, Any], method: str) -> OptionsT:
    if "root" not in found:
        raise InvalidOption(
            f"the log is not named: set option 'root', or pass it to {method}(), as a folder or a "
            "URL such as s3://bucket/log."
        )
    return kind(**found)


def _check_subscription(parsed: ReaderOptions) -> None:
    given = {
        "subscribe": bool(parsed.subscribe),
        "subscribePattern": parsed.subscribe_pattern is not None,
        "assign": parsed.assign is not None,
    }
    found = [repr(name) for name, is_given in given.items() if is_given]
    if len(found) != 1:
        facts = f"{' and '.join(found)} are" if found else f"none of {', '.join(given)} is"
        raise InvalidOption(f"{facts} given; give exactly one of {', '.join(given)}.")
    both = sorted({*parsed.topics} & {*parsed.abandoned_topics})
    if both:
        raise InvalidOption(
            f"'abandonedTopics' names {', '.join(both)}, which is subscribed to; leave it out of "
            "one of the two.",
            option="abandonedTopics",
        )
    if parsed.abandoned_group is not None and parsed.abandoned_group == parsed.group_id:
        raise InvalidOption(
            f"'abandonedGroup' and 'group.id' both name {parsed.group_id!r}; leave out the first, "
            "or give the query another group.",
            option="abandonedGroup",
        )


def _check_offsets(parsed: ReaderOptions) -> None:
    if parsed.start.point is OffsetPoint.COMMITTED and parsed.group_id is None:
        raise InvalidOption(
            "'startingOffsets' is committed, but no group is given: set 'group.id', too."
        )
    for spec in (parsed.start, parsed.end):
        unread = sorted({tp.topic for tp in spec.explicit if not parsed.reads(tp.topic)})
        unread = unread or sorted(str(tp) for tp in spec.explicit if not parsed.reads_partition(tp))
        if unread:
            raise InvalidOption(
                f"{spec.option!r} names {', '.join(unread)}, which is not subscribed to; subscribe "
                "to it, or leave it out there.",
                option=spec.option,
            )
        unnamed = set(parsed.topics) - {tp.topic for tp in spec.explicit}
        if spec.explicit and unnamed:
            raise InvalidOption(
                f"{spec.option!r} does not name {', '.join(sorted(unnamed))}; name every partition "
                f"of the topics read{spec.special}."
            )
    first, last = parsed.start.point, parsed.end.point
    if isinstance(first, AtTime) and isinstance(last, AtTime) and first > last:
        raise InvalidOption(
            "'startingTimestamp' is later than 'endingTimestamp'; give times in their order.",
            option="endingTimestamp",
        )


def _check_limits(parsed: ReaderOptions, found: Mapping[str, Any]) -> None:
    least, most = parsed.min_offsets_per_trigger, parsed.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise InvalidOption(
            f"'minOffsetsPerTrigger' is {least}, more than 'maxOffsetsPerTrigger' with {most}; "
            "lower the first, or raise the second.",
            option="minOffsetsPerTrigger",
        )
    if least is None and "max_trigger_delay_ms" in found:
        raise InvalidOption(
            "'maxTriggerDelay' limits the wait of 'minOffsetsPerTrigger', which is not given; "
            "give both.",
            option="maxTriggerDelay",
        )


_ENDS = ("ending_offsets", "ending_timestamp", "ending_offsets_by_timestamp")


def _check_mode(parsed: ReaderOptions, found: Mapping[str, Any], streaming: bool) -> None:
    if streaming:
        for target in (*_ENDS, "as_of"):
            if target in found:
                name = _READER[target].name
                raise InvalidOption(
                    f"{name!r} is for spark.read only; a stream has no end.", option=name
                )
        return
    for target in (
        "max_offsets_per_trigger",
        "max_bytes_per_trigger",
        "min_offsets_per_trigger",
        "abandoned_topics",
        "abandoned_group",
    ):
        if target in found:
            name = _READER[target].name
            raise InvalidOption(f"{name!r} is for streams only; leave it out.", option=name)
    if _points(parsed.start) & {OffsetPoint.LATEST}:
        raise InvalidOption(
            "'startingOffsets' may not be latest (or -1) in a batch, which would be empty."
        )
    if parsed.as_of is not None:
        for target in _ENDS:
            if target in found:
                name = _READER[target].name
                raise InvalidOption(f"'asOf' and {name!r} are given; give one end.", option=name)
        if parsed.isolation_level is IsolationLevel.READ_UNCOMMITTED:
            raise InvalidOption(
                "'asOf' is a consistent cut, which 'isolation.level' read_uncommitted gives up; "
                "leave one of them out.",
                option="asOf",
            )
    if _points(parsed.end) & {OffsetPoint.EARLIEST, OffsetPoint.COMMITTED}:
        raise InvalidOption("'endingOffsets' must be latest, or JSON with numbers and -1.")


def _points(spec: OffsetSpec) -> set[Position | None]:
    return {spec.point, *spec.explicit.values()}
