"""Which journal an object belongs to: entries, snapshots and boundaries contain it.

It guards that a log never follows what another log, or another of its journals, has written: an
object may be copied by hand, and a producer may outlive its log. It must not know what they
contain.
"""

from __future__ import annotations

from typing import Protocol

from txlog.errors import CorruptData
from txlog.layout import JournalLayout


class Owned(Protocol):
    """An object that names its owner."""

    @property
    def journal(self) -> str:
        """The journal's folder below the root of its log."""

    @property
    def log_id(self) -> str:
        """The id of the log."""


def require_own(found: Owned, layout: JournalLayout, path: str) -> None:
    """Raises CorruptData if the object at `path` belongs to another journal, or another log."""
    if (found.journal, found.log_id) != (layout.root, layout.log_id):
        raise CorruptData(
            f"{path} does not belong to this journal but to {found.journal!r:.300} of log "
            f"{found.log_id!r:.40} (this log is {layout.log_id!r}). It was copied there: restore "
            "the right object from a backup of this log.",
            path=path,
        )
