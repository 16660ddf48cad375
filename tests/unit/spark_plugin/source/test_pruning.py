"""Filters of a `spark.read` leave out partitions and batches, and no row that passes them."""

import operator
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.types import StructType

from spark_plugin.arrow_schema import source_schema
from spark_plugin.option_values import OffsetPoint, OffsetSpec
from spark_plugin.options import ReaderOptions
from spark_plugin.source import batch_reader
from spark_plugin.source.batch_reader import TxlogFilteredReader
from tests.logs.memory_log import MemoryLog

TOPICS = ("a", "b")
PARTITIONS = 2
BATCHES = 3
ROWS = 2
SECOND = timedelta(seconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Row(NamedTuple):
    """What filters can see of a record."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime


@pytest.fixture(scope="module", params=["kafka", "typed"])
def topics(request: pytest.FixtureRequest) -> tuple[MemoryLog, str]:
    """Two topics whose batch n has the timestamps 1000 n and 1000 n + 500 ms; and the prefix of the
    added columns."""
    log = MemoryLog()
    is_kafka = request.param == "kafka"
    schema = None if is_kafka else pa.schema([("offset", pa.int64())])
    producer = log.producer()
    for topic in TOPICS:
        log.admin.create_topic(topic, PARTITIONS, schema)
        for batch in range(BATCHES):
            for partition in range(PARTITIONS):
                for row in range(ROWS):
                    value = b"x" if is_kafka else {"offset": 77}
                    at_ms = 1_000 * batch + 500 * row
                    producer.send(topic, value, partition=partition, timestamp_ms=at_ms)
            producer.flush()
    return log, "" if is_kafka else "_"


def planned(log: MemoryLog, filters: list[Filter]) -> list[tuple[str, int, int]]:
    """The batches that the tasks read: topic, partition and first offset."""
    options = ReaderOptions(
        "memory://log", subscribe=TOPICS, starting_offsets=OffsetSpec(OffsetPoint.EARLIEST)
    )
    columns = source_schema(log.connection.cluster.topic("a").schema())
    reader = TxlogFilteredReader(options, StructType(columns.fields))
    assert list(reader.pushFilters(filters)) == filters, "Spark filters again"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(batch_reader, "open_log", lambda options: log.connection)
        tasks = reader.partitions()
    assert tasks, "a job without a task writes nothing (R1)"
    return [
        (span.topic, span.partition, batch.base_offset)
        for task in tasks
        for span in task.spans
        for batch in span.batches
    ]


def column(name: str, prefix: str) -> tuple[str]:
    return (prefix + name,)


def at(seconds: float) -> datetime:
    return EPOCH + seconds * SECOND


@pytest.mark.parametrize(
    ("name", "build", "expected"),
    [
        ("topic", lambda c: [EqualTo(c, "b")], 6),
        ("topic", lambda c: [In(c, ("b", "none"))], 6),
        ("topic", lambda c: [GreaterThan(c, "b")], 6),
        ("topic", lambda c: [LessThan(c, "a0")], 6),
        ("topic", lambda c: [LessThanOrEqual(c, "a")], 6),
        ("topic", lambda c: [StringStartsWith(c, "b")], 12),
        ("topic", lambda c: [Not(EqualTo(c, "b"))], 12),
        ("topic", lambda c: [EqualTo(c, "none")], 0),
        ("partition", lambda c: [EqualNullSafe(c, 1)], 6),
        ("partition", lambda c: [EqualNullSafe(c, None)], 12),
        ("partition", lambda c: [GreaterThanOrEqual(c, 1), IsNotNull(c)], 6),
        ("offset", lambda c: [GreaterThanOrEqual(c, 4)], 4),
        ("offset", lambda c: [GreaterThan(c, 1), LessThan(c, 4)], 4),
        ("offset", lambda c: [EqualTo(c, 3)], 4),
        ("offset", lambda c: [In(c, (0, 5))], 8),
        ("offset", lambda c: [EqualTo(c, 1_000)], 0),
        ("offset", lambda c: [LessThan(c, -1)], 0),
        ("timestamp", lambda c: [GreaterThanOrEqual(c, at(2))], 4),
        ("timestamp", lambda c: [GreaterThan(c, at(1.5))], 4),
        ("timestamp", lambda c: [LessThanOrEqual(c, at(0.999_999))], 4),
        ("timestamp", lambda c: [EqualTo(c, at(0.25))], 4),
        ("timestamp", lambda c: [EqualTo(c, at(0.75))], 0),
        ("timestamp", lambda c: [EqualTo(c, at(1).replace(tzinfo=None))], 12),
    ],
)
def test_filter_leaves_out_batches_in_which_no_row_passes(
    topics: tuple[MemoryLog, str],
    name: str,
    build: Callable[[tuple[str]], list[Filter]],
    expected: int,
) -> None:
    log, prefix = topics
    assert len(planned(log, build(column(name, prefix)))) == expected


def test_filter_on_another_column_of_that_name_leaves_out_nothing(
    topics: tuple[MemoryLog, str],
) -> None:
    """A typed topic may have a column `offset` of its own; a struct, a field of that name."""
    log, prefix = topics
    other = "offset" if prefix else "_offset"
    assert len(planned(log, [EqualTo((other,), 77)])) == 12
    assert len(planned(log, [EqualTo(("value", prefix + "offset"), 77)])) == 12


_COMPARED: dict[type, Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda value, wanted: value in wanted,
}

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from(["", "a", "aa", "b", "c"]),
    "partition": st.integers(-1, PARTITIONS),
    "offset": st.integers(-1, BATCHES * ROWS),
    "timestamp": st.integers(-1, 3_001).map(lambda ms: EPOCH + timedelta(milliseconds=ms)),
}


@st.composite
def filters(draw: st.DrawFn) -> tuple[str, type, Any]:
    """A column's name, a kind of filter and a value."""
    name = draw(st.sampled_from(sorted(VALUES)))
    kind = draw(st.sampled_from(sorted(_COMPARED, key=lambda kind: kind.__name__)))
    value = VALUES[name]
    return name, kind, tuple(draw(st.lists(value, max_size=3))) if kind is In else draw(value)


@given(drawn=st.lists(filters(), max_size=3))
def test_no_row_that_passes_is_left_out(
    topics: tuple[MemoryLog, str], drawn: list[tuple[str, Any, Any]]
) -> None:
    log, prefix = topics
    given_filters = [kind(column(name, prefix), value) for name, kind, value in drawn]
    batches = planned(log, given_filters)
    read = {row for row in rows() if first_of(row) in batches}
    passing = {
        row
        for row in rows()
        if all(_COMPARED[kind](getattr(row, name), value) for name, kind, value in drawn)
    }
    assert passing <= read


def rows() -> Iterable[Row]:
    for topic in TOPICS:
        for partition in range(PARTITIONS):
            for offset in range(BATCHES * ROWS):
                at_ms = 1_000 * (offset // ROWS) + 500 * (offset % ROWS)
                yield Row(topic, partition, offset, EPOCH + timedelta(milliseconds=at_ms))


def first_of(row: Row) -> tuple[str, int, int]:
    """The batch of a row."""
    return row.topic, row.partition, row.offset // ROWS * ROWS
