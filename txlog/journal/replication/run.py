"""A run of entries: read, and not believed before the boundary was read after it (rule R15).

It guards that a lagging replica holds a limited number of entries (I16). It must not know the
store.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from txlog.journal.entry import Entry

RUN_ENTRIES_MAX = 1_000
"""A run with this many entries is full: it is applied, and another one begins."""

RUN_BYTES_MAX = 16 << 20
"""The same in bytes, as stored. A run may exceed either limit by one fetch."""


@dataclass(slots=True)
class Run:
    """Consecutive entries, each with its CRC32."""

    entries: list[tuple[Entry, int]] = field(default_factory=list)
    size_bytes: int = 0

    def add(self, entry: tuple[Entry, int], size_bytes: int) -> None:
        """Append one entry."""
        self.entries.append(entry)
        self.size_bytes += size_bytes

    @property
    def is_full(self) -> bool:
        """Whether it ended because of its size: there may be more entries."""
        return len(self.entries) >= RUN_ENTRIES_MAX or self.size_bytes >= RUN_BYTES_MAX
