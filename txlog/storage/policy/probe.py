"""Checks that a store keeps the contract of `create`, before a log is created there.

Keeps I1 against stores that ignore the condition of a create, or check it too early. A store that
passes may still race between its own servers, so the docs also list the stores that were tested. It
must not know how any store works.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial

from txlog import layout
from txlog.clock import Runtime
from txlog.errors import StoreNotAtomic, TxlogError
from txlog.storage.store import Created, Exists, Store, can_hold

WRITERS = 8
"""Calls that race for each key. Two would do for a store that always ignores the condition; a store
that checks it too early lets a second writer through only sometimes."""

READERS = 2
"""Calls that read the key while it is written, to see a body in parts."""

KEYS = 24
"""Fresh keys, one for each race, so 192 creates: of a create that first looks whether the file
exists, two writers succeeded in 198 of 200 such races. A store is probed once, when a log is
created there; on a distant store these are two rounds of races."""

READS_MAX = 40
"""Reads by one reader of one key: enough to see the object appear on a disk, where a read takes
microseconds, and a limit where the object does not appear (I16)."""

RACES_AT_ONCE = 12
"""Races at the same time, so that on a distant store one race does not wait for the one before. On
a disk there is one at a time: threads would wait for each other."""

THREADS_WAIT_S = 0.1
"""Wait of two calls for each other, which shows whether there are threads. Without them it passes
once."""

START_WAIT_S = 5.0
"""Wait of the calls of a race for each other, if there are threads. A busy machine starts ten
threads in less; without the others, a call begins alone, and the race shows less."""

BODY_BYTES = 16_384
"""Size of a raced body: four pages, large enough that a write in parts would show."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The figures of a probe that passed; kept in the cluster file."""

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

    Also raises whatever the store raises. Its objects are below `layout.PROBES` and are removed; if
    deletion is refused they stay, and the result says so.
    """
    begun_ms = runtime.clock.monotonic_ms()
    folder = f"{layout.PROBES}/{runtime.entropy.token()}"
    first, keys = f"{folder}/first", [f"{folder}/{number:02d}" for number in range(KEYS)]
    try:
        overwrite = runtime.fan_out.start(partial(_check_overwrite, store, first, runtime))
        try:
            conflicts = _check_races(store, keys, runtime)
        finally:
            # Awaited even if a race has failed, so that it creates nothing after the removal.
            overwrite()
    finally:
        removed = _remove(store, [first, *keys], runtime)
    duration_ms = round(runtime.clock.monotonic_ms() - begun_ms)
    return ProbeResult(store.url, KEYS, WRITERS, conflicts, duration_ms, removed)


def _check_overwrite(store: Store, key: str, runtime: Runtime) -> None:
    """In sequence: a second create must fail, return what is there, and change nothing."""
    first, second = _body(runtime, 64), _body(runtime, 64)
    if store.get(key) is not None or not isinstance(store.create(key, first), Created):
        raise _refusal(store, key, "create refused a name that was free")
    if store.get(key) != first:
        raise _refusal(store, key, "a new object could not be read at once")
    answer = store.create(key, second)
    if isinstance(answer, Created) or store.get(key) != first:
        raise _refusal(store, key, "creating an object that exists overwrote it")
    if answer != Exists(first):
        raise _refusal(store, key, "creating an object that exists returned other content")


@dataclass(frozen=True, slots=True)
class _Race:
    """All writers at once on one fresh key, with readers at the same time."""

    key: str
    bodies: Sequence[bytes]
    start: threading.Barrier | None
    """None without threads."""

    def run(self, store: Store, role: int) -> bytes | None:
        """The result of one role. The first WRITERS roles write, the others read."""
        if role < WRITERS:
            return _claim(store, self.key, self.bodies[role], self.start)
        return _watch(store, self.key, self.start)

    def call_off(self) -> None:
        """Release the waiting calls, because one call has failed."""
        if self.start is not None:
            self.start.abort()

    def conflicts(self, store: Store, seen: Sequence[bytes | None], winner: bytes | None) -> int:
        """The number of writers that lost. `seen` are the results of all roles; `winner` is the
        object afterwards."""
        claimed, reads = seen[:WRITERS], seen[WRITERS:]
        wins = [body for body, held in zip(self.bodies, claimed, strict=True) if held == body]
        if len(wins) != 1:
            seen_wins = f"create succeeded for {len(wins)} of {WRITERS} writers"
            raise _refusal(store, self.key, seen_wins)
        if winner != wins[0] or any(held != winner for held in claimed):
            raise _refusal(store, self.key, "the writers did not all see the winner's content")
        if any(read not in (None, winner) for read in reads):
            changed = "a reader saw a part of an object, or one that changed later"
            raise _refusal(store, self.key, changed)
        return len(claimed) - len(wins)


def _check_races(store: Store, keys: Sequence[str], runtime: Runtime) -> int:
    """Run a race for each key, several at a time; returns how many writers lost."""
    has_threads = _has_threads(runtime)
    races = [
        _Race(
            key,
            [_body(runtime, BODY_BYTES) for _ in range(WRITERS)],
            threading.Barrier(WRITERS + READERS) if has_threads else None,
        )
        for key in keys
    ]
    # A store that can hold an object is a disk or memory, where a race waits for no round trip.
    groups = 1 if can_hold(store) else RACES_AT_ONCE
    roles = [
        partial(_play, store, races[group::groups], role)
        for group in range(groups)
        for role in range(WRITERS + READERS)
    ]
    played = runtime.fan_out.run_together(roles)
    # Read after all races, so that a store that lets a later write replace the winner is found.
    winners = runtime.fan_out.run_together([partial(store.get, race.key) for race in races])
    conflicts = 0
    for number, (race, winner) in enumerate(zip(races, winners, strict=True)):
        group, turn = number % groups, number // groups
        players = played[group * (WRITERS + READERS) :][: WRITERS + READERS]
        conflicts += race.conflicts(store, [seen[turn] for seen in players], winner)
    return conflicts


def _play(store: Store, races: Sequence[_Race], role: int) -> list[bytes | None]:
    """Play one role in each of the races, in order."""
    try:
        return [race.run(store, role) for race in races]
    except BaseException:
        # Otherwise the other roles would wait START_WAIT_S for this one in each race.
        for race in races:
            race.call_off()
        raise


def _has_threads(runtime: Runtime) -> bool:
    """Whether the runtime makes calls in parallel."""
    both = threading.Barrier(2)

    def meet() -> bool:
        with suppress(threading.BrokenBarrierError):
            both.wait(THREADS_WAIT_S)
        return not both.broken

    return all(runtime.fan_out.run_together([meet, meet]))


def _claim(store: Store, key: str, body: bytes, start: threading.Barrier | None) -> bytes:
    """The content of the object, according to this writer's create."""
    _await_start(start)
    answer = store.create(key, body)
    return answer.data if isinstance(answer, Exists) else body


def _watch(store: Store, key: str, start: threading.Barrier | None) -> bytes | None:
    """The first content that a reader gets; None if there is none."""
    _await_start(start)
    for _ in range(READS_MAX):
        data = store.get(key)
        if data is not None:
            return data
    return None


def _await_start(start: threading.Barrier | None) -> None:
    """Wait for the other calls, if calls run in parallel; one that fails breaks the barrier."""
    if start is not None:
        with suppress(threading.BrokenBarrierError):
            start.wait(START_WAIT_S)


def _body(runtime: Runtime, size_bytes: int) -> bytes:
    """A unique body that repeats its writer's token, so that every part of it names the writer."""
    token = runtime.entropy.token().encode()
    return token * (size_bytes // len(token))


def _remove(store: Store, keys: list[str], runtime: Runtime) -> bool:
    try:
        runtime.fan_out.run_together([partial(store.delete, key) for key in keys])
    except TxlogError:
        return False
    return True


def _refusal(store: Store, key: str, seen: str) -> StoreNotAtomic:
    return StoreNotAtomic(
        f"{store.url} cannot create an object only if it is absent: {seen} ({key}). It "
        "cannot hold a log. Use a local disk or an S3 service that honours If-None-Match.",
        store=store.url,
        seen=seen,
        path=key,
    )
