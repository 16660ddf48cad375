"""`txlog produce`: records from stdin or files into a topic; the counterpart of `txlog consume`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import typer

from txlog.cli.commands.topic import config_pairs
from txlog.cli.input.input_formats import csv_blocks, parse_json, parse_text
from txlog.cli.input.input_lines import STDIN, BlockLimits, line_blocks, require_readable
from txlog.cli.input.input_records import (
    PARTITION_COLUMN,
    RecordBlock,
    RecordForm,
    blocks_of,
)
from txlog.cli.input.input_tables import table_blocks
from txlog.cli.input.record_writer import RecordWriter
from txlog.cli.options import produce_options as options
from txlog.cli.options.produce_options import InputFormat
from txlog.cli.output.output import Grid, counted
from txlog.cli.session import Session, Topic, with_session
from txlog.client.producer.producer import Producer
from txlog.clock import Clock
from txlog.engine.times import milliseconds
from txlog.errors import UsageError
from txlog.model import validate_tag
from txlog.topic.records.schema import is_kafka_schema
from txlog.topic.topic_log import TopicLog
from txlog.topic.write.record_preparation import BatchColumns

BLOCK_RECORDS = 10_000
"""Records that are sent at once."""

BLOCK_BYTES = 8 << 20
"""Bytes of input that are sent at once."""

TEXT_FACTOR = 8
"""JSON and CSV are longer than the record: a byte may be written as \\u00ff."""

app = typer.Typer()

EXAMPLES = """Examples:

echo 'bob:a bicycle' | txlog produce orders --key-separator :

txlog consume orders | txlog produce copy --format json

txlog produce flights flights.parquet --transactional-id loader
"""


_ENDINGS = {
    ".json": InputFormat.JSON,
    ".jsonl": InputFormat.JSON,
    ".ndjson": InputFormat.JSON,
    ".csv": InputFormat.CSV,
    ".parquet": InputFormat.PARQUET,
    ".arrow": InputFormat.ARROW,
    ".arrows": InputFormat.ARROW,
    ".feather": InputFormat.ARROW,
}
_TABLES = (InputFormat.PARQUET, InputFormat.ARROW)


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The inputs, and how to read them."""

    paths: tuple[str, ...]
    file_format: InputFormat | None
    topic: TopicLog
    clock: Clock

    def format_of(self, path: str) -> InputFormat:
        """As given, or by the file's name, or by the topic. Raises UsageError."""
        is_kafka = is_kafka_schema(self.topic.schema())
        by_topic = InputFormat.LINES if is_kafka else InputFormat.JSON
        found = self.file_format or _ENDINGS.get(PurePath(path).suffix.lower(), by_topic)
        if found is InputFormat.LINES and not is_kafka:
            raise UsageError(
                f"topic {self.topic.name!r} is typed: a line of text cannot fill its columns; use "
                "--format json, csv, parquet or arrow."
            )
        return found

    def formats(self) -> set[InputFormat]:
        """All formats of the inputs."""
        return {self.format_of(path) for path in self.paths}

    def blocks(self, form: RecordForm) -> Iterator[RecordBlock]:
        """All records, in order of the inputs."""
        for path in self.paths:
            yield from self._blocks(path, form)

    def _blocks(self, path: str, form: RecordForm) -> Iterator[RecordBlock]:
        file_format = self.format_of(path)
        if file_format in _TABLES:
            return table_blocks(path, form, file_format)
        limit = self.topic.state.config.max_message_bytes
        if file_format is InputFormat.LINES:
            room = limit + len(form.key_separator or b"")
            lines = line_blocks(path, _limits(room), self.clock)
            return blocks_of(lines, form, parse_text)
        room = TEXT_FACTOR * limit + BLOCK_BYTES
        lines = line_blocks(path, _limits(room), self.clock)
        if file_format is InputFormat.JSON:
            return blocks_of(lines, form, parse_json)
        return csv_blocks(lines, form, room)


def _limits(line_bytes: int) -> BlockLimits:
    return BlockLimits(BLOCK_RECORDS, BLOCK_BYTES, line_bytes)


@app.command("produce", epilog=EXAMPLES)
@with_session
def produce(
    session: Session,
    topic: Topic,
    files: options.Files = None,
    file_format: options.Format = None,
    key_separator: options.KeySeparator = None,
    null_marker: options.NullMarker = None,
    key: options.Key = None,
    header: options.Header = None,
    partition: options.Partition = None,
    keep_partitions: options.KeepPartitions = False,
    timestamp: options.Timestamp = None,
    timestamp_column: options.TimestampColumn = None,
    transactional_id: options.TransactionalId = None,
    tag: options.Tag = None,
    config: options.Config = None,
) -> None:
    """Write records to a topic: lines of text, JSON, CSV, or Parquet and Arrow files.

    JSON is one object a line, as `txlog consume` prints it; for a typed topic it may be just the
    columns. CSV has a header. A record that the topic cannot hold stops the command, which names
    its place and writes nothing more; with --transactional-id, nothing at all.
    """
    options.require_one("--partition", partition, "--keep-partitions", keep_partitions or None)
    options.require_one("--timestamp", timestamp, "--timestamp-column", timestamp_column)
    options.require_one("--key", key, "--key-separator", key_separator)
    if tag is not None and transactional_id is None:
        raise UsageError("--tag names a transaction; give --transactional-id, too.")
    connection = session.admin().connection
    log = connection.cluster.present_topic(topic, linearizable=True)
    if partition is not None:
        log.check_partition(partition)
    paths = tuple(files or (STDIN,))
    source = _Inputs(paths, file_format, log, connection.runtime.clock)
    form = RecordForm(
        log.schema(),
        is_kafka_schema(log.schema()),
        options.separator(key_separator),
        options.raw(null_marker),
        options.raw(key),
        options.header_pairs(header or ()),
        None if timestamp is None else milliseconds(timestamp),
        keep_partitions,
    )
    # Every check comes before the producer registers, which fences a running instance (R5).
    _require_fitting(form, source.formats(), timestamp_column)
    require_readable(paths)
    choice = PARTITION_COLUMN if keep_partitions else partition
    columns = BatchColumns(None, choice, timestamp_column)
    writer = RecordWriter(session, log, connection.runtime.clock, columns)
    producer = _producer(session, transactional_id, config_pairs(config or ()))
    writer.write(producer, source.blocks(form), validate_tag(tag) if tag is not None else "")
    _show(session, topic, writer)


def _producer(
    session: Session, transactional_id: str | None, config: dict[str, object]
) -> Producer:
    values: dict[str, object] = {**config, "root": session.admin().connection}
    if transactional_id is not None:
        if config.get("transactional.id", transactional_id) != transactional_id:
            raise UsageError("--transactional-id and --config transactional.id differ; give one.")
        values["transactional.id"] = transactional_id
    return Producer.from_config(values)


def _require_fitting(
    form: RecordForm, formats: set[InputFormat], timestamp_column: str | None
) -> None:
    """Refuse options that do not apply to this topic or input. Raises UsageError."""
    if not form.is_kafka and (form.key is not None or form.headers):
        raise UsageError("a typed topic has columns instead of keys and headers; leave them out.")
    if form.key_separator is not None and formats != {InputFormat.LINES}:
        raise UsageError("--key-separator is for --format lines; leave it out.")
    if form.null_marker is not None and not formats <= {InputFormat.LINES, InputFormat.CSV}:
        raise UsageError("--null-marker is for lines and CSV; leave it out.")
    if form.keeps_partitions and InputFormat.LINES in formats:
        raise UsageError("lines name no partitions; leave out --keep-partitions.")
    is_column = timestamp_column in form.schema.names and not form.is_kafka
    if timestamp_column is not None and not is_column and not formats <= set(_TABLES):
        raise UsageError(f"--timestamp-column {timestamp_column!r} is not a column of the topic.")


def _show(session: Session, topic: str, writer: RecordWriter) -> None:
    parts = sorted(writer.partitions.items())
    if session.options.output is not None:
        document: dict[str, Any] = {
            "topic": topic,
            "records": writer.records,
            "transaction": None if writer.tx_id is None else str(writer.tx_id),
            "partitions": [
                {
                    "partition": number,
                    "records": part.records,
                    "first_offset": part.first_offset,
                    "last_offset": part.last_offset,
                }
                for number, part in parts
            ],
        }
        rows = [(n, part.records, part.first_offset, part.last_offset) for n, part in parts]
        headers = ("PARTITION", "RECORDS", "FIRST-OFFSET", "LAST-OFFSET")
        session.show(document, [Grid(headers, rows)])
    session.say(f"Wrote {counted(writer.records, 'record')} to topic {topic}.")
