"""The errors of a replica: a journal that is damaged, or that moves too fast.

It guards I13 and I15 in messages: an entry that may be durable is called unknown, and damage names
its object. It must not know the store.
"""

from __future__ import annotations

from txlog.errors import (
    BoundaryMoved,
    CorruptData,
    MissingObject,
    OutcomeUnknown,
    PublishContention,
    TxlogError,
)
from txlog.layout import JournalLayout


def missing_entry(path: str) -> MissingObject:
    """The error for a hole."""
    return MissingObject(
        f"{path} is missing, and entries after it are there. Restore it from a backup; nothing was "
        "skipped.",
        path=path,
    )


def broken_chain(path: str, named: int, found: int) -> CorruptData:
    """The error for an entry that names another predecessor than the one that is stored."""
    return CorruptData(
        f"{path} follows an entry with checksum {named}, but the one before it has {found}: an "
        "entry was changed or replaced. Restore the journal from a backup.",
        path=path,
    )


def pruned_too_fast(layout: JournalLayout) -> BoundaryMoved:
    """The error for entries that are repeatedly deleted while they are being read."""
    return BoundaryMoved(
        f"{layout.root}: its old entries were removed faster than they could be read; try again, "
        "and prune less often."
    )


def lost_slots(layout: JournalLayout, count: int) -> PublishContention:
    """The error for a command that lost this many slots to other writers."""
    return PublishContention(
        f"{layout.root}: other writers won {count} slots in a row; try again.",
        journal=layout.root,
    )


def unclear_slot(path: str, error: TxlogError) -> OutcomeUnknown:
    """The error for an entry that was created, but may not count (R15)."""
    return OutcomeUnknown(
        f"{path} was created, but it could not be read whether its slot still counts: "
        f"{error.message} Ask again; clean up nothing.",
        path=path,
    )
