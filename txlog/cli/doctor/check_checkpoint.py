"""A Spark checkpoint beside the log: what `txlog doctor --checkpoint` shows.

The comparison is the plugin's (`spark_plugin/checkpoints/checkpoint_story.py`), and needs no
PySpark.
"""

from __future__ import annotations

from collections.abc import Iterator

from spark_plugin.checkpoints.checkpoint import open_checkpoint
from spark_plugin.checkpoints.checkpoint_story import (
    CheckpointStory,
    NextStart,
    PartitionStory,
    tell,
)
from txlog.cli.output.output import Facts, Grid, Section
from txlog.cli.session import Session


def show_checkpoint(session: Session, location: str) -> bool:
    """Compare checkpoint and log; True if the query's next start will succeed."""
    connection, options = session.admin().connection, session.storage_options
    story = tell(connection, open_checkpoint(location, connection.runtime, storage_options=options))
    session.show(_document(story), _sections(story))
    return story.next_start is not NextStart.REFUSED


def _document(story: CheckpointStory) -> dict[str, object]:
    return {
        "ok": story.next_start is not NextStart.REFUSED,
        "checkpoint": story.url,
        "query_id": story.query_id or None,
        "planned_batch": story.planned,
        "finished_batch": story.finished,
        "log_batch": None if story.mark is None else story.mark.batch_id,
        "next_start": str(story.next_start),
        "reason": story.reason,
        "remedy": story.remedy or None,
        "commands": list(story.commands),
        "owners": dict(story.owners or {}),
        "unfinished": list(story.unfinished),
        "partitions": [
            dict(zip(_NAMES, _row(story, part), strict=True)) for part in story.partitions
        ],
    }


_NAMES = (
    "group",
    "topic",
    "partition",
    "batch_start",
    "batch_end",
    "committed",
    "difference",
    "log_end",
)


def _row(story: CheckpointStory, part: PartitionStory) -> tuple[object, ...]:
    expected = part.start if story.next_start is NextStart.REPLAY else part.end
    if story.next_start is NextStart.REFUSED and story.is_replay:
        expected = part.start
    difference = None if part.committed is None else part.difference(expected)
    return (*part.where, part.start, part.end, part.committed, difference, part.log_end)


def _sections(story: CheckpointStory) -> Iterator[Section]:
    mark = None if story.mark is None else story.mark.batch_id
    yield Facts(
        (
            ("Checkpoint", story.url),
            ("Query", story.query_id),
            ("BatchPlanned", story.planned),
            ("BatchFinished", story.finished),
            ("BatchInLog", mark),
            ("Owner", ", ".join(sorted({o for o in (story.owners or {}).values() if o}))),
            ("NextStart", story.next_start),
            ("Reason", story.reason),
        )
    )
    if story.partitions:
        headers = tuple(name.upper().replace("_", "-") for name in _NAMES)
        yield Grid(headers, [_row(story, part) for part in story.partitions])
    if story.unfinished:
        yield Grid(("UNFINISHED",), [(line,) for line in story.unfinished])
    if story.remedy:
        yield Facts((("Remedy", story.remedy),))
    if story.commands:
        yield Grid(("OR PUT THE GROUP BACK WITH",), [(line,) for line in story.commands])
