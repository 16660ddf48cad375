"""Stores that stand between a replica and the real store: stalled calls, lost answers, crashes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from txlog.errors import OutcomeUnknown
from txlog.storage import Store
from txlog.storage.store import Body, ByteRange, Bytes, CreateResult, StoredObject

Action = Callable[[], object]
T = TypeVar("T")


@dataclass
class LateWrite:
    """A create whose answer was lost and which the store has not carried out yet."""

    store: Store
    path: str
    data: bytes = b""

    def land(self) -> CreateResult:
        """Let the store carry it out now."""
        return self.store.create(self.path, self.data)


class HookedStore:
    """Passes every call on; before or after a named call it runs the test's action once."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self._before: dict[tuple[str, str], Action] = {}
        self._after: dict[tuple[str, str], Action] = {}
        self._lost: dict[str, LateWrite | None] = {}
        self.next_entry_is_lost = False
        self.next_entry_is_late = False
        self.late: list[LateWrite] = []

    @property
    def url(self) -> str:
        return self.inner.url

    def before(self, verb: str, path: str, action: Action) -> None:
        """The caller stalls just before its next such call, and `action` runs meanwhile."""
        self._before[verb, path] = action

    def after(self, verb: str, path: str, action: Action) -> None:
        """The same, between the call and its answer."""
        self._after[verb, path] = action

    @property
    def is_met(self) -> bool:
        """Whether every action before or after a call has run."""
        return not (self._before or self._after)

    def lose_answer(self, path: str) -> None:
        """The next create of `path` takes effect, but its answer is lost."""
        self._lost[path] = None

    def delay_write(self, path: str) -> LateWrite:
        """The next create of `path` gets no answer, and takes effect when the test calls `land`."""
        late = LateWrite(self.inner, path)
        self._lost[path] = late
        return late

    def create(self, path: str, data: bytes) -> CreateResult:
        self._run(self._before, "create", path)
        if "/entries/" in path:
            self._lose_next_entry(path)
        if path in self._lost:
            late = self._lost.pop(path)
            if late is None:
                self.inner.create(path, data)
            else:
                late.data = data
            raise OutcomeUnknown(f"no answer to the create of {path}; ask again.")
        result = self.inner.create(path, data)
        self._run(self._after, "create", path)
        return result

    def get(self, path: str) -> bytes | None:
        self._run(self._before, "get", path)
        found = self.inner.get(path)
        self._run(self._after, "get", path)
        return found

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Bytes] | None:
        return self.inner.get_ranges(path, ranges)

    def put_new(self, path: str, data: Body) -> None:
        self._run(self._before, "put_new", path)
        self.inner.put_new(path, data)

    def replace(self, path: str, data: bytes) -> None:
        self._run(self._before, "replace", path)
        self.inner.replace(path, data)

    def list_after(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        self._run(self._before, "list", prefix)
        return self.inner.list_after(prefix, after)

    def delete(self, path: str) -> None:
        self._run(self._before, "delete", path)
        self.inner.delete(path)

    def _lose_next_entry(self, path: str) -> None:
        if self.next_entry_is_late:
            self.late.append(self.delay_write(path))
        elif self.next_entry_is_lost:
            self.lose_answer(path)
        self.next_entry_is_late = self.next_entry_is_lost = False

    def _run(self, actions: dict[tuple[str, str], Action], verb: str, path: str) -> None:
        action = actions.pop((verb, path), None)
        if action is not None:
            action()


class ProcessDied(BaseException):
    """The process is dead: none of its code runs any more, not even its error handling."""


UPKEEP = ("/snapshots/", "/chunks/", "/boundaries/", "/hint.json")
"""Objects that a journal writes once in many entries, by whichever process comes first."""


class DyingStore(HookedStore):
    """Its process dies at the write of that number, before or after the store carried it out."""

    def __init__(self, inner: Store, *, counts_upkeep: bool = True) -> None:
        """Without `counts_upkeep`, a journal's earlier use by other tests does not change the
        numbers."""
        super().__init__(inner)
        self.counts_upkeep = counts_upkeep
        self.writes_left: int | None = None
        self.dies_after_write = False
        self.is_dead = False

    def die_at(self, write: int, *, after: bool) -> None:
        """`write` 0 is the next write."""
        self.writes_left, self.dies_after_write = write, after

    def create(self, path: str, data: bytes) -> CreateResult:
        return self._written(path, lambda: super(DyingStore, self).create(path, data))

    def get(self, path: str) -> bytes | None:
        self._require_alive()
        return super().get(path)

    def put_new(self, path: str, data: Body) -> None:
        self._written(path, lambda: super(DyingStore, self).put_new(path, data))

    def replace(self, path: str, data: bytes) -> None:
        self._written(path, lambda: super(DyingStore, self).replace(path, data))

    def delete(self, path: str) -> None:
        self._written(path, lambda: super(DyingStore, self).delete(path))

    def _written(self, path: str, write: Callable[[], T]) -> T:
        self._require_alive()
        if not self.counts_upkeep and any(part in path for part in UPKEEP):
            return write()
        is_last = self.writes_left == 0
        if self.writes_left is not None:
            self.writes_left -= 1
        if is_last and not self.dies_after_write:
            self._die()
        result = write()
        if is_last:
            self._die()
        return result

    def _require_alive(self) -> None:
        if self.is_dead:
            raise ProcessDied

    def _die(self) -> None:
        self.is_dead = True
        raise ProcessDied
