"""A store that follows a test's script for matching calls, and passes on all others."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from txlog.errors import OutcomeUnknown, StoreFull, StoreUnavailable, TxlogError
from txlog.storage import Store
from txlog.storage.store import Body, ByteRange, Bytes, CreateResult, StoredObject

T = TypeVar("T")
Call: TypeAlias = Callable[[], object]
Effect: TypeAlias = Callable[[Call], object]
"""Runs in place of a call; it may make the call."""

WRITES = "create|put_new|replace|delete"


@dataclass
class Rule:
    """The effect applies to this many calls of these verbs on such paths, with such content."""

    verbs: str
    path: str
    effect: Effect
    holding: str
    times: int
    met: int = 0

    def applies(self, verb: str, path: str, data: bytes) -> bool:
        return (
            self.met < self.times
            and re.fullmatch(self.verbs, verb) is not None
            and re.search(self.path, path) is not None
            and self.holding.encode() in data
        )


class ScriptedStore:
    """Passes every call on, except those that match a rule. The newest rule comes first."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.writes: list[tuple[str, str]] = []
        """(verb, path) of every write, in order."""
        self._rules: list[Rule] = []

    @property
    def url(self) -> str:
        return self.inner.url

    def on(
        self, verbs: str, path: str, effect: Effect, *, holding: str = "", times: int = 1
    ) -> Rule:
        """Add a rule; `verbs` and `path` are regular expressions."""
        rule = Rule(verbs, path, effect, holding, times)
        self._rules.insert(0, rule)
        return rule

    def heal(self) -> None:
        """Remove every rule."""
        self._rules = []

    def create(self, path: str, data: bytes) -> CreateResult:
        return self._run("create", path, lambda: self.inner.create(path, data), data)

    def get(self, path: str) -> bytes | None:
        return self._run("get", path, lambda: self.inner.get(path))

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Bytes] | None:
        return self._run("get_ranges", path, lambda: self.inner.get_ranges(path, ranges))

    def put_new(self, path: str, data: Body) -> None:
        self._run("put_new", path, lambda: self.inner.put_new(path, data))

    def replace(self, path: str, data: bytes) -> None:
        self._run("replace", path, lambda: self.inner.replace(path, data))

    def list_after(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        return self.inner.list_after(prefix, after)

    def delete(self, path: str) -> None:
        self._run("delete", path, lambda: self.inner.delete(path))

    def _run(self, verb: str, path: str, call: Callable[[], T], data: bytes = b"") -> T:
        if re.fullmatch(WRITES, verb):
            self.writes.append((verb, path))
        for rule in self._rules:
            if rule.applies(verb, path, data):
                rule.met += 1
                return rule.effect(call)  # type: ignore[return-value]
        return call()


def unavailable(call: Call) -> object:
    """The store cannot be reached."""
    return failing(StoreUnavailable("the store does not answer; call again."))(call)


def full(call: Call) -> object:
    """The store is full."""
    return failing(StoreFull("no room is left; free some, then call again."))(call)


def answer_lost(call: Call) -> object:
    """The call is carried out, but its answer is lost."""
    call()
    raise OutcomeUnknown("no answer came; ask again.")


def never_lands(call: Call) -> object:
    """The call is not carried out, and gets no answer."""
    raise OutcomeUnknown("no answer came; ask again.")


def failing(error: TxlogError) -> Effect:
    """The call is not carried out, and raises `error`."""

    def fail(call: Call) -> object:
        raise error

    return fail


def preceded_by(action: Call) -> Effect:
    """Another action runs just before the call."""

    def run(call: Call) -> object:
        action()
        return call()

    return run


class Late:
    """A write that gets no answer, and that the store carries out when the test calls `land`."""

    def __init__(self) -> None:
        self._calls: list[Call] = []

    def __call__(self, call: Call) -> object:
        self._calls.append(call)
        raise OutcomeUnknown("no answer came; ask again.")

    def land(self) -> None:
        """Carry out the write now; if the name was taken meanwhile, nothing changes."""
        for call in self._calls:
            call()
