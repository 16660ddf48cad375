"""A store that permits a role only what a policy allows, and records the calls."""

import fnmatch
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from txlog.errors import StoreDenied
from txlog.storage.store import Body, ByteRange, Bytes, CreateResult, Store, StoredObject

Policy: TypeAlias = dict[str, tuple[str, ...]]
"""Action -> patterns of names; `*` is any text, as in IAM."""

ACTIONS = ("read", "create", "replace", "delete", "list")


@dataclass
class GuardedStore:
    """`store` with the permissions of one role."""

    store: Store
    policy: Policy
    used: set[tuple[str, str]] = field(default_factory=set)
    """The actions and patterns that allowed a call."""
    denied: set[tuple[str, str]] = field(default_factory=set)
    """The actions and kinds of object that no pattern allowed."""

    @property
    def url(self) -> str:
        return self.store.url

    def create(self, path: str, data: bytes) -> CreateResult:
        self._check("create", path)
        return self.store.create(path, data)

    def get(self, path: str) -> bytes | None:
        self._check("read", path)
        return self.store.get(path)

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Bytes] | None:
        self._check("read", path)
        return self.store.get_ranges(path, ranges)

    def put_new(self, path: str, data: Body) -> None:
        self._check("create", path)
        self.store.put_new(path, data)

    def replace(self, path: str, data: bytes) -> None:
        self._check("replace", path)
        self.store.replace(path, data)

    def list_after(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        self._check("list", prefix)
        return self.store.list_after(prefix, after)

    def delete(self, path: str) -> None:
        self._check("delete", path)
        self.store.delete(path)

    def _check(self, action: str, path: str) -> None:
        allowing = [p for p in self.policy.get(action, ()) if fnmatch.fnmatchcase(path, p)]
        self.used |= {(action, pattern) for pattern in allowing}
        if not allowing:
            self.denied.add((action, kind_of(path)))
            raise StoreDenied(f"{action} {path} is denied. Use another role.", path=path)


def kind_of(path: str) -> str:
    """The name with `*` in place of ids and numbers, as in a policy."""
    path = re.sub(r"^(topics/[^/]+)/[0-9a-f]{16,}(?=/|$)", r"\1/*", path)
    path = re.sub(r"^(cluster|transactions)/[0-9a-f]{32}", r"\1/*", path)
    path = re.sub(r"^(transactions/\*)/\d+", r"\1/*", path)
    return re.sub(r"/(entries|snapshots|boundaries|chunks|segments)/.+$", r"/\1/*", path)
