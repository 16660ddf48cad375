"""A Spark query's progress, from its checkpoint: which batches it planned and finished."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spark_plugin.checkpoints.checkpoint import Checkpoint
from txlog.coordinator.events import ReplayMark
from txlog.errors import CheckpointConflict, CorruptData

NONE = -1


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """The newest planned and finished batch ids; NONE if there is none."""

    query_id: str
    planned: int
    finished: int
    """The newest batch whose commit Spark has recorded."""

    @property
    def is_in_flight(self) -> bool:
        """Whether a batch has begun and not finished, so that a restart runs it again."""
        return self.planned > self.finished


@dataclass(frozen=True, slots=True)
class NewestBatch:
    """The newest planned batch of a query whose processes were killed or stopped."""

    batch: int
    is_in_flight: bool
    """A restart from this checkpoint runs it again."""
    is_without_records: bool
    """It reads nothing; only the watermark makes it write."""
    is_in_log: bool
    """The log already has it, so that running it again must change nothing."""


def newest_batch(checkpoint: Checkpoint, marks: Iterable[ReplayMark]) -> NewestBatch:
    """The newest batch, judged by the checkpoint and by the log's replay marks."""
    progress = query_progress(checkpoint)
    return NewestBatch(
        progress.planned,
        progress.is_in_flight,
        is_without_records(checkpoint, progress.planned),
        any(m.query_id == progress.query_id and m.batch_id >= progress.planned for m in marks),
    )


def query_progress(checkpoint: Checkpoint) -> QueryProgress:
    """The folder's current state; without a folder the query has not begun."""
    # Finished batches first: a batch that ends between the reads then counts as in flight.
    finished = checkpoint.newest_commit()
    planned = checkpoint.newest_batch()
    return QueryProgress(
        _query_id(checkpoint),
        NONE if planned is None else planned,
        NONE if finished is None else finished,
    )


def is_without_records(checkpoint: Checkpoint, batch: int) -> bool:
    """Whether that planned batch reads nothing: its sources are where the batch before ended."""
    sources = _sources(checkpoint, batch)
    return sources is not None and sources == _sources(checkpoint, batch - 1)


def _sources(checkpoint: Checkpoint, batch: int) -> dict[str, str] | None:
    try:
        return dict(checkpoint.offsets(batch).lines)
    except (CheckpointConflict, CorruptData):
        return None


def _query_id(checkpoint: Checkpoint) -> str:
    try:
        return checkpoint.query_id()
    except (CheckpointConflict, CorruptData):
        return ""
