"""A read-only store: a process that reads a damaged log must not repair it on the way.

It guards I15 for audits: a replica that opens a journal writes a new snapshot if it finds one
damaged, and continues if the write is refused.
"""

from __future__ import annotations

from typing import NoReturn

from txlog.errors import StoreDenied
from txlog.storage.policy.passing import PassingStore
from txlog.storage.store import Body, CreateResult


class ReadOnlyStore(PassingStore):
    """`store`, whose objects can only be read and listed."""

    def create(self, path: str, data: bytes) -> CreateResult:
        """Raises StoreDenied."""
        self._refuse(path)

    def put_new(self, path: str, data: Body) -> None:
        """Raises StoreDenied."""
        self._refuse(path)

    def replace(self, path: str, data: bytes) -> None:
        """Raises StoreDenied."""
        self._refuse(path)

    def delete(self, path: str) -> None:
        """Raises StoreDenied."""
        self._refuse(path)

    def _refuse(self, path: str) -> NoReturn:
        raise StoreDenied(
            f"{path} cannot be changed, because {self.url} is open for reading only; nothing was "
            "written.",
            path=path,
        )
