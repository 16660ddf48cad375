"""Merging small segments under unchanged offsets, so that readers open fewer objects.

It changes no record and no offset (I2), not even of aborted transactions. Any number of processes
may merge at once: the first to publish replaces a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from txlog.topic.batch_index import IndexedBatch
from txlog.topic.events import AdvanceCleaner, CleanerCheckpoint
from txlog.topic.state import TopicState
from txlog.topic.topic_log import TopicLog
from txlog.topic.upkeep.leaf_groups import LeafGroup, leaf_groups
from txlog.topic.upkeep.rewriting import (
    OVERTAKEN,
    kept_batches,
    live_batches,
    publish,
    rewrite,
    select_all,
)

SEGMENTS_MIN = 8
"""Merging fewer is not worth the writing. With so many, a record is rewritten a few times only:
each merge makes its segment eight times as large, until it has `segment.bytes`."""


@dataclass(slots=True)
class MergeReport:
    """The result of one pass over a topic."""

    segments_before: int = 0
    segments_after: int = 0
    bytes_written: int = 0
    interrupted: str = ""
    """Why the pass ended early: another process works on the same topic. Else empty."""


def merge_segments(
    topic: TopicLog, batch_bytes: int, segments_min: int = SEGMENTS_MIN
) -> MergeReport:
    """Merge every run of enough small segments. Raises CorruptData, StoreUnavailable."""
    report = MergeReport()
    state = topic.catch_up(linearizable=True)
    after_slot = state.cleaner.merged_slot
    try:
        while (group := next_group(topic, state, after_slot, segments_min)) is not None:
            _merge(topic, state, group, batch_bytes, report)
            after_slot = group.last_slot
            state = topic.state
        _note_progress(topic, state)
    except OVERTAKEN as error:
        report.interrupted = error.message
    return report


def next_group(
    topic: TopicLog, state: TopicState, after_slot: int, segments_min: int = SEGMENTS_MIN
) -> LeafGroup | None:
    """The next group whose segments are worth merging."""
    found = leaf_groups(topic, state, after_slot, state.config.segment_bytes, state.sealed_slot)
    return next(
        (u for u in found if len(segments_of(live_batches(u, state))) >= segments_min), None
    )


def segments_of(rows: Sequence[IndexedBatch]) -> set[str]:
    """The segments that contain these batches."""
    return {row.segment for row in rows if row.record_count}


def _merge(
    topic: TopicLog, state: TopicState, group: LeafGroup, batch_bytes: int, report: MergeReport
) -> None:
    rows = live_batches(group, state)
    rewritten = rewrite(topic, group, kept_batches(topic, state, rows, select_all), batch_bytes)
    publish(topic, state, rewritten)
    report.segments_before += len(segments_of(rows))
    report.segments_after += len(rewritten.segment_paths)
    report.bytes_written += sum(row.length for row in rewritten.rows)


def _note_progress(topic: TopicLog, state: TopicState) -> None:
    """Record how far no later pass needs to look: up to the last packed node. Leaves above it may
    still form larger groups."""
    nodes = [ref.last_slot for ref in state.sealed.roots() if ref.level]
    merged = max([state.cleaner.merged_slot, *nodes])
    if merged > state.cleaner.merged_slot:
        topic.execute(AdvanceCleaner(CleanerCheckpoint(merged_slot=merged)))
