"""`txlog consume`: records as JSON lines or as a table; reads only, and joins no group."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import typer

from txlog.cli.output import cell
from txlog.cli.record_json import json_lines, json_records, text_or_base64
from txlog.cli.session import Output, Session, topic_names, with_session
from txlog.cli.starting_point import AtOffset, AtTime, Edge, StartingPoint, parse_starting_point
from txlog.clients.consumer import Consumer
from txlog.model import IsolationLevel, TopicPartition

POLL_RECORDS_MAX = 10_000
"""Records of one poll: what is held in memory as text at once."""

FETCH_BYTES_MAX = 8 << 20
"""Stored bytes of one poll."""

FOLLOW_TIMEOUT_MS = 1_000
"""How long one poll waits for new records; the next one follows at once."""

CELL_WIDTH_MAX = 60
"""Characters of a cell on a terminal; elsewhere nothing is cut."""

EXAMPLES = """Examples:

txlog consume orders -n 10

txlog consume orders --from @2013-01-31T12:00:00Z --partition 0 | jq .value

txlog consume orders --from latest --follow
"""

Write = Callable[[pa.Table], None]


@with_session
def consume(
    session: Session,
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=topic_names)
    ],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="earliest, latest, an offset, or @ and a time (ISO 8601, or ms since 1970).",
        ),
    ] = "earliest",
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Only this one; again for more."),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=1, help="Stop after so many.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new records until Ctrl-C.")
    ] = False,
    isolation: Annotated[
        IsolationLevel, typer.Option("--isolation", help="What is seen of open transactions.")
    ] = IsolationLevel.READ_COMMITTED,
) -> None:
    """Print the records of a topic, from the beginning to what is there now.

    One JSON object a line. Bytes are text if they are UTF-8, else {"base64": "..."}; records of
    typed topics are objects; times are ISO 8601 in UTC. Order holds within a partition.
    """
    point = parse_starting_point(start)
    write = _table_writer() if session.options.output is Output.TABLE else _write_json_lines
    consumer = _consumer(session, topic, tuple(partitions or ()), isolation)
    ends = None if follow else consumer.end_offsets(consumer.assignment())
    _seek(consumer, point)
    for table in _tables(consumer, ends, max_messages):
        write(table)


def _consumer(
    session: Session, topic: str, partitions: tuple[int, ...], isolation: IsolationLevel
) -> Consumer:
    consumer = Consumer(
        root=session.admin().connection,
        isolation_level=isolation,
        auto_offset_reset="earliest",
        fetch_max_bytes=FETCH_BYTES_MAX,
    )
    if partitions:
        consumer.assign([TopicPartition(topic, partition) for partition in partitions])
    else:
        consumer.subscribe(topic)
    return consumer


def _seek(consumer: Consumer, point: StartingPoint) -> None:
    """Raises OffsetOutOfRange."""
    assigned = sorted(consumer.assignment())
    match point:
        case Edge(is_end):
            if is_end:
                consumer.seek_to_end(*assigned)
        case AtOffset(offset):
            for where in assigned:
                consumer.seek(where, offset)
        case AtTime(timestamp_ms):
            found = consumer.offsets_for_times(dict.fromkeys(assigned, timestamp_ms))
            ends = consumer.end_offsets(assigned)
            for where, at in found.items():
                consumer.seek(where, ends[where] if at is None else at.offset)


def _tables(
    consumer: Consumer, ends: Mapping[TopicPartition, int] | None, records_max: int | None
) -> Iterator[pa.Table]:
    """What polls give, up to `ends`, or for ever, and up to so many records."""
    left = records_max
    while left != 0 and not _is_past(consumer, ends):
        wanted = POLL_RECORDS_MAX if left is None else min(left, POLL_RECORDS_MAX)
        table = consumer.poll_arrow(FOLLOW_TIMEOUT_MS if ends is None else 0, wanted)
        if table is not None:
            table = table if ends is None else _before(table, ends)
            left = None if left is None else left - table.num_rows
            if table.num_rows:
                yield table
        elif ends is not None:
            return


def _is_past(consumer: Consumer, ends: Mapping[TopicPartition, int] | None) -> bool:
    if ends is None:
        return False
    return all(consumer.position(where) >= end for where, end in ends.items())


def _before(table: pa.Table, ends: Mapping[TopicPartition, int]) -> pa.Table:
    """The records below the ends: what was there when the command began."""
    keep = pa.scalar(False)
    for where, end in ends.items():
        below = pc.less(table["_offset"], end)
        keep = pc.or_(keep, pc.and_(below, pc.equal(table["_partition"], where.partition)))
    return table.filter(keep)


def _write_json_lines(table: pa.Table) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in json_lines(table)))
    sys.stdout.flush()


def _table_writer() -> Write:
    """Columns get the widths that the first records need; later ones may be wider."""
    widths: list[int] = []
    headers: list[str] = []
    is_terminal = sys.stdout.isatty()

    def write(table: pa.Table) -> None:
        records = list(json_records(table))
        rows = [[_cell(value, is_terminal) for value in _flat(record)] for record in records]
        names = _names(records[0])
        if names != headers:  # At first, and when the topic has got a new column meanwhile.
            headers[:] = names
            rows.insert(0, [name.upper() for name in names])
            widths[:] = [max(map(len, column)) for column in zip(*rows, strict=True)]
        rows = [[t.ljust(w) for t, w in zip(row, widths, strict=True)] for row in rows]
        sys.stdout.write("".join(f"{'  '.join(row).rstrip()}\n" for row in rows))
        sys.stdout.flush()

    return write


def _names(record: Mapping[str, Any]) -> list[str]:
    added = ["partition", "offset", "timestamp"]
    if "key" not in record:
        return [*added, *record["value"]]
    return [*added, "key", "value", "headers"]


def _flat(record: Mapping[str, Any]) -> list[Any]:
    added = [record["partition"], record["offset"], record["timestamp"]]
    if "key" not in record:
        return [*added, *record["value"].values()]
    return [*added, record["key"], record["value"], record["headers"] or None]


def _cell(value: object, is_terminal: bool) -> str:
    if isinstance(value, bytes):
        value = text_or_base64(value)
    if isinstance(value, dict | list):
        value = json.dumps(value, default=text_or_base64, ensure_ascii=False)
    text = cell(value)
    is_cut = is_terminal and len(text) > CELL_WIDTH_MAX
    return f"{text[: CELL_WIDTH_MAX - 1]}…" if is_cut else text
