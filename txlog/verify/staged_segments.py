"""What is wrong with the segments that a decision or an index names, also by manifests.

It only reads; `log_audit.py`, `invariants.py` and `facts/topic_facts.py` report what it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa

from txlog.errors import CorruptData
from txlog.layout import JournalLayout, is_entry, is_manifest
from txlog.storage.store import Store
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.manifest import Manifest, decoded, listed_segments
from txlog.topic.records.batch import Segment
from txlog.topic.records.schema import physical_schema
from txlog.topic.records.segment_reader import segment_problem


def _all_rows(manifest: Manifest, segment: Segment) -> Iterable[IndexedBatch]:
    manifest.require_named(segment)
    return manifest.rows


def staged_problems(
    store: Store,
    layout: JournalLayout,
    segments: Iterable[Segment],
    rows_of: Callable[[Manifest, Segment], Iterable[IndexedBatch]] = _all_rows,
    schemas: Mapping[int, pa.Schema] | None = None,
) -> Iterator[tuple[str, str]]:
    """Each object that the segments need, of a topic with that layout, and its problem: "" if it is
    whole.

    `rows_of` chooses the rows of a manifest that are needed, by default all that a decision names.
    Batches in entries are
    decoded if the topic's `schemas` are given.
    """
    for segment in segments:
        named = [segment]
        if is_manifest(segment.path):
            try:
                manifest = _read(store, layout, segment)
                named = listed_segments(rows_of(manifest, segment))
            except CorruptData as error:
                yield segment.path, error.message
                continue
        for one in named:
            known = schemas.get(one.schema_id) if schemas and is_entry(one.path) else None
            schema = None if known is None else physical_schema(known)
            yield one.path, segment_problem(store, one.path, one.batches, schema)


def _read(store: Store, layout: JournalLayout, segment: Segment) -> Manifest:
    data = store.get(segment.path)
    if data is None:
        raise CorruptData(f"{segment.path} is missing, and the log refers to this manifest")
    return decoded(data, segment.path, segment.batches[0].crc32, layout)
