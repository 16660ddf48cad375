"""Which stored objects of a journal may be deleted: only those whose names the journal gives.

It guards that other programs' files, which happen to be next to entries, stay. It must not know why
anything is deleted.
"""

from __future__ import annotations

from collections.abc import Callable

from txlog.layout import parse_number
from txlog.storage.store import Store


def own_below(store: Store, name: Callable[[int], str], limit: int) -> list[str]:
    """Stored objects that `name` gives to numbers below `limit`, in order. Costs a listing."""
    found = []
    for stored in store.list_after(f"{name(0).rpartition('/')[0]}/"):
        if stored.path >= name(limit):
            break
        number = parse_number(stored.path)
        if number is not None and stored.path == name(number):
            found.append(stored.path)
    return found
