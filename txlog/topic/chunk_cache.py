"""What one process keeps of a topic's index chunks and manifests, once they are read and decoded.

Keeps I16: the memory that the chunks of a long topic take is limited. Neither ever changes, so
what is kept is never wrong. It must not know how a chunk is read.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

CHUNKS_CACHED_MAX = 256
"""Chunks of a topic that a process keeps decoded: the newest of a topic without merging, as one
chunk covers 64 slots. With fewer, readers at different places of the log request the same chunks
again; the memory that more of them take is limited by CHUNK_ROWS_CACHED_MAX."""

CHUNK_ROWS_CACHED_MAX = 65_536
"""Rows of these chunks: 65,536 take 40 MB, 615 bytes each (I16). A merged chunk has up to 16,384
rows, so that 256 of them would take 2.6 GB; with fewer than one chunk's rows every lookup would
request its chunk again."""

T = TypeVar("T")


class ChunkCache(Generic[T]):
    """The values of the chunks that were used last. Safe to use from threads."""

    def __init__(self, row_count: Callable[[T], int]) -> None:
        """`row_count` returns how many rows a value holds."""
        self._row_count = row_count
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._rows = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of a chunk, which `make` returns if it is not kept."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        # Made without the lock, so that no other thread waits for a request. Chunks never change:
        # two threads that read one chunk store the same content.
        made = make()
        with self._lock:
            self._keep(key, made)
        return made

    def _keep(self, key: Hashable, value: T) -> None:
        """Keep the value, and drop the oldest beyond the limits, but never this one."""
        if key not in self._values:
            self._rows += self._row_count(value)
        self._values[key] = value
        while len(self._values) > 1 and (
            len(self._values) > CHUNKS_CACHED_MAX or self._rows > CHUNK_ROWS_CACHED_MAX
        ):
            _, oldest = self._values.popitem(last=False)
            self._rows -= self._row_count(oldest)
