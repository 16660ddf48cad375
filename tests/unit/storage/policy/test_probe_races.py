"""What a probe sends: how many calls, which of them at once, and with which bodies."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import TypeVar

import pytest

from txlog.clock import Runtime
from txlog.errors import StoreNotAtomic
from txlog.fan_out import ThreadFanOut
from txlog.storage import CreateResult, Exists, MemoryStore, ProbeResult, probe
from txlog.storage.policy.probe import BODY_BYTES, KEYS, READERS, WRITERS
from txlog.testing.clock import manual_runtime
from txlog.testing.counting_store import CountingStore
from txlog.testing.round_trips import RoundTrips

T = TypeVar("T")


class BodiesStore(MemoryStore):
    """Keeps the body of every create."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self.bodies: list[tuple[str, bytes]] = []

    def create(self, path: str, data: bytes) -> CreateResult:
        self.bodies.append((path, bytes(data)))
        return super().create(path, data)


def test_result_has_the_figures_of_the_races() -> None:
    runtime = manual_runtime()
    store = MemoryStore(runtime, "probed")
    assert probe(store, runtime) == ProbeResult(
        store="memory://probed",
        keys=24,
        writers=8,
        conflicts=24 * 7,
        duration_ms=0,
        objects_removed=True,
    )
    assert probe(store, runtime).as_json() == {
        "store": "memory://probed",
        "keys": 24,
        "writers": 8,
        "conflicts": 168,
        "duration_ms": 0,
        "objects_removed": True,
    }


def test_every_writer_has_a_body_of_its_own_that_no_part_of_another_equals() -> None:
    runtime = manual_runtime()
    store = BodiesStore(runtime)
    probe(store, runtime)
    raced = [body for path, body in store.bodies if not path.endswith("/first")]
    others = [body for path, body in store.bodies if path.endswith("/first")]
    assert len(raced) == KEYS * WRITERS == len(set(raced))
    assert {len(body) for body in raced} == {BODY_BYTES}
    assert [len(body) for body in others] == [64, 64]
    assert all(body == body[:32] * (len(body) // 32) for body in (*raced, *others))
    assert len({body[:32] for body in (*raced, *others)}) == len(raced) + 2
    writers = Counter(path for path, _ in store.bodies)
    assert sorted(writers.values()) == [2] + [WRITERS] * KEYS
    names = sorted(path.rpartition("/")[2] for path in writers)
    assert names == [*(f"{number:02d}" for number in range(KEYS)), "first"]
    assert len({path.rpartition("/")[0] for path in writers}) == 1


def test_races_on_a_distant_store_run_twelve_at_a_time() -> None:
    rounds = RoundTrips(MemoryStore(manual_runtime()))
    waits = rounds.waits(lambda: probe(rounds.store, rounds.runtime))
    asked = Counter(request.verb for request in rounds.store.requests)
    creates = [request for request in rounds.store.requests if request.verb == "create"]
    first_ms = min(request.begun_ms for request in creates)
    at_once = [request for request in creates if request.begun_ms == first_ms]
    # The overwrite is tried at the same time, and begins with a read.
    assert len(at_once) == 12 * WRITERS
    assert asked["create"] == KEYS * WRITERS + 2
    assert asked["delete"] == KEYS + 1
    assert waits < 20


class RacedStore(MemoryStore):
    """The first create of a race takes long, unless another race begins meanwhile."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self.another_began = threading.Event()
        self._keys: list[str] = []
        self._counting = threading.Lock()

    def create(self, path: str, data: bytes) -> CreateResult:
        if path.endswith("/first"):
            return super().create(path, data)
        with self._counting:
            is_first = not self._keys
            self._keys.append(path)
            if path != self._keys[0] and len(self._keys) <= WRITERS:
                self.another_began.set()
        if is_first:
            self.another_began.wait(0.2)
        return super().create(path, data)


def test_race_in_memory_begins_when_all_calls_have_ended_the_one_before() -> None:
    store = RacedStore(Runtime())
    probe(store, Runtime())
    assert not store.another_began.is_set()


class FewThreads(ThreadFanOut):
    """Has fewer threads than a race has calls."""

    def run_together(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda call: call(), calls))


def test_I16_calls_of_a_race_begin_alone_if_the_others_do_not_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(import_module("txlog.storage.policy.probe"), "START_WAIT_S", 0.01)
    runtime = Runtime(fan_out=FewThreads())
    found: list[ProbeResult] = []
    probing = threading.Thread(
        target=lambda: found.append(probe(MemoryStore(runtime), runtime)), daemon=True
    )
    probing.start()
    probing.join(60.0)
    assert [one.conflicts for one in found] == [KEYS * (WRITERS - 1)]


class TwoContentsStore(MemoryStore):
    """Shows the losers of a race another content than the winner's."""

    def create(self, path: str, data: bytes) -> CreateResult:
        answer = super().create(path, data)
        is_raced = not path.endswith("/first")
        return Exists(b"another") if is_raced and isinstance(answer, Exists) else answer


def test_loser_that_sees_other_content_than_the_winners_is_found() -> None:
    runtime = manual_runtime()
    with pytest.raises(StoreNotAtomic, match="the writers did not all see the winner's content"):
        probe(TwoContentsStore(runtime), runtime)


class MeetingStore(MemoryStore):
    """A store whose creates of one key begin only once all of them have come."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._met: dict[str, threading.Barrier] = {}
        self._making = threading.Lock()

    def create(self, path: str, data: bytes) -> CreateResult:
        if not path.endswith("/first"):
            with self._making:
                met = self._met.setdefault(path, threading.Barrier(WRITERS))
            met.wait(30.0)
        return super().create(path, data)


def test_writers_of_a_key_call_at_the_same_time() -> None:
    """In a pool of fewer threads than calls, too."""
    runtime = Runtime(fan_out=ThreadFanOut())
    assert probe(MeetingStore(runtime), runtime).conflicts == KEYS * (WRITERS - 1)


class ReadStore(MemoryStore):
    """Changes what reads of raced keys return."""

    def __init__(
        self, runtime: Runtime, change: Callable[[int, bytes | None], bytes | None]
    ) -> None:
        super().__init__(runtime)
        self._change = change
        self.reads: Counter[str] = Counter()

    def get(self, path: str) -> bytes | None:
        data = super().get(path)
        if path.endswith("/first"):
            return data
        self.reads[path] += 1
        return self._change(self.reads[path], data)


def test_reader_that_never_sees_an_object_stops_after_forty_reads() -> None:
    """As in a store whose races end before the first read: without threads, all do."""
    runtime = manual_runtime()
    hidden = READERS * 40
    store = ReadStore(runtime, lambda number, data: None if number <= hidden else data)
    assert probe(store, runtime).conflicts == KEYS * (WRITERS - 1)
    assert set(store.reads.values()) == {hidden + 1}


def test_reader_stops_at_the_first_content_and_the_winner_is_read_last() -> None:
    runtime = manual_runtime()
    store = ReadStore(runtime, lambda number, data: data)
    probe(store, runtime)
    assert set(store.reads.values()) == {READERS + 1}


def test_object_that_changes_after_the_race_is_found() -> None:
    runtime = manual_runtime()
    store = ReadStore(runtime, lambda number, data: data if number <= READERS else b"another")
    with pytest.raises(StoreNotAtomic, match="did not all see the winner's content") as refused:
        probe(store, runtime)
    assert refused.value.facts["path"].endswith("/00")
    assert refused.value.facts["store"] == store.url


def test_object_that_a_reader_saw_in_part_is_found() -> None:
    runtime = manual_runtime()
    store = ReadStore(
        runtime, lambda number, data: data[:-1] if data and number == READERS else data
    )
    with pytest.raises(StoreNotAtomic, match="a reader saw a part of an object"):
        probe(store, runtime)


def test_probe_of_a_wrapped_store_reports_the_stores_address() -> None:
    runtime = manual_runtime()
    assert probe(CountingStore(MemoryStore(runtime, "x")), runtime).store == "memory://x"
