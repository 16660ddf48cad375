"""When a writer of a far journal leaves its command to a carrier, and when it carries. Pure.

If many processes write to one topic, each loses its slot nine times in ten. So a writer that wins a
slot after it lost one becomes a carrier: after each entry it writes at once another one with the
markers that it finds decided for this topic in the coordinators' journals, and its entries say that
it carries. A process that reads such an entry waits a short time instead of trying for a slot, if
its command is one that a carrier finds in a coordinator's journal. Safety does not depend on this:
put-if-absent alone decides, a dead carrier costs a short wait, and clocks only choose between
waiting and trying (I14). This module must not know what is carried.
"""

from __future__ import annotations

from dataclasses import dataclass

from txlog.clock import elapsed_ms

CADENCE_MS = 60.0
"""About the time between two entries of a carrier: two round trips of 30 ms. A wrong guess only
changes how many entries a read requests at once."""

CARRIED_MS = 200.0
"""How long after a carrier's newest entry was read its next one is expected: a little over three
times CADENCE_MS; where requests take long, CARRIED_TRIPS round trips. A dead carrier costs a
waiting command so much; if it is too short, the command competes with a live one for its slot."""

CARRIED_TRIPS = 4
"""Round trips in place of CARRIED_MS: a round of the carrier, the read that finds its entry, and as
much again."""

WAIT_MS = 300.0
"""How long one command is left to carriers, however many entries they write meanwhile; where
requests take long, WAIT_TRIPS round trips, but WAIT_MS_MAX at most. A carrier that has not brought
the command in five entries never will, for example because it does not read the command's
coordinator."""

WAIT_TRIPS = 6
"""Round trips in place of WAIT_MS: CARRIED_TRIPS, and one more round of the carrier."""

WAIT_MS_MAX = 2_000.0
"""Limit of WAIT_TRIPS round trips (I16), for a store that hardly answers."""

READS_MAX = 30
"""How often a waiting command requests the next entries, at most: WAIT_MS at READ_PAUSE_MS of the
replica, for a store that answers at once."""

FIRST_READ_MS = 2_000.0
"""For this long after a carrier's entry was read, a command first reads more entries before it
tries for a slot. Within it the carrier probably still writes, and an attempt would lose a PUT; the
read costs a round trip if the carrier has ended."""

AHEAD_MAX = 8
"""Entries that this first read requests at once, at most: more, the older the newest known one. The
carrier writes so many in half a second; if it has written fewer, the others are requested in
vain."""

ENTRY_MS_MAX = 2_000
"""An entry that is older than this by the wall clocks says nothing about the present: as long as
FIRST_READ_MS. Machines whose clocks differ by more do not wait for each other's carriers, and
race."""


@dataclass(frozen=True, slots=True)
class LatestEntry:
    """The newest entry of a journal, written by another process, as this process has read it."""

    carries: bool
    """Whether its writer carries."""
    read_ms: float
    """When it was read, by this process's monotonic clock."""


def latest_entry(
    carries: bool, written_ms: int, wall_ms: int, monotonic_ms: float
) -> LatestEntry | None:
    """What an entry that was just read says about carriers; None if the entry is old. If the wall
    clocks of two machines differ, neither is a carrier for the other, and each tries for itself."""
    if elapsed_ms(written_ms, wall_ms) > ENTRY_MS_MAX:
        return None
    return LatestEntry(carries, monotonic_ms)


def leaves_to_carrier(
    known: LatestEntry | None, since_ms: float, reads: int, now_ms: float, trip_ms: float = 0.0
) -> bool:
    """Whether a command that a carrier may publish keeps waiting for it.

    It has waited since `since_ms` and has read entries `reads` times, the last time in `trip_ms`.
    It waits only after an entry of a carrier, and never longer than WAIT_MS_MAX.
    """
    if known is None or not known.carries or reads >= READS_MAX:
        return False
    age_ms = now_ms - known.read_ms
    if not reads:  # This process's state is not new: the next slot was probably taken since.
        return age_ms < FIRST_READ_MS
    wait_ms = min(max(WAIT_MS, WAIT_TRIPS * trip_ms), WAIT_MS_MAX)
    return age_ms < max(CARRIED_MS, CARRIED_TRIPS * trip_ms) and now_ms - since_ms < wait_ms


def entries_ahead(known: LatestEntry | None, now_ms: float) -> int:
    """How many entries to request at once: as many as a carrier may have written since."""
    age_ms = 0.0 if known is None else now_ms - known.read_ms
    return max(1, min(AHEAD_MAX, 1 + round(age_ms / CADENCE_MS)))
