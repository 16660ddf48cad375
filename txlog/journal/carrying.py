"""When a writer of a far journal leaves its command to a carrier, and when it carries. Pure.

Of many processes that write to one topic each would lose its slot nine times in ten. So one that
wins a slot after it lost one carries: it goes on writing, at once after each entry, what it finds
decided for this topic in the coordinators' journals, and its entries say so. A process that sees
such an entry waits a moment instead of trying for a slot, if a carrier finds its command without
it. Nothing rests on it: put-if-absent alone decides, a carrier that died costs a moment, and clocks
only choose between to wait and to try (I14). It must not know what is carried.
"""

from __future__ import annotations

from dataclasses import dataclass

from txlog.clock import elapsed_ms

CARRIED_MS = 200.0
"""So long after the newest entry of a carrier was seen the next one is expected of it."""

WAIT_MS_MAX = 300.0
"""So long one command is left to carriers, however many entries they write meanwhile."""

LOOKS_MAX = 30
"""So often the next entries are asked for in that time, at most."""

FIRST_LOOK_MS = 2_000.0
"""So long after an entry of a carrier was seen a command looks for more, before it tries."""

AHEAD_MIN, AHEAD_MAX = 2, 16
"""Entries that are asked for at once: in the first look more, the longer ago the last one was."""

CADENCE_MS = 40.0
"""About the time between two entries of a carrier."""

ENTRY_MS_MAX = 2_000
"""An entry that is older by the wall clocks says nothing about now."""


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest entry of a journal, of another process, as this one has seen it."""

    carries: bool
    """Its writer carries."""
    seen_ms: float
    """When, by this process's monotonic clock."""


def newest(carries: bool, written_ms: int, wall_ms: int, monotonic_ms: float) -> Newest | None:
    """What an entry says that was read now. None: it is no news. Two machines' wall clocks may be
    apart: then there are no carriers for each other, and each tries for itself."""
    if elapsed_ms(written_ms, wall_ms) > ENTRY_MS_MAX:
        return None
    return Newest(carries, monotonic_ms)


def leaves_to_carrier(known: Newest | None, since_ms: float, looks: int, now_ms: float) -> bool:
    """Whether a command that a carrier may bring waits, which has waited since then, and looked so
    often: no longer than WAIT_MS_MAX, and only after an entry of a carrier."""
    if known is None or not known.carries or looks >= LOOKS_MAX:
        return False
    age_ms = now_ms - known.seen_ms
    if not looks:  # What this process knows is of a moment ago: the next slot is taken long since.
        return age_ms < FIRST_LOOK_MS
    return age_ms < CARRIED_MS and now_ms - since_ms < WAIT_MS_MAX


def entries_ahead(known: Newest | None, now_ms: float) -> int:
    """How many entries are asked for at once: as many as a carrier may have written since."""
    age_ms = 0.0 if known is None else now_ms - known.seen_ms
    return max(AHEAD_MIN, min(AHEAD_MAX, AHEAD_MIN + round(age_ms / CADENCE_MS)))
