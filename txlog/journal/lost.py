"""A journal of which there is neither an entry nor a boundary: was it never begun, or is it gone?

It guards I15. The cluster's entry that names a topic comes before the topic's own first entry, and
that one before anything else in the topic's folder. So an empty folder may be a creation that was
cut off, which is legal; whatever lies in one without a journal was led to by a journal that is
gone. To begin that one anew would be to call its records garbage, and garbage is deleted (I12).
It only looks, and finds what somebody else has done to the store. What the log does itself never
rests on a listing (I14): whoever may not list goes on without the look.
"""

from __future__ import annotations

from collections.abc import Iterator

from txlog.errors import CorruptData, StoreDenied
from txlog.journal.audit import Finding
from txlog.layout import JournalLayout, journal_root
from txlog.storage.store import Store


def objects_without_journal(store: Store, layout: JournalLayout) -> list[str] | None:
    """What lies in the folder of a journal that has no first entry; None if it has one, or had.

    Raises the store's errors.
    """
    if _is_begun(store, layout):
        return None
    left = list(_led_to(store, f"{layout.root}/"))
    # Asked once more: what was listed came after the first entry.
    return None if _is_begun(store, layout) else left


def require_nothing_led_to(store: Store, layout: JournalLayout, prefix: str = "") -> None:
    """For whoever is about to write the first entry: nothing may lie below `prefix`, the journal's
    folder by default. Costs one LIST.

    Raises CorruptData, and the store's errors.
    """
    first = first_below(store, prefix or f"{layout.root}/")
    if first and not _is_begun(store, layout):
        raise CorruptData(lost_journal(layout.root, [first]).message, path=layout.root)


def first_below(store: Store, prefix: str) -> str:
    """The first object of a log there; "" if there is none, or if this process may not list."""
    try:
        return next(_led_to(store, prefix), "")
    except StoreDenied:
        return ""


def _led_to(store: Store, prefix: str) -> Iterator[str]:
    """What others have put there, such as a file manager's notes, says nothing about a log."""
    return (stored.path for stored in store.list_after(prefix) if journal_root(stored.path))


def _is_begun(store: Store, layout: JournalLayout) -> bool:
    """Entries are deleted only below a boundary, and boundaries never are (R14)."""
    return any(store.get(path) is not None for path in (layout.entry(0), layout.boundary(0)))


def lost_journal(root: str, led_to: list[str]) -> Finding:
    """The damage of a journal that led to these objects."""
    more = f" and {len(led_to) - 1} more" if len(led_to) > 1 else ""
    return Finding(
        root,
        "I15",
        f"{root} has neither an entry nor a boundary, and what only comes after one is there "
        f"({led_to[0]}{more}): the journal is gone, and not begun anew while they are there. "
        "Restore it from a backup; without one, save what you need of these files and remove them.",
    )


def not_begun(name: str, root: str) -> str:
    """The note of a topic that has nothing at all."""
    return (
        f"topic {name!r} has no journal: its creation was cut off, or {root} is gone. If it had "
        "records, restore that folder from a backup; otherwise the next use begins it."
    )
