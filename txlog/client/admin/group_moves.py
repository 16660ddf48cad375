"""How consumer groups moved, by the events of the coordinators' journals.

A process that looks again and again, as the page does at each of its groups, reads each entry once:
the events that move groups are kept, up to MOVES_MAX (I16).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TypeAlias

from txlog.client.admin import transaction_book
from txlog.client.admin.transaction_book import with_events
from txlog.clock import Runtime
from txlog.engine.journal_history import JournalHistory
from txlog.groups.state import (
    UNCHECKED,
    GroupDeleted,
    GroupState,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsEvent,
    OffsetsPended,
    PendingApplied,
    PendingOffset,
)
from txlog.model import TxId
from txlog.stored import stored_form

MOVES_MAX = 40_000
"""Events, and positions in them, that are kept of a log: 12 MB, of 10,000 transactions that each
read one partition."""

_MOVING = (OffsetsPended, PendingApplied, OffsetsCommitted, OffsetsDeleted, GroupDeleted)
_NAMES = {stored_form(kind).name for kind in _MOVING}

_Move: TypeAlias = tuple[int, int, OffsetsEvent]
"""Slot, the time (ms) at which its entry was written, and the event."""


@dataclass(slots=True)
class Line:
    """A group's position in a partition over time; None where it has none, or nothing tells."""

    topic: str
    now: int | None
    steps: list[tuple[int, int | None, int | None]] = field(default_factory=list)
    """(time in ms, position before, position after), in order."""

    def end(self, time_ms: int) -> None:
        """From then on the group has no position here."""
        self.steps.append((time_ms, self.steps[-1][2] if self.steps else None, None))

    def at(self, time_ms: int) -> int | None:
        """The position at that time. Before the first step it is where that step began."""
        if not self.steps:
            return self.now
        passed = bisect_right(self.steps, time_ms, key=lambda step: step[0])
        return self.steps[passed - 1][2] if passed else self.steps[0][1]


@dataclass(slots=True)
class _KeptMoves:
    """The moves of the entries of the slots [first, end)."""

    first: int
    end: int
    moves: list[_Move] = field(default_factory=list)


class GroupMoves:
    """The moves of one log's groups. Safe to use from threads."""

    def __init__(self, runtime: Runtime) -> None:
        self._lock = runtime.new_lock()
        self._kept: dict[str, _KeptMoves] = {}
        """By coordinator."""

    def lines(
        self, group_id: str, group: GroupState, history: JournalHistory, asked: int
    ) -> tuple[dict[tuple[str, int], Line], int]:
        """(topic id, partition) -> the group's line there, from the entries of that slot on, and
        from as many before it as it takes to know where the first steps began. And the slot after
        the last entry of these that cannot be read, if that is above `asked`."""
        first = asked
        while True:
            lines = {
                (committed.topic_id, where.partition): Line(where.topic, committed.offset)
                for where, committed in group.committed.items()
            }
            start, moves = self._since(history, first)
            is_whole = _draw([move for move in moves if move[2].group == group_id], lines)
            oldest = None if is_whole or start > first or first == 0 else history.first_kept()
            if oldest is None or first <= max(
                oldest.slot, history.next_slot - transaction_book.ENTRIES_MAX
            ):
                return lines, max(start, asked)
            first = max(oldest.slot, history.next_slot - 2 * (history.next_slot - first))

    def _since(self, history: JournalHistory, first: int) -> tuple[int, list[_Move]]:
        """The moves of the entries from that slot on, or after the last that cannot be read."""
        end = history.next_slot
        with self._lock:
            kept = self._kept.get(history.name)
            if kept is None or kept.end > end:
                kept = _KeptMoves(end, end)
            start, moves = _read(history, kept.end, end)
            if start > kept.end:
                kept = _KeptMoves(start, end, moves)
            else:
                kept = _KeptMoves(kept.first, end, kept.moves + moves)
            if first < kept.first:
                start, moves = _read(history, first, kept.first)
                kept = _KeptMoves(start, end, moves + kept.moves)
            self._kept[history.name] = kept
            share = MOVES_MAX // len(self._kept)
            self._kept = {name: _newest(each, share) for name, each in self._kept.items()}
        return max(first, kept.first), kept.moves[bisect_left(kept.moves, first, key=_slot_of) :]


_slot_of = itemgetter(0)


def _newest(kept: _KeptMoves, count: int) -> _KeptMoves:
    """So many of its events and positions, of whole entries."""
    for slot, _, event in reversed(kept.moves):
        match event:
            case OffsetsPended():
                count -= 1 + len(event.pending.offsets)
            case OffsetsCommitted():
                count -= 1 + len(event.offsets)
            case _:
                count -= 1
        if count < 0:
            first = slot + 1
            return _KeptMoves(
                first, kept.end, kept.moves[bisect_left(kept.moves, first, key=_slot_of) :]
            )
    return kept


def _read(history: JournalHistory, first: int, end: int) -> tuple[int, list[_Move]]:
    """The moves of these entries, or of those after the last that cannot be read; and from which
    slot on these are."""
    moves: list[_Move] = []
    for slot, entry in enumerate(history.entries(first, end), first):
        events = None
        if entry is not None:
            # Records are with events of transactions.
            events = history.events(replace(with_events(entry, _NAMES), records=b""))
        if entry is None or events is None:
            first, moves = slot + 1, []
        else:
            moves += [(slot, entry.written_at_ms, event) for event in events]
    return first, moves


def _draw(moves: Sequence[_Move], lines: dict[tuple[str, int], Line]) -> bool:
    """Add the steps to the lines, and lines for offsets that were deleted since. It returns whether
    all of them tell where they began."""
    pended: dict[TxId, tuple[PendingOffset, ...]] = {}
    are_known = [_add(event, time_ms, pended, lines) for _, time_ms, event in moves]
    return all(are_known) and not any(
        line.steps and line.steps[0][1] is None for line in lines.values()
    )


def _add(
    event: OffsetsEvent,
    time_ms: int,
    pended: dict[TxId, tuple[PendingOffset, ...]],
    lines: dict[tuple[str, int], Line],
) -> bool:
    """Add what an event of the group tells; returns whether that is known."""
    offsets: Sequence[PendingOffset] = ()
    is_known = True
    match event:
        case OffsetsPended():
            pended[event.tx_id] = event.pending.offsets
        case OffsetsCommitted():
            offsets = event.offsets
        case PendingApplied():
            is_known = event.tx_id in pended
            offsets = pended.pop(event.tx_id, ())
        case GroupDeleted():
            for each in lines.values():
                each.end(time_ms)
        case OffsetsDeleted():
            ended = [
                each for key, each in lines.items() if (each.topic, key[1]) in event.partitions
            ]
            is_known = len(ended) >= len(event.partitions)
            for each in ended:
                each.end(time_ms)
    for offset in offsets:
        line = lines.setdefault((offset.topic_id, offset.partition), Line(offset.topic, None))
        before = None if offset.start == UNCHECKED else offset.start
        line.steps.append((time_ms, before, offset.end))
    return is_known
