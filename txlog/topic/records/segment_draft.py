"""A segment that is written while its records arrive.

It guards I5 for unfinished drafts: no reader sees a draft's name. On a disk its batches are written
as they fill up, so that a draft takes the memory of one batch a partition; other stores get the
whole segment at the end, and each partition's batches together.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from txlog.storage.capabilities import open_new
from txlog.storage.store import Store
from txlog.topic.records.batch import Segment
from txlog.topic.records.segment import SegmentWriter


class SegmentDraft:
    """One segment being written, for one thread at a time. It must be finished or discarded."""

    def __init__(
        self,
        store: Store,
        path: str,
        schema_id: int,
        *,
        compression: str,
        batch_bytes_max: int,
        require: Callable[[pa.RecordBatch], None] = lambda batch: None,
    ) -> None:
        """`require` raises for records that the topic cannot hold."""
        self.path = path
        self._schema_id = schema_id
        self._require = require
        self._object = open_new(store, path)
        self._writer = SegmentWriter(
            self._object.write,
            compression=compression,
            batch_bytes_max=batch_bytes_max,
            is_ordered=self._object.is_kept_in_memory,
        )
        self.size_bytes = 0
        """Bytes of the records so far, before compression."""

    def add(self, partition: int, batch: pa.RecordBatch) -> None:
        """Records in the topic's physical schema. Raises InvalidRecord, StoreFull, ..."""
        self._require(batch)
        self._writer.add(partition, batch)
        self.size_bytes += batch.nbytes

    def end_batch(self, partition: int) -> None:
        """Later records of that partition are not stored together with those so far."""
        self._writer.flush(partition)

    def finish(self) -> Segment:
        """Durable on return; readers see it only when an append or a marker names it."""
        try:
            parts = self._writer.finish()
            self._object.finish()
        except BaseException:
            self.discard()
            raise
        return Segment(self.path, self._schema_id, parts)

    def discard(self) -> None:
        """Remove it completely."""
        self._object.discard()
