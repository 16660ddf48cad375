"""Groups of leaves of a topic's sealed index: what merging and compaction rewrite and replace.

A *leaf group* is a run of neighbouring leaves below one node. One event replaces it: by one leaf,
and by copies of the nodes above the leaf up to a root. This module must not know what is
rewritten, nor why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from txlog.topic.batch_index import (
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
"""Batches of one group, and so of the leaf that replaces it, unless a single leaf has more: 10 MB
in memory, and 4 MB in the store. Smaller leaves make the index deeper; a reader of one batch reads
a whole leaf."""

NewChunk: TypeAlias = tuple[ChunkRef, bytes]


@dataclass(frozen=True, slots=True)
class LeafGroup:
    """Neighbouring leaves with their batches."""

    path: tuple[ChunkRef, ...]
    """Nodes above the leaves, from a root down; empty if the leaves are roots."""
    leaves: tuple[ChunkRef, ...]
    rows: tuple[IndexedBatch, ...]

    @property
    def last_slot(self) -> int:
        """The last slot that the group covers."""
        return self.leaves[-1].last_slot

    @property
    def root_keys(self) -> tuple[ChunkKey, ...]:
        """The references in the state that lead to the group."""
        return (self.path[0].key,) if self.path else tuple(leaf.key for leaf in self.leaves)


def leaf_groups(
    topic: TopicLog, state: TopicState, after_slot: int, bytes_max: int, last_slot: int
) -> Iterator[LeafGroup]:
    """Groups of the leaves above `after_slot` and up to `last_slot`, oldest first.

    Each has at least one leaf, and at most `bytes_max` stored bytes and ROWS_MAX batches.
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
    """The leaves below each node, with the nodes above them."""
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
) -> Iterator[LeafGroup]:
    refs: list[ChunkRef] = []
    rows: list[IndexedBatch] = []
    size = 0
    for leaf in leaves:
        found = batches_of(topic, state, leaf)
        length = sum(row.length for row in found)
        if refs and (size + length > bytes_max or len(rows) + len(found) > ROWS_MAX):
            yield LeafGroup(path, tuple(refs), tuple(rows))
            refs, rows, size = [], [], 0
        refs.append(leaf)
        rows.extend(found)
        size += length
    if refs:
        yield LeafGroup(path, tuple(refs), tuple(rows))


def batches_of(topic: TopicLog, state: TopicState, leaf: ChunkRef) -> list[IndexedBatch]:
    """The batches of a leaf, and of the manifests that it names: what is rewritten needs none."""
    rows = (part for part in topic.chunk(state, leaf) if isinstance(part, IndexedBatch))
    return [batch for row in rows for batch in topic.unfolded(state, row)]


def rebuilt(
    group: LeafGroup,
    rows: Sequence[IndexedBatch],
    children: Callable[[ChunkRef], Sequence[ChunkRef]],
    new_name: Callable[[], str],
) -> tuple[tuple[ChunkRef, ...], list[NewChunk]]:
    """The root references that replace the group's, and the new chunks, which must be stored first.

    `children` returns the references in a node. Without rows the leaves are removed.
    """
    removed = tuple(leaf.key for leaf in group.leaves)
    added: tuple[ChunkRef, ...] = ()
    chunks: list[NewChunk] = []
    if rows:
        data = encode_batches(rows)
        # A new name, since a chunk never changes: older states and snapshots refer to the old one.
        key = ChunkKey(group.leaves[0].first_slot, group.last_slot, new_name())
        added = (chunk_ref(data, key, 0, spans_of_batches(rows)),)
        chunks.append((added[0], data))
    for node in reversed(group.path):
        refs = [*children(node)]
        at = [ref.key for ref in refs].index(removed[0])
        refs[at : at + len(removed)] = added
        removed, added = (node.key,), ()
        # A node without a reference is removed, like leaves without batches.
        if refs:
            data = encode_refs(refs)
            key = ChunkKey(refs[0].first_slot, refs[-1].last_slot, new_name())
            added = (chunk_ref(data, key, node.level, merged_spans(refs)),)
            chunks.append((added[0], data))
    return added, chunks
