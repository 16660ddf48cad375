"""What a topic may delete by age and size, from its index alone. Pure but for loading chunks.

It guards I12: nothing at or above the last stable offset is named here, and the topic's rules check
it again. As in Kafka whole batches are deleted, oldest first, and nothing after the first that
stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from txlog.topic.index.index import ChunkRef, IndexedBatch
from txlog.topic.state import TopicState
from txlog.topic.topic_log import ChunkContent

Load: TypeAlias = Callable[[ChunkRef], ChunkContent]


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A batch of a partition, or everything that a chunk covers of it."""

    first_offset: int
    next_offset: int
    timestamp_max_ms: int
    length_bytes: int
    inside: ChunkRef | None = None


def expired_log_starts(state: TopicState, load: Load, now_ms: int) -> dict[int, int]:
    """partition -> its log start once everything that is too old, or too much, is deleted.

    Only partitions whose log start rises. Empty if the policy does not include `delete`.
    """
    config = state.config
    if not config.is_deleted:
        return {}
    risen: dict[int, int] = {}
    for partition, bounds in enumerate(state.partitions):
        limit = bounds.log_start
        if config.retention_ms >= 0:
            limit = max(limit, _too_old(state, load, partition, now_ms - config.retention_ms))
        if config.retention_bytes >= 0:
            limit = max(limit, _too_much(state, load, partition, config.retention_bytes))
        limit = min(limit, state.last_stable_offset(partition))
        if limit > bounds.log_start:
            risen[partition] = limit
    return risen


def _too_old(state: TopicState, load: Load, partition: int, oldest_ms: int) -> int:
    """The offset after the last of the oldest batches that have no newer record."""
    limit = state.partitions[partition].log_start
    for stretch in _walk(state, load, partition, lambda s: s.timestamp_max_ms < oldest_ms):
        if stretch.timestamp_max_ms >= oldest_ms:
            break
        limit = max(limit, stretch.next_offset)
    return limit


def _too_much(state: TopicState, load: Load, partition: int, bytes_max: int) -> int:
    """The offset after the batches that can be deleted while at least `bytes_max` stay."""
    limit = state.partitions[partition].log_start
    excess = stored_bytes(state, load, partition) - bytes_max
    spent = 0

    def fits(stretch: _Stretch) -> bool:
        return stretch.length_bytes <= excess - spent

    for stretch in _walk(state, load, partition, fits):
        if not fits(stretch):
            break
        spent += stretch.length_bytes
        limit = max(limit, stretch.next_offset)
    return limit


def stored_bytes(state: TopicState, load: Load, partition: int) -> int:
    """Bytes of a partition's batches that have an offset at or above its log start."""
    log_start = state.partitions[partition].log_start
    whole = _walk(state, load, partition, lambda s: s.first_offset >= log_start)
    return sum(stretch.length_bytes for stretch in whole)


def _walk(
    state: TopicState, load: Load, partition: int, is_whole: Callable[[_Stretch], bool]
) -> Iterator[_Stretch]:
    """The stretches at or above the log start, in order; a chunk is opened unless it `is_whole`."""
    log_start = state.partitions[partition].log_start
    for stretch in _stretches((*state.sealed.roots(), *state.tail), partition, log_start):
        yield from _opened(stretch, load, partition, log_start, is_whole)


def _opened(
    stretch: _Stretch,
    load: Load,
    partition: int,
    log_start: int,
    is_whole: Callable[[_Stretch], bool],
) -> Iterator[_Stretch]:
    if stretch.inside is None or (stretch.first_offset >= log_start and is_whole(stretch)):
        yield stretch
        return
    for part in _stretches(load(stretch.inside), partition, log_start):
        yield from _opened(part, load, partition, log_start, is_whole)


def _stretches(
    parts: Sequence[IndexedBatch | ChunkRef], partition: int, log_start: int
) -> Iterator[_Stretch]:
    for part in parts:
        if isinstance(part, IndexedBatch):
            if part.partition == partition and part.next_offset > log_start:
                yield _Stretch(
                    part.base_offset, part.next_offset, part.timestamp_max_ms, part.length
                )
            continue
        span = part.span(partition)
        if span is not None and span.next_offset > log_start:
            yield _Stretch(
                span.first_offset,
                span.next_offset,
                span.timestamp_max_ms,
                span.length_bytes,
                part,
            )
