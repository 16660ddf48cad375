"""Mutants that survive because they change nothing, each with the reason: `unchanged.toml`."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.mutant import Mutant

LIST = Path(__file__).with_name("unchanged.toml")


@dataclass(frozen=True)
class Unchanged:
    """A change of one function that no test can detect."""

    module: str
    """The name in `tests.mutation.modules.MODULES`."""
    function: str
    """The function's name with its class: `Class.method`."""
    removed: str
    """The changed line before the change, or a part of it; of several lines, the first. Empty: any
    line of the function, which makes the words of an error."""
    added: str
    """The line after the change, or a part of it. Empty: any replacement."""
    reason: str

    def covers(self, mutant: Mutant) -> bool:
        """Whether a mutant is this change."""
        if self.function != mutant.function or not self.removed:
            return self.function == mutant.function
        first, put = next(iter(mutant.removed), ""), next(iter(mutant.added), "")
        return self.removed in first and self.added in put


def listed() -> Sequence[Unchanged]:
    """The whole list."""
    data = tomllib.loads(LIST.read_text())
    return [
        Unchanged(module, **{"removed": "", "added": "", **entry})
        for module, entries in data.items()
        for entry in entries
    ]
