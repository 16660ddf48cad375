"""Parts of a topic's sealed index that are rewritten together, and the index with a part replaced.

A *unit* is a run of neighbouring leaves below one node, so that one event can exchange it: the leaf
that replaces them, and copies of the nodes above it up to a root. It must not know what is
rewritten, nor why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from txlog.topic.index.index import (
    ChunkKey,
    ChunkRef,
    IndexedBatch,
    chunk_ref,
    encode_batches,
    encode_refs,
    merged_spans,
    spans_of_batches,
)
from txlog.topic.state import TopicState
from txlog.topic.topic_log import TopicLog

ROWS_MAX = 16_384
"""Batches of one unit: the most that its leaf may have, unless a single leaf has more."""

NewChunk: TypeAlias = tuple[ChunkRef, bytes]


@dataclass(frozen=True, slots=True)
class Unit:
    """Neighbouring leaves, with their batches."""

    path: tuple[ChunkRef, ...]
    """Nodes above them, from a root down; empty if they are roots themselves."""
    leaves: tuple[ChunkRef, ...]
    rows: tuple[IndexedBatch, ...]

    @property
    def last_slot(self) -> int:
        """The last slot that it covers."""
        return self.leaves[-1].last_slot

    @property
    def root_keys(self) -> tuple[ChunkKey, ...]:
        """The references in the state that lead to it."""
        return (self.path[0].key,) if self.path else tuple(leaf.key for leaf in self.leaves)


def units(
    topic: TopicLog, state: TopicState, after_slot: int, bytes_max: int, last_slot: int
) -> Iterator[Unit]:
    """Units of leaves above `after_slot` that end at `last_slot` at the latest, oldest first.

    Each has up to `bytes_max` stored bytes and ROWS_MAX batches, and at least one leaf.
    """
    for path, leaves in _siblings(topic, state, state.sealed.roots(), (), after_slot):
        wanted = [leaf for leaf in leaves if after_slot < leaf.last_slot <= last_slot]
        yield from _grouped(topic, state, path, wanted, bytes_max)


def _siblings(
    topic: TopicLog,
    state: TopicState,
    refs: Sequence[ChunkRef],
    path: tuple[ChunkRef, ...],
    after_slot: int,
) -> Iterator[tuple[tuple[ChunkRef, ...], list[ChunkRef]]]:
    """Leaves below the same node, with the nodes above them."""
    for ref in refs:
        if ref.level and ref.last_slot > after_slot:
            below = [part for part in topic.chunk(state, ref) if isinstance(part, ChunkRef)]
            yield from _siblings(topic, state, below, (*path, ref), after_slot)
    leaves = [ref for ref in refs if not ref.level]
    if leaves:
        yield path, leaves


def _grouped(
    topic: TopicLog,
    state: TopicState,
    path: tuple[ChunkRef, ...],
    leaves: Sequence[ChunkRef],
    bytes_max: int,
) -> Iterator[Unit]:
    group: list[ChunkRef] = []
    rows: list[IndexedBatch] = []
    size = 0
    for leaf in leaves:
        found = batches_of(topic, state, leaf)
        length = sum(row.length for row in found)
        if group and (size + length > bytes_max or len(rows) + len(found) > ROWS_MAX):
            yield Unit(path, tuple(group), tuple(rows))
            group, rows, size = [], [], 0
        group.append(leaf)
        rows.extend(found)
        size += length
    if group:
        yield Unit(path, tuple(group), tuple(rows))


def batches_of(topic: TopicLog, state: TopicState, leaf: ChunkRef) -> list[IndexedBatch]:
    """The batches of a leaf."""
    return [part for part in topic.chunk(state, leaf) if isinstance(part, IndexedBatch)]


def rebuilt(
    unit: Unit,
    rows: Sequence[IndexedBatch],
    children: Callable[[ChunkRef], Sequence[ChunkRef]],
    new_name: Callable[[], str],
) -> tuple[tuple[ChunkRef, ...], list[NewChunk]]:
    """The root references that replace the unit's, and the chunks to store before they are used.

    `children` returns the references in a node; without rows nothing replaces the leaves.
    """
    removed = tuple(leaf.key for leaf in unit.leaves)
    added: tuple[ChunkRef, ...] = ()
    chunks: list[NewChunk] = []
    if rows:
        data = encode_batches(rows)
        key = ChunkKey(unit.leaves[0].first_slot, unit.last_slot, new_name())
        added = (chunk_ref(data, key, 0, spans_of_batches(rows)),)
        chunks.append((added[0], data))
    for node in reversed(unit.path):
        refs = _exchanged(children(node), removed, added)
        removed, added = (node.key,), ()
        if refs:
            data = encode_refs(refs)
            key = ChunkKey(refs[0].first_slot, refs[-1].last_slot, new_name())
            added = (chunk_ref(data, key, node.level, merged_spans(refs)),)
            chunks.append((added[0], data))
    return added, chunks


def _exchanged(
    refs: Sequence[ChunkRef], removed: tuple[ChunkKey, ...], added: tuple[ChunkRef, ...]
) -> list[ChunkRef]:
    place = [ref.key for ref in refs].index(removed[0])
    return [*refs[:place], *added, *refs[place + len(removed) :]]
