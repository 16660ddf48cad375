"""The first entry of a journal, which is stored before anything names the journal (R63).

The first entries of the cluster's and of all coordinators' journals come before the log's own file,
and the first entry of a topic before the cluster's entry that names the topic. So no journal that a
process can know is ever begun by that process: one without its first entry, and without a boundary
above it, is lost (I15). Beginning it again would forget groups and transactions, and turn a topic's
records into garbage, which is deleted (I12). This module must not know what events mean.
"""

from __future__ import annotations

from collections.abc import Sequence

from txlog.clock import Runtime
from txlog.errors import CorruptData
from txlog.journal.codec import Json
from txlog.journal.entry import GENESIS_CRC32, Entry, encode_entry
from txlog.layout import JournalLayout


def first_entry(
    layout: JournalLayout, runtime: Runtime, writer: str, events: Sequence[Json] = ()
) -> bytes:
    """The bytes of a journal's first entry, with these encoded events."""
    entry = Entry(
        slot=0,
        token=runtime.entropy.token(),
        writer=writer,
        written_at_ms=max(runtime.clock.wall_ms(), 0),
        prior_crc32=GENESIS_CRC32,
        events=tuple(events),
        journal=layout.root,
        log_id=layout.log_id,
    )
    return encode_entry(entry)[0]


def lost_journal(layout: JournalLayout) -> CorruptData:
    """The error for a journal that has neither its first entry nor a boundary above it."""
    return CorruptData(
        f"{layout.root}: the journal is lost. Its first entry ({layout.entry(0)}) is missing, "
        "which is stored before anything names the journal, and no boundary allows its deletion. "
        "The journal is not begun again: restore that folder from a backup.",
        path=layout.root,
    )
