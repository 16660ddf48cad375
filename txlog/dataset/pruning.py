"""A filter of records, and the batches of the index in which no record can pass it.

Arrow gives no way to take an expression apart, but it can say which parts of a dataset may have
rows for one. So parts of the index are put to it as such: first whole partitions, then smaller and
smaller runs of the batches that may match. It is exact in one direction only: no batch with a
record that passes is left out. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from txlog.errors import UsageError
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.records.conversion import TIMESTAMP_COLUMN, TIMESTAMP_FIELD

INDEXED = ("_topic", "_partition", "_offset", TIMESTAMP_COLUMN)
"""The columns that the index knows of each batch."""

FAN_OUT = 8
"""Parts into which a run is divided. Each costs Arrow 0.2 ms, as much as reading some 100 KB: fewer
take more steps to one batch, more are put in vain where one of them matches."""

IDLE_STEPS_MAX = 2
"""Divisions in a row that exclude nothing, after which a run is divided no more: most filters would
exclude nothing further down either, and at most 2 of its 64 parts at the edges of a range."""


@dataclass(frozen=True, slots=True)
class PartitionBatches:
    """Batches of one partition, in order of offset."""

    topic: str
    partition: int
    batches: Sequence[IndexedBatch]


@dataclass(frozen=True, slots=True)
class _Run:
    """Batches [first, last) of `parts[part]`."""

    part: int
    first: int
    last: int
    idle_steps: int = 0
    """Divisions that led to it and have excluded nothing, one after the other."""

    @property
    def is_done(self) -> bool:
        return self.last - self.first == 1 or self.idle_steps >= IDLE_STEPS_MAX

    def divided(self) -> list[_Run]:
        step = -(-(self.last - self.first) // FAN_OUT)
        firsts = range(self.first, self.last, step)
        return [_Run(self.part, first, min(first + step, self.last)) for first in firsts]


_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')


def names_in(expression: Any, schema: pa.Schema) -> list[str]:
    """The columns that an expression may use, and perhaps some more. Raises UsageError for a column
    by its position, which differs with the columns that are read."""
    # Arrow prints a reference by name as that name; by position, as FieldPath.
    text = str(expression)
    if "FieldPath(" in _TEXT.sub("", text):
        raise UsageError(f"{text:.80} has a column by its position; name the column.")
    return [name for name in schema.names if name in text]


def pruned(
    parts: Sequence[PartitionBatches], expression: Any, schema: pa.Schema
) -> list[PartitionBatches]:
    """The batches that may have records for which the expression is true."""
    if not any(name in INDEXED for name in names_in(expression, schema)):
        return list(parts)
    runs = [_Run(number, 0, len(part.batches)) for number, part in enumerate(parts)]
    runs = _matching(parts, [run for run in runs if run.last], expression, schema)
    done: list[_Run] = []
    while runs:
        done += (run for run in runs if run.is_done)
        families = [(run, run.divided()) for run in runs if not run.is_done]
        children = [child for _, family in families for child in family]
        matching = frozenset(_matching(parts, children, expression, schema))
        runs = []
        for run, family in families:
            left = [child for child in family if child in matching]
            idle_steps = run.idle_steps + 1 if len(left) == len(family) else 0
            runs += (replace(child, idle_steps=idle_steps) for child in left)
    kept: list[PartitionBatches] = []
    for number, found in groupby(sorted(done, key=attrgetter("part", "first")), attrgetter("part")):
        part = parts[number]
        batches = [batch for run in found for batch in part.batches[run.first : run.last]]
        kept.append(PartitionBatches(part.topic, part.partition, batches))
    return kept


def _matching(
    parts: Sequence[PartitionBatches], runs: Sequence[_Run], expression: Any, schema: pa.Schema
) -> list[_Run]:
    form, nowhere = ds.IpcFileFormat(), LocalFileSystem()  # Nothing is opened.
    fragments = [
        form.make_fragment(str(n), nowhere, partition_expression=_known(parts[run.part], run))
        for n, run in enumerate(runs)
    ]
    whole = ds.FileSystemDataset(fragments, schema, form, nowhere)
    return [runs[int(found.path)] for found in whole.get_fragments(filter=expression)]


def _known(part: PartitionBatches, run: _Run) -> Any:
    """What holds for every record of the run."""
    batches = part.batches[run.first : run.last]
    times_ms = (
        min(batch.timestamp_min_ms for batch in batches),
        max(batch.timestamp_max_ms for batch in batches),
    )
    low, high = (pa.scalar(time, TIMESTAMP_FIELD.type) for time in times_ms)
    return (
        (ds.field("_topic") == part.topic)
        & (ds.field("_partition") == part.partition)
        & (ds.field("_offset") >= batches[0].base_offset)
        & (ds.field("_offset") < batches[-1].next_offset)
        & (ds.field(TIMESTAMP_COLUMN) >= low)
        & (ds.field(TIMESTAMP_COLUMN) <= high)
    )
