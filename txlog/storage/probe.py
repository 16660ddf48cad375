"""Does this store keep its word? Tried on it, before a log is created there.

It guards I1 against stores that ignore the condition of a create, or check it too early (storage
rule 8). A pass is no proof: a store may race only between its own servers, so the docs also name
the stores that were tested. It must not know how any store works.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

from txlog import layout
from txlog.clock import Runtime
from txlog.errors import StoreNotAtomic, TxlogError
from txlog.storage.store import Created, Exists, Store

WRITERS = 8
"""Calls that race for each key."""

READERS = 2
"""Calls that read the key while it is written."""

KEYS = 24
"""Fresh keys that are raced for."""

READS_MAX = 40
"""Reads of one reader for one key."""

START_WAIT_S = 0.1
"""Wait of the calls of a race for each other. Without threads it passes once, and then never."""

BODY_BYTES = 16_384
"""Size of a raced body: large enough that a write in parts would show."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What was tried, and passed; kept in the cluster file. `duration_ms` is the whole probe's."""

    store: str
    keys: int
    writers: int
    conflicts: int
    duration_ms: int
    objects_removed: bool

    def as_json(self) -> dict[str, str | int | bool]:
        """Plain values for the cluster file."""
        return asdict(self)


def probe(store: Store, runtime: Runtime) -> ProbeResult:
    """Try creation over an existing object, visibility, and races. Raises StoreNotAtomic.

    Also raises whatever the store raises. Its objects lie below `layout.PROBES` and are removed;
    where deletion is refused they stay, and the result says so.
    """
    begun_ms = runtime.clock.monotonic_ms()
    start = threading.Barrier(WRITERS + READERS)
    folder = f"{layout.PROBES}/{runtime.entropy.token()}"
    keys = [f"{folder}/{number:02d}" for number in range(KEYS)]
    try:
        _check_overwrite(store, f"{folder}/first", runtime)
        conflicts = sum(_race(store, key, runtime, start) for key in keys)
    finally:
        removed = _remove(store, [f"{folder}/first", *keys], runtime)
    duration_ms = round(runtime.clock.monotonic_ms() - begun_ms)
    return ProbeResult(store.url, KEYS, WRITERS, conflicts, duration_ms, removed)


def _check_overwrite(store: Store, key: str, runtime: Runtime) -> None:
    """One after the other: a second create must fail, say what is there, and change nothing."""
    first, second = _body(runtime, 64), _body(runtime, 64)
    if store.get(key) is not None or not isinstance(store.create(key, first), Created):
        raise _refusal(store, key, "a fresh name was said to be taken")
    if store.get(key) != first:
        raise _refusal(store, key, "a new object could not be read at once")
    answer = store.create(key, second)
    if isinstance(answer, Created) or store.get(key) != first:
        raise _refusal(store, key, "creating an object that exists overwrote it")
    if answer != Exists(first):
        raise _refusal(store, key, "creating an object that exists returned other content")


def _race(store: Store, key: str, runtime: Runtime, start: threading.Barrier) -> int:
    """All writers at once on one fresh key, with readers beside them; how many lost."""
    bodies = [_body(runtime, BODY_BYTES) for _ in range(WRITERS)]
    writers: list[Callable[[], bytes | None]] = [
        partial(_claim, store, key, body, start) for body in bodies
    ]
    readers: list[Callable[[], bytes | None]] = [partial(_watch, store, key, start)] * READERS
    seen = runtime.fan_out.run_all([*readers, *writers])
    claimed, winner = seen[READERS:], store.get(key)
    wins = [body for body, held in zip(bodies, claimed, strict=True) if held == body]
    if len(wins) != 1:
        raise _refusal(store, key, f"{len(wins)} of {WRITERS} writers were told that they won")
    if winner != wins[0] or any(held != winner for held in claimed):
        raise _refusal(store, key, "the writers did not all see the winner's content")
    if any(read not in (None, winner) for read in seen[:READERS]):
        raise _refusal(store, key, "a reader saw a part of an object, or one that did not last")
    return len(claimed) - len(wins)


def _claim(store: Store, key: str, body: bytes, start: threading.Barrier) -> bytes:
    """Who has the name, as this writer is told."""
    _await_start(start)
    answer = store.create(key, body)
    return answer.data if isinstance(answer, Exists) else body


def _watch(store: Store, key: str, start: threading.Barrier) -> bytes | None:
    """The first thing that can be seen under the name."""
    _await_start(start)
    for _ in range(READS_MAX):
        data = store.get(key)
        if data is not None:
            return data
    return None


def _await_start(start: threading.Barrier) -> None:
    """All together, if they run together; otherwise the barrier breaks, and nobody waits again."""
    with contextlib.suppress(threading.BrokenBarrierError):
        start.wait(START_WAIT_S)


def _body(runtime: Runtime, size_bytes: int) -> bytes:
    """A body that no other call has, and whose every part shows whose it is."""
    token = runtime.entropy.token().encode()
    return token * (size_bytes // len(token))


def _remove(store: Store, keys: list[str], runtime: Runtime) -> bool:
    try:
        runtime.fan_out.run_all([partial(store.delete, key) for key in keys])
    except TxlogError:
        return False
    return True


def _refusal(store: Store, key: str, seen: str) -> StoreNotAtomic:
    return StoreNotAtomic(
        f"{store.url} cannot create an object only if it is absent: {seen} ({key}). No log can "
        "live there. Use a local disk or an S3 service that honours If-None-Match.",
        store=store.url,
        seen=seen,
        path=key,
    )
