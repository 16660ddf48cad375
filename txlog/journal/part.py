"""One part of a journal whose state has several: commands and state of it, as if it were alone.

Each part's rules know nothing of the others. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from txlog.journal.replication.replica import Replica

PartT = TypeVar("PartT")


class JournalPart(Generic[PartT]):
    """What one layer sees of a journal. Safe to use from many threads."""

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
        """See Replica.catch_up."""
        return self._part_of(self._journal.catch_up(linearizable=linearizable))

    @property
    def is_open(self) -> bool:
        """Whether this process follows the journal."""
        return self._journal.is_open

    def look_ahead(self, count: int) -> PartT:
        """See Replica.look_ahead."""
        return self._part_of(self._journal.look_ahead(count))

    def follow(self) -> PartT:
        """See Replica.follow."""
        return self._part_of(self._journal.follow())

    def execute(self, command: Any) -> Any:
        """See Replica.execute."""
        return self._journal.execute(command)

    def execute_all(self, commands: Sequence[Any]) -> list[Any]:
        """See Replica.execute_all. They may be of other parts, too."""
        return self._journal.execute_all(commands)

    def execute_each(self, commands: Sequence[Any]) -> list[Any]:
        """See Replica.execute_each. They may be of other parts, too."""
        return self._journal.execute_each(commands)

    def prune(self, keep_entries: int, apart_entries: int = 1) -> int:
        """See Replica.prune: of the whole journal."""
        return self._journal.prune(keep_entries, apart_entries)

    @property
    def kept_entries(self) -> int:
        """See Replica.kept_entries."""
        return self._journal.kept_entries
