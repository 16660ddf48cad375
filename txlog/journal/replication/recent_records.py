"""Records in entries that this process has lately read or written, so that its readers need not
request them again. Only a short cut: a reader compares their checksums."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from txlog.journal.entry import RECORDS_START
from txlog.storage.store import ByteRange

BYTES_MAX = 32 << 20
"""Memory of the records that a process keeps (I16): the 64 newest entries of eight journals, if
each holds 64 KB. What a reader misses here it requests from the store."""


class RecentRecords:
    """The records of one process's newest entries, of all journals. Safe to use from threads."""

    def __init__(
        self, lock: AbstractContextManager[object] | None = None, bytes_max: int = BYTES_MAX
    ) -> None:
        self._lock = lock or nullcontext()
        self._bytes_max = bytes_max
        self._records: dict[str, bytes] = {}
        self._size = 0

    def add(self, path: str, records: bytes) -> None:
        """Keep the records of the entry at `path`; the oldest make room."""
        with self._lock:
            self._size += len(records) - len(self._records.pop(path, b""))
            self._records[path] = records
            while self._size > self._bytes_max:
                self._size -= len(self._records.pop(next(iter(self._records))))

    def ranges(self, path: str, wanted: Sequence[ByteRange]) -> list[memoryview] | None:
        """These bytes of the entry's object, or None if they are not all here."""
        with self._lock:
            records = self._records.get(path, b"")
        view = memoryview(records)
        found = [view[max(r.start - RECORDS_START, 0) :][: r.length] for r in wanted]
        is_whole = all(
            r.start >= RECORDS_START and len(part) == r.length
            for r, part in zip(wanted, found, strict=True)
        )
        return found if records and is_whole else None
