"""A journal with neither an entry nor a boundary: it was never begun, or it is lost.

It guards I15. The cluster's entry that names a topic comes before the topic's own first entry, and
that one before anything else in the topic's folder. So an empty folder may be an interrupted
creation, which is legal; but a folder with objects and without a journal once had one, which is
lost. Beginning such a journal again would turn its records into garbage, which is deleted (I12).
This module writes nothing, and detects what other programs did to the store. No other decision
depends on its listing (I14): a process without LIST permission skips this check.
"""

from __future__ import annotations

from collections.abc import Iterator

from txlog.errors import CorruptData, StoreDenied
from txlog.journal.audit import Finding
from txlog.layout import JournalLayout, journal_root
from txlog.storage.store import Store


def objects_without_journal(store: Store, layout: JournalLayout) -> list[str] | None:
    """Objects in the folder of a journal without a first entry; None if it has, or had, one.

    Raises the store's errors.
    """
    if _is_begun(store, layout):
        return None
    left = list(_log_objects(store, f"{layout.root}/"))
    # Checked again: the listed objects may have come after the first entry.
    return None if _is_begun(store, layout) else left


def require_not_lost(store: Store, layout: JournalLayout, prefix: str = "") -> None:
    """Called before the first entry is written: no object of the log may exist below `prefix`, the
    journal's folder by default. Costs one LIST.

    Raises CorruptData, and the store's errors.
    """
    first = first_below(store, prefix or f"{layout.root}/")
    if first and not _is_begun(store, layout):
        raise CorruptData(lost_journal(layout.root, [first]).message, path=layout.root)


def first_below(store: Store, prefix: str) -> str:
    """The first object of a log below `prefix`; "" if there is none or the process may not list."""
    try:
        return next(_log_objects(store, prefix), "")
    except StoreDenied:
        return ""


def _log_objects(store: Store, prefix: str) -> Iterator[str]:
    """Objects with names that logs use: other programs' files prove nothing about a log."""
    return (stored.path for stored in store.list_after(prefix) if journal_root(stored.path))


def _is_begun(store: Store, layout: JournalLayout) -> bool:
    """Entries are deleted only below a boundary, and boundaries are never deleted (R14)."""
    return any(store.get(path) is not None for path in (layout.entry(0), layout.boundary(0)))


def lost_journal(root: str, left: list[str]) -> Finding:
    """The finding for a journal that is lost although these objects of it are left."""
    more = f" and {len(left) - 1} more" if len(left) > 1 else ""
    return Finding(
        root,
        "I15",
        f"{root} has neither an entry nor a boundary, but contains objects that only come after "
        f"one ({left[0]}{more}): the journal is lost, and is not begun again while they exist. "
        "Restore it from a backup; without one, save what you need of these files and remove them.",
    )


def not_begun(name: str, root: str) -> str:
    """The note about a topic without any object."""
    return (
        f"topic {name!r} has no journal: its creation was interrupted, or {root} is lost. If it "
        "had records, restore that folder from a backup; otherwise the next use begins it."
    )
