"""The newest offset of every key, by partition: what compaction keeps in memory.

Keys are compared as Arrow values, never as hashes, so that different keys are never confused. Pure.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_GATHER_ROWS = 200_000
"""Rows that are collected before they are reduced to one a key."""


class NewestKeys:
    """The keys met so far, and the last offset of each."""

    def __init__(self) -> None:
        self._tables: dict[int, pa.Table] = {}
        self._gathered: dict[int, list[pa.Table]] = {}

    def __len__(self) -> int:
        """Keys, over all partitions."""
        for partition in list(self._gathered):
            self._reduce(partition)
        return sum(table.num_rows for table in self._tables.values())

    def add(self, partition: int, keys: pa.Array, offsets: npt.NDArray[np.int64]) -> None:
        """Add records of that partition; those without a key are ignored."""
        table = pa.table({"key": keys, "offset": pa.array(offsets)})
        gathered = self._gathered.setdefault(partition, [])
        gathered.append(table.filter(table["key"].is_valid()))
        if sum(part.num_rows for part in gathered) >= _GATHER_ROWS:
            self._reduce(partition)

    def is_newest(
        self, partition: int, keys: pa.Array, offsets: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Which of these records have no known later one with the same key.

        A record without a key is never superseded.
        """
        self._reduce(partition)
        table = self._tables.get(partition)
        if table is None or not len(keys):
            return np.ones(len(keys), dtype=bool)
        # Imported here: it takes as long as the rest of pyarrow, and only compaction needs it.
        import pyarrow.compute as pc

        places = pc.index_in(keys, value_set=table["key"].combine_chunks())
        latest = table["offset"].take(places).fill_null(-1)
        return np.asarray(offsets >= np.asarray(latest))

    def _reduce(self, partition: int) -> None:
        gathered = self._gathered.pop(partition, [])
        if not gathered:
            return
        known = self._tables.get(partition)
        merged = pa.concat_tables([known, *gathered] if known is not None else gathered)
        reduced = merged.group_by("key").aggregate([("offset", "max")])
        self._tables[partition] = pa.table(
            {"key": reduced["key"], "offset": reduced["offset_max"]}
        ).combine_chunks()
