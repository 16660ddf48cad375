"""Which records of a topic retention may delete, by age and size, from its index alone.

Keeps I12: the result never exceeds the last stable offset, which the topic's rules check again. As
in Kafka whole batches are deleted, oldest first, and none after the first that stays. Pure, except
that chunks are loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from txlog.topic.batch_index import ChunkKey, ChunkRef, IndexedBatch, PartitionSpan, span_of
from txlog.topic.state import TopicState
from txlog.topic.topic_log import ChunkContent

Load: TypeAlias = Callable[[ChunkRef], ChunkContent]


_Part: TypeAlias = tuple[IndexedBatch | ChunkRef, PartitionSpan]
"""A batch or a chunk, and what it covers of one partition."""

_PartsByPartition: TypeAlias = Mapping[int, Sequence[_Part]]


@dataclass(slots=True)
class _Index:
    """The index by partition. Each chunk is divided once, however many partitions are walked."""

    load: Load
    roots: _PartsByPartition
    loaded: dict[ChunkKey, _PartsByPartition] = field(default_factory=dict)

    def below(self, ref: ChunkRef) -> _PartsByPartition:
        """The parts of a chunk."""
        if ref.key not in self.loaded:
            self.loaded[ref.key] = _by_partition(self.load(ref))
        return self.loaded[ref.key]


def _by_partition(parts: Iterable[IndexedBatch | ChunkRef]) -> _PartsByPartition:
    found: dict[int, list[_Part]] = {}
    for part in parts:
        for span in part.spans if isinstance(part, ChunkRef) else (span_of(part),):
            found.setdefault(span.partition, []).append((part, span))
    return found


def expired_log_starts(state: TopicState, load: Load, now_ms: int) -> dict[int, int]:
    """partition -> its log start once all that exceeds the age or the size is deleted.

    Only partitions whose log start rises are in it; none if `cleanup.policy` lacks `delete`.
    """
    config = state.config
    if not config.is_deleted:
        return {}
    index = _index(state, load)
    risen: dict[int, int] = {}
    for partition, bounds in enumerate(state.partitions):
        limit = bounds.log_start
        if config.retention_ms >= 0:
            limit = max(limit, _too_old(state, index, partition, now_ms - config.retention_ms))
        if config.retention_bytes >= 0:
            limit = max(limit, _too_much(state, index, partition, config.retention_bytes))
        limit = min(limit, state.last_stable_offset(partition))
        if limit > bounds.log_start:
            risen[partition] = limit
    return risen


def stored_bytes(state: TopicState, load: Load) -> list[int]:
    """Bytes of each partition's batches that have an offset at or above its log start."""
    index = _index(state, load)
    return [_stored_bytes(state, index, partition) for partition in range(len(state.partitions))]


def _index(state: TopicState, load: Load) -> _Index:
    return _Index(load, _by_partition((*state.sealed.roots(), *state.tail)))


def _too_old(state: TopicState, index: _Index, partition: int, oldest_ms: int) -> int:
    """The offset after the oldest batches in which every record is older than `oldest_ms`."""
    limit = state.partitions[partition].log_start
    for span in _walk(state, index, partition, lambda s: s.timestamp_max_ms < oldest_ms):
        if span.timestamp_max_ms >= oldest_ms:
            break
        limit = max(limit, span.next_offset)
    return limit


def _too_much(state: TopicState, index: _Index, partition: int, bytes_max: int) -> int:
    """The offset after the batches that can be deleted while at least `bytes_max` stay."""
    limit = state.partitions[partition].log_start
    excess = _stored_bytes(state, index, partition) - bytes_max
    spent = 0

    # Called during the walk: `spent` counts the spans before this one.
    def fits(span: PartitionSpan) -> bool:
        return span.length_bytes <= excess - spent

    for span in _walk(state, index, partition, fits):
        if not fits(span):
            break
        spent += span.length_bytes
        limit = max(limit, span.next_offset)
    return limit


def _stored_bytes(state: TopicState, index: _Index, partition: int) -> int:
    log_start = state.partitions[partition].log_start
    whole = _walk(state, index, partition, lambda span: span.first_offset >= log_start)
    return sum(span.length_bytes for span in whole)


def _walk(
    state: TopicState,
    index: _Index,
    partition: int,
    is_whole: Callable[[PartitionSpan], bool],
) -> Iterator[PartitionSpan]:
    """The spans of batches and chunks at or above the log start, in order. A chunk is loaded, and
    its parts are walked, unless it lies above the log start and `is_whole`."""
    log_start = state.partitions[partition].log_start

    def opened(parts: Iterable[_Part]) -> Iterator[PartitionSpan]:
        for part, span in parts:
            if span.next_offset <= log_start:
                continue
            if isinstance(part, IndexedBatch) or (
                span.first_offset >= log_start and is_whole(span)
            ):
                yield span
            else:
                yield from opened(index.below(part).get(partition, ()))

    yield from opened(index.roots.get(partition, ()))
