"""The memory store has one lock, and there is one store per name."""

import sys
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from txlog.clock import Runtime
from txlog.storage import Created, MemoryStore, open_store
from txlog.storage.store import (
    can_hold,
    hold,
    is_near,
    open_new,
    sweep_unfinished,
    turn,
    watched,
)
from txlog.testing.clock import ManualClock, manual_runtime
from txlog.testing.round_trips import RoundTrips


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Switch threads every microsecond, so that a gap between check and write shows."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before_s)


@pytest.mark.usefixtures("eager_threads")
def test_I1_racing_threads_have_one_winner_for_each_of_many_names() -> None:
    store = MemoryStore(Runtime())
    names = [f"race/{number}" for number in range(4_000)]
    start = threading.Barrier(8)

    def claim_all(racer: int) -> list[str]:
        start.wait(timeout=30)
        return [name for name in names if store.create(name, b"%d" % racer) == Created()]

    won = Runtime().fan_out.run_all([partial(claim_all, racer) for racer in range(8)])
    assert sorted(name for names_won in won for name in names_won) == sorted(names)


def test_equal_memory_urls_share_a_store_and_others_do_not() -> None:
    open_store("memory://shared", Runtime()).create("a", b"x")
    assert open_store("memory://shared", Runtime()).get("a") == b"x"
    assert open_store("memory://shared/", Runtime()).url == "memory://shared"
    assert open_store("memory://other", Runtime()).get("a") is None


def test_stored_bytes_do_not_change_with_the_callers_buffer() -> None:
    store = MemoryStore(manual_runtime())
    buffer = bytearray(b"before")
    store.put_new("a", memoryview(buffer))
    buffer[:] = b"after!"
    assert store.get("a") == b"before"


def test_objects_are_dated_by_the_runtimes_clock() -> None:
    clock = ManualClock(now_ms=5_000.0)
    store = MemoryStore(manual_runtime(clock=clock))
    store.create("a", b"x")
    clock.advance(100)
    store.replace("b", b"x")
    assert [found.modified_ms for found in store.list_after("")] == [5_000, 5_100]


def test_store_without_capabilities_has_what_holds_for_such_stores() -> None:
    store = RoundTrips(MemoryStore(manual_runtime())).store
    assert watched(store, ["a/"]) is None
    with turn(store, "a", list) as others_had_it:
        assert others_had_it is False
    assert (is_near(store), can_hold(store), hold(store, "a")) == (False, False, False)
    assert sweep_unfinished(store, 0) == 0
    new = open_new(store, "a")
    assert new.is_kept_in_memory
    new.write((b"1", b"2"))
    new.write(b"3")
    assert store.get("a") is None
    new.finish()
    assert store.get("a") == b"123"
    assert (is_near(MemoryStore(manual_runtime())), can_hold(MemoryStore(manual_runtime()))) == (
        True,
        True,
    )
