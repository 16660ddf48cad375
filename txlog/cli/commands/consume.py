"""`txlog consume`: records as JSON lines, a table, plain lines or Arrow.

A group's offset never passes a record that was not printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
import typer

from txlog.cli.options.produce_options import separator
from txlog.cli.options.starting_point import Edge, StartingPoint, parse_starting_point
from txlog.cli.output.record_printing import (
    ArrowOutput,
    Write,
    line_writer,
    plain,
    table_writer,
    write_json_lines,
)
from txlog.cli.session import Output, Session, Topic, group_names, with_session
from txlog.client.consumer.consumer import Consumer
from txlog.client.consumer.cut_reader import AtOffset
from txlog.errors import UsageError
from txlog.model import IsolationLevel, TopicPartition
from txlog.topic.read.time_lookup import AtTime
from txlog.topic.topic_log import TopicLog

POLL_RECORDS_MAX = 10_000
"""Records of one poll, which are in memory as text at once."""

FETCH_BYTES_MAX = 8 << 20
"""Stored bytes read by one poll."""

FOLLOW_TIMEOUT_MS = 1_000
"""How long one poll waits for new records; the next one follows at once."""

app = typer.Typer()

EXAMPLES = """Examples:

txlog consume orders -n 10

txlog consume orders --from @2013-01-31T12:00:00Z --partition 0 | jq .value

txlog consume orders --from latest --follow

txlog consume orders --group report --format lines
"""


class OutputFormat(StrEnum):
    """The format of printed records."""

    JSON = "json"
    LINES = "lines"
    ARROW = "arrow"


@app.command("consume", epilog=EXAMPLES)
@with_session
def consume(
    session: Session,
    topic: Topic,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="earliest (default), latest, an offset, or @ and a time (ISO 8601, or ms since "
            "1970).",
        ),
    ] = None,
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Only this one; repeatable."),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=1, help="Stop after this many.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new records until Ctrl-C.")
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="Begin at this consumer group's offset, and commit printed records.",
            autocompletion=group_names,
        ),
    ] = None,
    file_format: Annotated[
        OutputFormat | None,
        typer.Option("--format", help="json (default), lines (just the values) or arrow."),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="TEXT", help="Lines: print the key, too."),
    ] = None,
    isolation: Annotated[
        IsolationLevel, typer.Option("--isolation", help="Whether to read open transactions.")
    ] = IsolationLevel.READ_COMMITTED,
) -> None:
    """Print the records of a topic, from the beginning to the current end.

    One JSON object a line. Bytes are text if they are UTF-8, else {"base64": "..."}; records of
    typed topics are objects; times are ISO 8601 in UTC. Order holds within a partition.

    With --group delivery is at least once: records printed but not committed are printed again.
    """
    if start is None and not group:
        start = "earliest"
    point = None if start is None else parse_starting_point(start)
    # Linearizable, so that a topic that was just created by another process is found.
    log = session.admin().connection.cluster.present_topic(topic, linearizable=True)
    for partition in partitions or ():
        log.check_partition(partition)
    consumer = _consumer(session, topic, tuple(partitions or ()), isolation, group)
    # Fixed before anything is read: else the command might never end while producers write.
    ends = None if follow else consumer.end_offsets(consumer.assignment())
    if point is not None:
        _seek(consumer, point, log)
    with _writer(session, log.schema(), file_format, key_separator) as write:
        for table in _tables(consumer, ends, max_messages):
            # Flushed before the commit: a kill between the two repeats records and loses none.
            write(table)
            if group:
                _commit(consumer, ends or {})
    _name_blocking_transactions(session, consumer)


def _name_blocking_transactions(session: Session, consumer: Consumer) -> None:
    """Name the transactions that block a reader at read_committed."""
    for where, tx_id in sorted(consumer.blocked_by().items()):
        session.say(
            f"{where} is blocked at offset {consumer.position(where)} by transaction {tx_id}; "
            f"'txlog txn describe {tx_id}' shows its owner, --isolation read_uncommitted reads "
            "its records."
        )


def _writer(
    session: Session,
    schema: pa.Schema,
    file_format: OutputFormat | None,
    key_separator: str | None,
) -> AbstractContextManager[Write]:
    """Raises UsageError for options that contradict each other."""
    if key_separator is not None and file_format is not OutputFormat.LINES:
        raise UsageError("--key-separator is for --format lines; leave it out.")
    is_table = session.options.output is Output.TABLE
    other = OutputFormat.JSON if session.options.output is Output.JSON else None
    if session.options.output is not None and file_format not in (None, other):
        raise UsageError(
            f"-o {session.options.output} and --format {file_format} contradict each other; leave "
            "one of them out."
        )
    if file_format is OutputFormat.LINES:
        return plain(line_writer(schema, separator(key_separator)))
    if file_format is OutputFormat.ARROW:
        return ArrowOutput()
    return plain(table_writer() if is_table else write_json_lines)


def _commit(consumer: Consumer, ends: Mapping[TopicPartition, int]) -> None:
    """Commit up to the printed records; records polled beyond the ends are not committed."""
    for where, end in ends.items():
        if consumer.position(where) > end:
            consumer.seek(where, end)
    consumer.commit()


def _consumer(
    session: Session,
    topic: str,
    partitions: tuple[int, ...],
    isolation: IsolationLevel,
    group: str | None,
) -> Consumer:
    consumer = Consumer(
        root=session.admin().connection,
        group_id=group,
        enable_auto_commit=False,
        isolation_level=isolation,
        auto_offset_reset="earliest",
        fetch_max_bytes=FETCH_BYTES_MAX,
    )
    if partitions:
        consumer.assign([TopicPartition(topic, partition) for partition in partitions])
    else:
        consumer.subscribe(topic)
    return consumer


def _seek(consumer: Consumer, point: StartingPoint, log: TopicLog) -> None:
    """Raises OffsetOutOfRange: `poll` would continue at another offset."""
    assigned = sorted(consumer.assignment())
    match point:
        case Edge(is_end):
            seek = consumer.seek_to_end if is_end else consumer.seek_to_beginning
            seek(*assigned)
        case AtOffset(offset):
            for where in assigned:
                log.require_offset(where.partition, offset)
                consumer.seek(where, offset)
        case AtTime(timestamp_ms):
            found = consumer.offsets_for_times(dict.fromkeys(assigned, timestamp_ms))
            ends = consumer.end_offsets(assigned)
            for where, at in found.items():
                consumer.seek(where, ends[where] if at is None else at.offset)


def _tables(
    consumer: Consumer, ends: Mapping[TopicPartition, int] | None, records_max: int | None
) -> Iterator[pa.Table]:
    """The tables of successive polls, up to `ends` if given, and up to `records_max` records."""
    left = records_max
    while left != 0 and not _is_past(consumer, ends):
        wanted = POLL_RECORDS_MAX if left is None else min(left, POLL_RECORDS_MAX)
        table = consumer.poll_arrow(FOLLOW_TIMEOUT_MS if ends is None else 0, wanted)
        if table is not None:
            table = table if ends is None else _before(table, ends)
            left = None if left is None else left - table.num_rows
            if table.num_rows:
                yield table
        # Up to the ends nothing more can be read: the rest is open, aborted or compacted away.
        elif ends is not None:
            return


def _is_past(consumer: Consumer, ends: Mapping[TopicPartition, int] | None) -> bool:
    if ends is None:
        return False
    return all(consumer.position(where) >= end for where, end in ends.items())


def _before(table: pa.Table, ends: Mapping[TopicPartition, int]) -> pa.Table:
    """The records below the ends: those that existed when the command began."""
    keep = pa.scalar(False)
    for where, end in ends.items():
        below = pc.less(table["_offset"], end)
        keep = pc.or_(keep, pc.and_(below, pc.equal(table["_partition"], where.partition)))
    return table.filter(keep)
