"""Whose an object of a journal is: entries, snapshots and boundaries say it themselves.

It guards that a log is never led by what another log, or another journal of it, has written: an
object may be copied by hand, and a producer may outlive its log. It must not know what they hold.
"""

from __future__ import annotations

from typing import Protocol

from txlog.errors import CorruptData
from txlog.layout import JournalLayout


class Owned(Protocol):
    """What bears its owner."""

    @property
    def journal(self) -> str:
        """The journal's folder below the root of its log."""

    @property
    def log_id(self) -> str:
        """The id of the log."""


def require_own(found: Owned, layout: JournalLayout, path: str) -> None:
    """Raises CorruptData if the object at `path` is of another journal, or of another log's."""
    if (found.journal, found.log_id) != (layout.root, layout.log_id):
        raise CorruptData(
            f"{path} is not of this journal but of {found.journal!r:.300} of log "
            f"{found.log_id!r:.40} (this log is {layout.log_id!r}). Somebody has put it there: "
            "restore what belongs there from a backup of this log.",
            path=path,
        )
