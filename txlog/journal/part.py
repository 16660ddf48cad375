"""One layer's view of a journal whose state has several parts.

Coordinators and consumer groups share a journal, and neither may know the other's state. The view
decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from txlog.journal.replication.replica import Replica

PartT = TypeVar("PartT")


class JournalPart(Generic[PartT]):
    """Commands to a journal, and the part of its state that one layer uses. Safe to use from many
    threads."""

    def __init__(self, journal: Replica[Any], part_of: Callable[[Any], PartT]) -> None:
        """`part_of` takes the part from a state of the journal."""
        self._journal = journal
        self._part_of = part_of

    @property
    def state(self) -> PartT:
        """The newest state that this process has seen."""
        return self._part_of(self._journal.state)

    @property
    def next_slot(self) -> int:
        """The slot that the next entry gets, as far as this process has seen."""
        return self._journal.next_slot

    def catch_up(self, *, linearizable: bool = False) -> PartT:
        return self._part_of(self._journal.catch_up(linearizable=linearizable))

    @property
    def is_open(self) -> bool:
        """Whether this process follows the journal."""
        return self._journal.is_open

    def look_ahead(self, count: int) -> PartT:
        return self._part_of(self._journal.look_ahead(count))

    def follow(self) -> PartT:
        return self._part_of(self._journal.follow())

    def execute(self, command: Any) -> Any:
        return self._journal.execute(command)

    def execute_each(self, commands: Sequence[Any]) -> list[Any]:
        """See Replica.execute_each. The commands may be of other parts, too."""
        return self._journal.execute_each(commands)

    def prune(self, keep_entries: int, apart_entries: int = 1) -> int:
        """See Replica.prune. It prunes the whole journal."""
        return self._journal.prune(keep_entries, apart_entries)

    @property
    def kept_entries(self) -> int:
        return self._journal.kept_entries
