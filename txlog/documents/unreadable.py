"""What could not be read while several things were listed: one must not hide the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from txlog.errors import TxlogError
from txlog.redaction import redact


class Unreadable:
    """Takes what `on_error` of the methods of `Admin` is told. Safe to use from threads."""

    def __init__(self) -> None:
        self.errors: dict[tuple[str, str], TxlogError] = {}
        """By kind (topic, group, coordinator) and name."""

    def note(self, kind: str, name: str, error: TxlogError) -> None:
        """One thing cannot be read."""
        self.errors.setdefault((kind, name), error)

    def names(self, kind: str) -> list[str]:
        """What of that kind cannot be read."""
        return [name for found, name in self.errors if found == kind]

    def rows(
        self, kind: str, names: Iterable[str], members: Iterable[str]
    ) -> Iterator[dict[str, Any]]:
        """The rows of those of `names` that cannot be read: of the members only the name and the
        error are known."""
        unknown = dict.fromkeys(members)
        for name in names:
            if (kind, name) in self.errors:
                yield {**unknown, kind: name, "error": redact(self.errors[kind, name].message)}

    def texts(self, *without: str) -> list[str]:
        """Each with what is wrong, except those of these kinds."""
        return [
            f"{kind} {name}: {redact(error.message)}"
            for (kind, name), error in self.errors.items()
            if kind not in without
        ]
