"""When a writer of a far journal leaves its command to a carrier, and when it carries. Pure.

Of many processes that write to one topic each would lose its slot nine times in ten. So one that
wins a slot after it lost one carries: it goes on writing, at once after each entry, what it finds
decided for this topic in the coordinators' journals, and its entries say so. A process that sees
such an entry waits a moment instead of trying for a slot, if a carrier finds its command without
it. Safety does not depend on it: put-if-absent alone decides, a dead carrier costs a moment, and
clocks only choose between waiting and trying (I14). It must not know what is carried.
"""

from __future__ import annotations

from dataclasses import dataclass

from txlog.clock import elapsed_ms

CARRIED_MS = 200.0
"""So long after the newest entry of a carrier was seen the next one is expected of it; where
requests take long, CARRIED_TRIPS of them."""

CARRIED_TRIPS = 4

WAIT_MS = 300.0
"""So long one command is left to carriers, however many entries they write meanwhile; where
requests take long, WAIT_TRIPS of them, and WAIT_MS_MAX at most."""

WAIT_TRIPS = 6
WAIT_MS_MAX = 2_000.0

READS_MAX = 30
"""So often the next entries are asked for in that time, at most."""

FIRST_LOOK_MS = 2_000.0
"""So long after an entry of a carrier was seen a command looks for more, before it tries."""

AHEAD_MAX = 8
"""Entries that are asked for at once in the first look: more, the longer ago the last was seen."""

CADENCE_MS = 60.0
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
    """What an entry says that was read now. None: it is not new. Two machines' wall clocks may be
    apart: then there are no carriers for each other, and each tries for itself."""
    if elapsed_ms(written_ms, wall_ms) > ENTRY_MS_MAX:
        return None
    return Newest(carries, monotonic_ms)


def leaves_to_carrier(
    known: Newest | None, since_ms: float, reads: int, now_ms: float, trip_ms: float = 0.0
) -> bool:
    """Whether a command that a carrier may bring waits, which has waited since then, and looked so
    often, `trip_ms` the last time: no longer than WAIT_MS_MAX, and only after an entry of a
    carrier."""
    if known is None or not known.carries or reads >= READS_MAX:
        return False
    age_ms = now_ms - known.seen_ms
    if not reads:  # What this process knows is of a moment ago: the next slot is taken long since.
        return age_ms < FIRST_LOOK_MS
    wait_ms = min(max(WAIT_MS, WAIT_TRIPS * trip_ms), WAIT_MS_MAX)
    return age_ms < max(CARRIED_MS, CARRIED_TRIPS * trip_ms) and now_ms - since_ms < wait_ms


def entries_ahead(known: Newest | None, now_ms: float) -> int:
    """How many entries are asked for at once: as many as a carrier may have written since."""
    age_ms = 0.0 if known is None else now_ms - known.seen_ms
    return max(1, min(AHEAD_MAX, 1 + round(age_ms / CADENCE_MS)))
