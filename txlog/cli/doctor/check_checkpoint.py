"""A Spark checkpoint compared with the log, for `txlog doctor --checkpoint`.

The comparison is the plugin's (`spark_plugin/checkpoints/checkpoint_comparison.py`), and needs no
PySpark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spark_plugin.checkpoints.checkpoint import open_checkpoint
from spark_plugin.checkpoints.checkpoint_comparison import (
    CheckpointComparison,
    NextStart,
    PartitionComparison,
    compare,
)
from txlog.cli.output.output import Facts, Grid, Section, grid_of
from txlog.cli.session import Session


def show_checkpoint(session: Session, location: str) -> bool:
    """Compare checkpoint and log; True if the query's next start will succeed."""
    connection, options = session.admin().connection, session.storage_options
    comparison = compare(
        connection, open_checkpoint(location, connection.runtime, storage_options=options)
    )
    document = _document(comparison)
    session.show(document, _sections(comparison, document["partitions"]))
    return comparison.next_start is not NextStart.REFUSED


def _document(comparison: CheckpointComparison) -> dict[str, Any]:
    return {
        "ok": comparison.next_start is not NextStart.REFUSED,
        "checkpoint": comparison.url,
        "query_id": comparison.query_id or None,
        "batch_planned": comparison.planned,
        "batch_finished": comparison.finished,
        "batch_in_log": None if comparison.mark is None else comparison.mark.batch_id,
        "next_start": str(comparison.next_start),
        "reason": comparison.reason,
        "remedy": comparison.remedy or None,
        "commands": list(comparison.commands),
        "owners": dict(comparison.owners or {}),
        "unfinished": list(comparison.unfinished),
        "partitions": [
            dict(zip(_NAMES, _row(comparison, part), strict=True)) for part in comparison.partitions
        ],
    }


_NAMES = (
    "group",
    "topic",
    "partition",
    "batch_start",
    "batch_end",
    "current_offset",
    "difference",
    "log_end_offset",
)


def _row(comparison: CheckpointComparison, part: PartitionComparison) -> tuple[object, ...]:
    difference = None if part.committed is None else comparison.difference(part)
    return (*part.where, part.start, part.end, part.committed, difference, part.log_end)


def _sections(
    comparison: CheckpointComparison, partitions: Sequence[Mapping[str, object]]
) -> Iterator[Section]:
    mark = None if comparison.mark is None else comparison.mark.batch_id
    yield Facts(
        (
            ("Checkpoint", comparison.url),
            ("QueryId", comparison.query_id),
            ("BatchPlanned", comparison.planned),
            ("BatchFinished", comparison.finished),
            ("BatchInLog", mark),
            ("Owner", ", ".join(sorted({o for o in (comparison.owners or {}).values() if o}))),
            ("NextStart", comparison.next_start),
            ("Reason", comparison.reason),
        )
    )
    if partitions:
        yield grid_of(partitions, _NAMES)
    if comparison.unfinished:
        yield Grid(("UNFINISHED",), [(line,) for line in comparison.unfinished])
    if comparison.remedy:
        yield Facts((("Remedy", comparison.remedy),))
    if comparison.commands:
        yield Grid(("OR PUT THE GROUP BACK WITH",), [(line,) for line in comparison.commands])
