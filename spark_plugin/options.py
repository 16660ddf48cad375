"""Options of the Spark source and sink: their names, their values, and which exclude others.

It guards that a wrong option is refused, with the nearest right one, before anything is read or
written. Spark passes names in lower case and values as texts, whatever the user wrote
(`.option("minPartitions", 8)` arrives as minpartitions, "8"), so names are compared in lower case.
It must not open anything.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from spark_plugin import option_values as values
from spark_plugin.checkpoints.checkpoint_files import LOCAL_FILE_SYSTEM
from spark_plugin.option_values import OffsetPoint, OffsetSpec, Parser
from txlog.errors import InvalidOption
from txlog.model import IsolationLevel, TopicPartition, validate_transactional_id
from txlog.settings import COMPRESSION_TYPES

STORAGE_PREFIX = "storage."
BYTES_PER_TASK = 64 << 20
PARTITIONS_OF_NEW_TOPIC = 4
MAX_TRIGGER_DELAY_MS = 15 * 60_000
"""As in Kafka's source."""

_EARLIEST = OffsetSpec(OffsetPoint.EARLIEST)
_LATEST = OffsetSpec(OffsetPoint.LATEST)

OptionsT = TypeVar("OptionsT", "ReaderOptions", "WriterOptions")


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """Options of `spark.readStream.format("txlog")` and of `spark.read`."""

    root: str
    """`root`, or the argument of `load`: the log's URL."""
    subscribe: tuple[str, ...] = ()
    subscribe_pattern: str | None = None
    starting_offsets: OffsetSpec = _LATEST
    """For a query without a checkpoint. Default: latest in a stream, earliest in a batch."""
    ending_offsets: OffsetSpec = _LATEST
    """Batch only."""
    group_id: str | None = None
    columns: tuple[str, ...] | None = None
    """Read only these columns: the cheapest projection."""
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    """A batch waits until there are this many new offsets, but no longer than the delay."""
    max_trigger_delay_ms: int = MAX_TRIGGER_DELAY_MS
    min_partitions: int | None = None
    bytes_per_task: int = BYTES_PER_TASK
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    fail_on_data_loss: bool = True
    include_headers: bool = False
    storage: Mapping[str, object] = field(default_factory=dict, repr=False)
    """Options for the store. They may contain credentials, and are never printed."""

    def reads(self, topic: str) -> bool:
        """Whether that topic is subscribed to."""
        if self.subscribe_pattern is not None:
            return re.fullmatch(self.subscribe_pattern, topic) is not None
        return topic in self.subscribe


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """Options of `df.writeStream.format("txlog")` and of `df.write`."""

    root: str
    """`root`, or the argument of `start` or `save`: the log's URL."""
    topic: str | None = None
    """The topic for all rows; without it the column `topic` names each row's topic."""
    key: str | None = None
    """Column whose hash chooses the partition."""
    partition: str | None = None
    """Column with the partition's number."""
    transactional_id: str | None = None
    """Default: the query's own."""
    checkpoint_location: str | None = None
    checkpoint_file_system: str = LOCAL_FILE_SYSTEM
    """Hadoop's fs.defaultFS, for a checkpointLocation without a scheme."""
    query_name: str | None = None
    group_takeover: bool = False
    """Take over the consumer group from the query that owns it."""
    create_topics: bool | None = None
    """Default: a job creates them; a query does at its start, and for topics that its rows name."""
    partitions: int = PARTITIONS_OF_NEW_TOPIC
    """For topics that are created."""
    compression: str | None = None
    """For topics that are created; default: the topic configuration's own."""
    label: str = ""
    """Distinguishes several writes of one foreachBatch (rule R30)."""
    txn_app_id: str | None = None
    txn_version: int | None = None
    """A job with this version of that application, or a lower one, runs once (as in Delta)."""
    storage: Mapping[str, object] = field(default_factory=dict, repr=False)
    """Options for the store. They may contain credentials, and are never printed."""


@dataclass(frozen=True, slots=True)
class _Option:
    name: str
    parse: Parser
    aliases: tuple[str, ...] = ()


def _transactional_id(name: str, value: str) -> str:
    return validate_transactional_id(values.text(name, value))


_READER = {
    "root": _Option("root", values.text, ("path",)),
    "subscribe": _Option("subscribe", values.topics),
    "subscribe_pattern": _Option("subscribePattern", values.pattern),
    "starting_offsets": _Option("startingOffsets", values.offsets),
    "ending_offsets": _Option("endingOffsets", values.offsets),
    "group_id": _Option("group.id", values.group, ("kafka.group.id", "groupId")),
    "columns": _Option("columns", values.names),
    "max_offsets_per_trigger": _Option("maxOffsetsPerTrigger", values.count),
    "min_offsets_per_trigger": _Option("minOffsetsPerTrigger", values.count),
    "max_trigger_delay_ms": _Option("maxTriggerDelay", values.duration_ms),
    "min_partitions": _Option("minPartitions", values.count),
    "bytes_per_task": _Option("bytesPerTask", values.size_bytes),
    "isolation_level": _Option(
        "isolation.level", values.choice(IsolationLevel), ("kafka.isolation.level",)
    ),
    "fail_on_data_loss": _Option("failOnDataLoss", values.flag),
    "include_headers": _Option("includeHeaders", values.flag),
}

_WRITER = {
    "root": _Option("root", values.text, ("path",)),
    "topic": _Option("topic", values.topic),
    "key": _Option("key", values.text),
    "partition": _Option("partition", values.text),
    "transactional_id": _Option("transactional.id", _transactional_id, ("kafka.transactional.id",)),
    "checkpoint_location": _Option("checkpointLocation", values.text),
    "checkpoint_file_system": _Option("checkpointFileSystem", values.text),
    "query_name": _Option("queryName", values.text),
    "group_takeover": _Option("group.takeover", values.flag),
    "create_topics": _Option("createTopics", values.flag),
    "partitions": _Option("partitions", values.count),
    "compression": _Option(
        "compression",
        values.word(*COMPRESSION_TYPES),
        ("compression.type", "kafka.compression.type"),
    ),
    "label": _Option("label", values.id_part),
    "txn_app_id": _Option("txnAppId", values.id_part),
    "txn_version": _Option("txnVersion", values.version),
}

_HINTS = {
    "kafka.bootstrap.servers": "a txlog has no brokers: give the log's URL as 'root'",
    "assign": "name topics with 'subscribe'",
    "paths": "a txlog has one root: give load one path",
    "startingtimestamp": "give offsets as JSON in 'startingOffsets'",
    "startingoffsetsbytimestamp": "give offsets as JSON in 'startingOffsets'",
    "startingoffsetsbytimestampstrategy": "give offsets as JSON in 'startingOffsets'",
    "endingtimestamp": "give offsets as JSON in 'endingOffsets'",
    "endingoffsetsbytimestamp": "give offsets as JSON in 'endingOffsets'",
    "kafkaconsumer.polltimeoutms": "there is no broker to wait for",
    "fetchoffset.numretries": "the store retries by itself",
    "fetchoffset.retryintervalms": "the store retries by itself",
    "maxrecordsperpartition": "tasks are divided by bytes: set 'bytesPerTask'",
    "maxbytespertrigger": "a batch is limited by 'maxOffsetsPerTrigger'",
    "maxfilespertrigger": "a batch is limited by 'maxOffsetsPerTrigger'",
    "auto.offset.reset": "use 'startingOffsets'",
    "kafka.auto.offset.reset": "use 'startingOffsets'",
    "enable.auto.commit": "the sink commits the offsets, in the transaction of the records",
    "groupidprefix": "name the group with 'group.id'",
}
"""Options of Kafka's and Delta's connectors that have another name here."""


def parse_reader_options(
    options: Mapping[str, str], *, streaming: bool | None = None
) -> ReaderOptions:
    """Validate the source's options. `streaming` is None while it is unknown.

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
    """Validate the sink's options. Raises InvalidOption, InvalidName."""
    parsed = _build(WriterOptions, _parse("writer", _WRITER, _READER, options), "start")
    if parsed.key is not None and parsed.key == parsed.partition:
        raise InvalidOption(
            f"options 'key' and 'partition' both name the column {parsed.key!r}; a row's partition "
            "is given by only one of them."
        )
    if parsed.create_topics is False and "partitions" in {name.lower() for name in options}:
        raise InvalidOption(
            "option 'partitions' is for topics that are created, and 'createTopics' is false; "
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
    table: Mapping[str, _Option],
    others: Mapping[str, _Option],
    options: Mapping[str, str],
) -> dict[str, Any]:
    known = {
        spelling.lower(): (target, option)
        for target, option in table.items()
        for spelling in (option.name, *option.aliases)
    }
    _refuse_catalog_table(options)
    found: dict[str, Any] = {}
    texts: dict[str, str] = {}
    storage: dict[str, object] = {}
    for name, value in options.items():
        if name.lower().startswith(STORAGE_PREFIX):
            plain = name[len(STORAGE_PREFIX) :]
            storage[values.text(name, plain)] = values.storage_value(name, value)
            continue
        if name.lower() not in known:
            raise _unknown(kind, name, table, others)
        target, option = known[name.lower()]
        if texts.setdefault(target, value) != value:
            raise InvalidOption(
                f"option {option.name!r} is given twice, under two names and with two values; "
                "leave one of them out.",
                option=option.name,
            )
        found[target] = option.parse(option.name, value)
    return {**found, "storage": storage}


def _refuse_catalog_table(options: Mapping[str, str]) -> None:
    """Refuse a table of Spark's catalog that names no log where it is used.

    `CREATE TABLE` asks for the columns, with the table's properties as options; every use of the
    table passes the options of that use only, so without any (Spark 4.2).
    """
    if "provider" in {name.lower() for name in options}:
        raise InvalidOption(
            "Spark's catalog keeps the columns of a table, but passes its OPTIONS to no source "
            f"that is written in Python, so the table could not be read. {_VIEW_INSTEAD}",
            option="provider",
        )
    if not options:
        raise InvalidOption(
            "the log's place is not given: there are no options at all. Set option 'root'. If this "
            "is a table of Spark's catalog: Spark passes its OPTIONS to no source that is written "
            f"in Python. {_VIEW_INSTEAD}"
        )


_VIEW_INSTEAD = (
    "Use CREATE TEMPORARY VIEW ... USING txlog OPTIONS (...), for INSERT INTO, too; or declare the "
    "table's columns, and give the options with each use: SELECT * FROM t WITH (root = '...', "
    "subscribe = '...')."
)


def _unknown(
    kind: str, name: str, table: Mapping[str, _Option], others: Mapping[str, _Option]
) -> InvalidOption:
    hint = _HINTS.get(name.lower())
    if hint is not None:
        return InvalidOption(f"{kind} option {name!r} does not exist here; {hint}.", option=name)
    if name.lower() in {option.name.lower() for option in others.values()}:
        other = "writer" if kind == "reader" else "reader"
        return InvalidOption(
            f"option {name!r} is one of the {other}'s, not of the {kind}'s; leave it out here.",
            option=name,
        )
    written = {spelling.lower(): spelling for spelling in sorted(o.name for o in table.values())}
    near = difflib.get_close_matches(name.lower(), written, n=1)
    remedy = (
        f"did you mean {written[near[0]]!r}?"
        if near
        else (f"known are {', '.join(written.values())} and {STORAGE_PREFIX}*.")
    )
    return InvalidOption(f"unknown {kind} option {name!r}; {remedy}", option=name)


def _build(kind: Callable[..., OptionsT], found: Mapping[str, Any], method: str) -> OptionsT:
    if "root" not in found:
        raise InvalidOption(
            f"the log's place is not given: set option 'root', or pass it to {method}(), as a "
            "folder or a URL such as s3://bucket/log."
        )
    return kind(**found)


def _check_subscription(parsed: ReaderOptions) -> None:
    if bool(parsed.subscribe) == (parsed.subscribe_pattern is not None):
        which = "both are" if parsed.subscribe else "neither is"
        raise InvalidOption(
            f"{which} given of 'subscribe' and 'subscribePattern'; give one of them."
        )


def _check_offsets(parsed: ReaderOptions) -> None:
    if parsed.starting_offsets.point is OffsetPoint.COMMITTED and parsed.group_id is None:
        raise InvalidOption(
            "'startingOffsets' is committed, but there is no group: set 'group.id', too."
        )
    for name, spec in _given(parsed):
        unread = sorted({tp.topic for tp in spec.explicit if not parsed.reads(tp.topic)})
        if unread:
            raise InvalidOption(
                f"{name!r} names {', '.join(unread)}, which is not subscribed to; subscribe to it, "
                "or leave it out there.",
                option=name,
            )
    unnamed = set(parsed.subscribe) - _topics_of(parsed.starting_offsets.explicit)
    if parsed.starting_offsets.explicit and unnamed:
        raise InvalidOption(
            f"'startingOffsets' does not name {', '.join(sorted(unnamed))}; name every "
            "partition of the topics read (-2 for earliest, -1 for latest)."
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


def _given(parsed: ReaderOptions) -> list[tuple[str, OffsetSpec]]:
    return [
        ("startingOffsets", parsed.starting_offsets),
        ("endingOffsets", parsed.ending_offsets),
    ]


def _topics_of(explicit: Mapping[TopicPartition, object]) -> set[str]:
    return {partition.topic for partition in explicit}


def _check_mode(parsed: ReaderOptions, found: Mapping[str, Any], streaming: bool) -> None:
    if streaming:
        if "ending_offsets" in found:
            raise InvalidOption("'endingOffsets' is for spark.read only; a stream has no end.")
        return
    for target in ("max_offsets_per_trigger", "min_offsets_per_trigger", "max_trigger_delay_ms"):
        if target in found:
            name = _READER[target].name
            raise InvalidOption(f"{name!r} is for streams only; leave it out.", option=name)
    if _points(parsed.starting_offsets) & {OffsetPoint.LATEST}:
        raise InvalidOption(
            "'startingOffsets' may not be latest (or -1) in a batch, which would be empty."
        )
    if _points(parsed.ending_offsets) & {OffsetPoint.EARLIEST, OffsetPoint.COMMITTED}:
        raise InvalidOption("'endingOffsets' must be latest, or JSON with numbers and -1.")


def _points(spec: OffsetSpec) -> set[int | OffsetPoint | None]:
    return {spec.point, *spec.explicit.values()}
