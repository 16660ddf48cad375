"""A journal's kept entries by the time at which they were written, by the clocks of their writers.

Entries that were pruned have no time any more: what they said of a moment is not known. It reads
entries that this process has read before, so they count, and it must not know what they mean. One
that is damaged need not hide the others (`on_error`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from txlog.errors import OffsetOutOfRange, TxlogError
from txlog.fan_out import FanOut, OnError, unless_unread
from txlog.journal.entry import Entry, decode_own_entry
from txlog.journal.machine import Machine, decoded_events
from txlog.layout import JournalLayout
from txlog.storage.store import Store

T = TypeVar("T")

ENTRIES_AT_ONCE = 32
"""Entries that are read in parallel: as many as a process has threads (`ThreadFanOut`)."""


@dataclass(slots=True)
class JournalHistory:
    """The entries below `next_slot` of one journal."""

    kind: str
    """"topic" or "coordinator","""
    name: str
    """and which: the journal as errors name it."""
    store: Store
    layout: JournalLayout
    machine: Machine[Any]
    next_slot: int
    fan_out: FanOut
    on_error: OnError | None = None
    """Is told of an entry that cannot be read, which then counts as one that is pruned."""
    unread: list[int] = field(default_factory=list)
    """Slots of such entries."""
    _searched: dict[int, Entry | None] = field(default_factory=dict)
    """What searches have read: those of several moments begin with the same entries."""

    def entry(self, slot: int) -> Entry | None:
        """The entry of that slot; None if it is pruned. One request. Raises CorruptData, and the
        store's errors."""
        return self._unless_unread(slot, partial(self._read, slot))

    def events(self, entry: Entry) -> Sequence[Any] | None:
        """The events of an entry; None if they cannot be read. Raises CorruptData."""
        path = self.layout.entry(entry.slot)
        return self._unless_unread(
            entry.slot, lambda: tuple(decoded_events(self.machine, entry, path))
        )

    def _read(self, slot: int) -> Entry | None:
        data = self.store.get(self.layout.entry(slot))
        return None if data is None else decode_own_entry(data, self.layout, slot)[0]

    def _unless_unread(self, slot: int, call: Callable[[], T]) -> T | None:
        on_error = self.on_error

        def note(kind: str, name: str, error: TxlogError) -> None:
            self.unread.append(slot)
            if on_error is not None:
                on_error(kind, name, error)

        return unless_unread(on_error and note, self.kind, self.name, call)()

    def entries(self, first: int, end: int) -> Iterator[Entry | None]:
        """The entries of the slots from `first` up to `end`, without it; None for a pruned one."""
        slots = iter(range(first, min(end, self.next_slot)))
        while asked := [partial(self.entry, slot) for slot in islice(slots, ENTRIES_AT_ONCE)]:
            yield from self.fan_out.run_all(asked)

    def count_at(self, time_ms: int) -> int | None:
        """How many entries the journal had at that time; None if the last of them is pruned.

        Each step reads one entry, and which ones does not depend on entries that are added later.
        Where clocks disagree it is one of the slots between an entry of that time or earlier and a
        later one.
        """
        count = 0
        for step in reversed([1 << bit for bit in range(self.next_slot.bit_length())]):
            if count + step <= self.next_slot:
                entry = self._entry_again(count + step - 1)
                # A pruned entry is older than all that are not.
                if entry is None or entry.written_at_ms <= time_ms:
                    count += step
        return None if count and self._entry_again(count - 1) is None else count

    def slot_at(self, time_ms: int) -> int:
        """As `count_at`. Raises OffsetOutOfRange if the last of these entries is pruned."""
        count = self.count_at(time_ms)
        if count is not None:
            return count
        oldest = self.first_kept()
        raise OffsetOutOfRange(
            f"the journal of {self.kind} {self.name!r} does not reach back to {time_ms} ms: its "
            "entries were pruned"
            + (
                f" up to number {oldest.slot - 1}, and the next one is of {oldest.written_at_ms} ms"
                if oldest
                else ""
            )
            + ". Name a later moment, or end at offsets.",
            time_ms=time_ms,
        )

    def first_kept(self) -> Entry | None:
        """The oldest entry that is not pruned, as far as searches tell."""
        low, high = 0, self.next_slot
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._entry_again(middle) is None else (low, middle)
        return self._entry_again(low) if low < self.next_slot else None

    def _entry_again(self, slot: int) -> Entry | None:
        if slot not in self._searched:
            self._searched[slot] = self.entry(slot)
        return self._searched[slot]
