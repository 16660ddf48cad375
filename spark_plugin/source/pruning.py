"""Filters of a `spark.read`: the partitions, offsets and batches in which no row can pass them.

Spark filters the rows again, so only one direction matters: nothing that may pass is left out.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from spark_plugin.source.offsets import PartitionRange
from txlog.model import TopicPartition
from txlog.topic.batch_index import IndexedBatch

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS: dict[str, type] = {"topic": str, "partition": int, "offset": int, "timestamp": datetime}
"""Column, without the underscore that it has in a typed topic -> the type of its values."""

Interval: TypeAlias = tuple[Any, Any]
"""The least and the greatest value, or None for no limit."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A column's value is in one of these intervals."""

    column: str
    intervals: tuple[Interval, ...]

    def may_hold(self, low: Any, high: Any) -> bool:
        """Whether a value from `low` to `high` may be in one of them."""
        return any(
            (first is None or first <= high) and (last is None or last >= low)
            for first, last in self.intervals
        )


class Pruning:
    """Conditions that every row of a DataFrame meets, on the columns that the source adds."""

    def __init__(self, filters: Iterable[Filter]) -> None:
        self._conditions = [found for f in filters if (found := _condition(f)) is not None]

    def range_of(
        self, where: TopicPartition, given: PartitionRange, *, is_kafka: bool
    ) -> PartitionRange:
        """The part of a partition's range that may have rows. `is_kafka`: the topic's shape."""
        prefix = _prefix(is_kafka)
        named = {f"{prefix}topic": where.topic, f"{prefix}partition": where.partition}
        start, end = given
        for condition in self._conditions:
            if condition.column in named:
                value = named[condition.column]
                end = end if condition.may_hold(value, value) else start
            elif condition.column == f"{prefix}offset":
                lows = [low for low, _ in condition.intervals]
                highs = [high for _, high in condition.intervals]
                start = start if None in lows else max(start, min(lows))
                end = end if None in highs else min(end, max(highs) + 1)
        return PartitionRange(start, max(start, end))

    def may_have(self, batch: IndexedBatch, *, is_kafka: bool) -> bool:
        """Whether a batch may have rows, by its offsets and timestamps."""
        prefix = _prefix(is_kafka)
        extents = {
            f"{prefix}offset": (batch.base_offset, batch.next_offset - 1),
            f"{prefix}timestamp": (batch.timestamp_min_ms * 1_000, batch.timestamp_max_ms * 1_000),
        }
        return all(
            condition.may_hold(*extents[condition.column])
            for condition in self._conditions
            if condition.column in extents
        )


def _prefix(is_kafka: bool) -> str:
    return "" if is_kafka else "_"


def _condition(given: Filter) -> Condition | None:
    """The condition; None for another column or kind of filter, or a value of another type."""
    # The field of a struct has a longer path, and a Not has none.
    column = ".".join(getattr(given, "attribute", ()))
    kind = _KINDS.get(column.removeprefix("_"))
    if kind is None:
        return None
    value: Any = getattr(given, "value", None)
    values = list(value) if isinstance(given, In) else [value]
    # A time without a zone cannot be compared with an instant.
    if not values or not all(
        isinstance(one, kind) and getattr(one, "tzinfo", UTC) is not None for one in values
    ):
        return None
    if kind is datetime:
        values = [(moment - _EPOCH) // timedelta(microseconds=1) for moment in values]
    match given:
        case EqualTo() | EqualNullSafe() | In():
            return Condition(column, tuple((value, value) for value in values))
        case GreaterThanOrEqual():
            return Condition(column, ((values[0], None),))
        case LessThanOrEqual():
            return Condition(column, ((None, values[0]),))
        case GreaterThan():
            return Condition(column, ((_after(values[0], 1), None),))
        case LessThan():
            return Condition(column, ((None, _after(values[0], -1)),))
    return None


def _after(value: Any, step: int) -> Any:
    """The next number; of a text, itself, which is wider than it must be."""
    return value if isinstance(value, str) else value + step
