"""Reading ahead saves waits, and a walk returns the same objects as without it."""

import pytest

from txlog.errors import CorruptData
from txlog.storage import ByteRange, MemoryStore, StoredObject
from txlog.storage.policy.read_ahead import BYTES_AHEAD_MAX, OBJECTS_AHEAD_MAX, ReadAheadStore
from txlog.testing.clock import manual_runtime
from txlog.testing.round_trips import RoundTrips

COUNT = 40


def name(number: int) -> str:
    return f"j/entries/{number:03}"


@pytest.fixture
def rounds() -> RoundTrips:
    """A folder of objects, with one object before it and one after it."""
    store = MemoryStore(manual_runtime())
    for number in range(COUNT):
        store.put_new(name(number), b"%d" % number)
    store.put_new("j/boundaries/000", b"before")
    store.put_new("j/snapshots/000", b"after")
    return RoundTrips(store)


def ahead(rounds: RoundTrips, listed: list[StoredObject] | None = None) -> ReadAheadStore:
    found = list(rounds.store.store.list_after("")) if listed is None else listed
    return ReadAheadStore(rounds.store, rounds.runtime.fan_out, found)


def walk(store: ReadAheadStore) -> list[bytes | None]:
    return [store.get(name(number)) for number in range(COUNT)]


def test_walk_reads_each_object_once_and_many_in_parallel(rounds: RoundTrips) -> None:
    found: list[bytes | None] = []
    assert rounds.waits(lambda: found.extend(walk(ahead(rounds)))) == -(-COUNT // OBJECTS_AHEAD_MAX)
    assert found == [b"%d" % number for number in range(COUNT)]
    assert sorted(r.path for r in rounds.store.requests) == [name(n) for n in range(COUNT)]


def test_first_read_brings_as_many_objects_as_are_read_at_once(rounds: RoundTrips) -> None:
    store = ahead(rounds)
    rounds.waits(lambda: store.get(name(0)))
    assert [r.path for r in rounds.store.requests] == [name(n) for n in range(OBJECTS_AHEAD_MAX)]


def test_without_a_listing_nothing_is_read_ahead(rounds: RoundTrips) -> None:
    assert rounds.waits(lambda: walk(ahead(rounds, []))) == COUNT


def test_object_absent_during_read_ahead_is_read_again(rounds: RoundTrips) -> None:
    store = ahead(rounds)
    rounds.store.store.delete(name(1))
    assert store.get(name(0)) == b"0"
    rounds.store.store.put_new(name(1), b"back again")
    assert store.get(name(1)) == b"back again"


def test_read_ahead_error_is_raised_when_the_object_is_requested(
    rounds: RoundTrips, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, get = rounds.store.store, rounds.store.store.get

    def damaged(path: str) -> bytes | None:
        if path == name(2):
            raise CorruptData("it is damaged", path=path)
        return get(path)

    monkeypatch.setattr(inner, "get", damaged)
    store = ahead(rounds)
    assert [store.get(name(0)), store.get(name(1))] == [b"0", b"1"]
    with pytest.raises(CorruptData, match="it is damaged"):
        store.get(name(2))
    assert store.get(name(3)) == b"3"


def test_I16_read_ahead_is_bounded_in_bytes(rounds: RoundTrips) -> None:
    large = bytes(BYTES_AHEAD_MAX // 2)
    for number in range(4):
        rounds.store.store.put_new(f"large/{number}", large)
    store = ahead(rounds)
    rounds.waits(lambda: store.get("large/0"))
    assert [r.path for r in rounds.store.requests] == ["large/0", "large/1", "large/2"]


def test_expected_ranges_are_read_in_parallel_and_served_once(rounds: RoundTrips) -> None:
    store = ahead(rounds)
    first, second = ByteRange(0, 1), ByteRange(1, 1)
    wanted = {name(10): [first, second], name(11): [first], "j/missing": [first]}
    assert rounds.waits(lambda: store.expect_ranges(wanted)) == 1
    assert rounds.waits(lambda: store.get_ranges(name(10), [second, first])) == 0
    assert store.get_ranges(name(11), [first]) == [b"1"]
    assert rounds.waits(lambda: store.get_ranges(name(11), [first])) == 1
    assert store.get_ranges("j/missing", [first]) is None


def test_error_of_expected_ranges_is_raised_when_they_are_requested(
    rounds: RoundTrips, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(path: str, ranges: object) -> None:
        raise CorruptData("it is damaged", path=path)

    monkeypatch.setattr(rounds.store.store, "get_ranges", damaged)
    store = ahead(rounds)
    store.expect_ranges({name(0): [ByteRange(0, 1)]})
    with pytest.raises(CorruptData, match="it is damaged"):
        store.get_ranges(name(0), [ByteRange(0, 1)])


def test_other_calls_are_delegated_to_the_wrapped_store(rounds: RoundTrips) -> None:
    store = ahead(rounds)
    store.put_new("new", b"1")
    store.replace("new", b"2")
    store.create("other", b"3")
    store.delete("other")
    assert [found.path for found in store.list_after("n")] == ["new"]
    assert store.get("new") == b"2"
    assert store.url == rounds.store.url
    assert not store.hold("new")
