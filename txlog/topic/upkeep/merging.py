"""Merging small segments under unchanged offsets: readers open fewer objects.

It changes no record and no offset (I2), also not of aborted transactions. Any number of processes
may merge at once: the first to publish exchanges a stretch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from txlog.topic.events import AdvanceCleaner
from txlog.topic.index.index import IndexedBatch
from txlog.topic.index.index_units import Unit, units
from txlog.topic.state import TopicState
from txlog.topic.topic_log import TopicLog
from txlog.topic.upkeep.rewriting import (
    OVERTAKEN,
    everything,
    live_batches,
    publish,
    rewrite,
    selected_parts,
)

SEGMENTS_MIN = 8
"""Merging fewer is not worth the writing: each record is rewritten a few times at most."""


@dataclass(slots=True)
class MergeReport:
    """What one pass over a topic did."""

    segments_before: int = 0
    segments_after: int = 0
    bytes_written: int = 0
    interrupted: str = ""
    """Why it ended early: another process works on the same topic."""


def merge_segments(
    topic: TopicLog, batch_bytes: int, segments_min: int = SEGMENTS_MIN
) -> MergeReport:
    """Merge every run of enough small segments. Raises CorruptData, StoreUnavailable."""
    report = MergeReport()
    state = topic.catch_up(linearizable=True)
    after_slot = state.cleaner.merged_slot
    try:
        while (unit := next_unit(topic, state, after_slot, segments_min)) is not None:
            _merge(topic, state, unit, batch_bytes, report)
            after_slot = unit.last_slot
            state = topic.state
        _note_progress(topic, state)
    except OVERTAKEN as error:
        report.interrupted = error.message
    return report


def next_unit(
    topic: TopicLog, state: TopicState, after_slot: int, segments_min: int = SEGMENTS_MIN
) -> Unit | None:
    """The next run of leaves whose segments are worth merging."""
    found = units(topic, state, after_slot, state.config.segment_bytes, state.sealed_slot)
    return next(
        (u for u in found if len(segments_of(live_batches(u, state))) >= segments_min), None
    )


def segments_of(rows: Sequence[IndexedBatch]) -> set[str]:
    """The segments that contain these batches."""
    return {row.segment for row in rows if row.record_count}


def _merge(
    topic: TopicLog, state: TopicState, unit: Unit, batch_bytes: int, report: MergeReport
) -> None:
    rows = live_batches(unit, state)
    rewritten = rewrite(topic, unit, selected_parts(topic, state, rows, everything), batch_bytes)
    publish(topic, state, rewritten)
    report.segments_before += len(segments_of(rows))
    report.segments_after += len(rewritten.segment_paths)
    report.bytes_written += sum(row.length for row in rewritten.rows)


def _note_progress(topic: TopicLog, state: TopicState) -> None:
    """Only what is below whole nodes is never examined again: newer leaves are still collected."""
    nodes = [ref.last_slot for ref in state.sealed.roots() if ref.level]
    merged = max([state.cleaner.merged_slot, *nodes])
    if merged > state.cleaner.merged_slot:
        checkpoint = replace(state.cleaner, merged_slot=merged)
        topic.execute(AdvanceCleaner(checkpoint, state.config.key_column))
