"""Sorted maps behave as sorted dictionaries, and an update leaves the map that it began with."""

import pickle
from collections.abc import Iterator
from random import Random

import pytest

from txlog import sorted_map
from txlog.sorted_map import LEAF_MAX, IndexedMap, SortedMap, _leaves, _Part


def model_from(model: dict[int, int], key: int) -> list[tuple[int, int]]:
    return sorted(item for item in model.items() if item[0] >= key)


@pytest.mark.parametrize("leaf_max", [LEAF_MAX, 2, 4])
@pytest.mark.parametrize("spread", [LEAF_MAX // 8, 20 * LEAF_MAX])
def test_random_updates_lead_to_the_items_of_a_dictionary(
    monkeypatch: pytest.MonkeyPatch, leaf_max: int, spread: int
) -> None:
    """Small leaves and nodes make a tree of many levels."""
    monkeypatch.setattr(sorted_map, "LEAF_MAX", leaf_max)
    random = Random(spread)
    found: SortedMap[int, int] = SortedMap()
    model: dict[int, int] = {}
    for step in range(2000):
        size = random.choice((1, 1, 1, 40))
        keys = [random.randrange(spread) for _ in range(size)]
        before, known = found, dict(model)
        if random.random() < (0.3 if step < 1200 else 0.7):
            found = found.without(keys)
            for key in keys:
                model.pop(key, None)
        else:
            found = found.with_items(dict.fromkeys(keys, step))
            model.update(dict.fromkeys(keys, step))
        probe = random.randrange(spread)
        assert (found.get(probe), probe in found) == (model.get(probe), probe in model)
        if not step % 50:
            assert dict(before) == known
            assert list(found.items()) == sorted(model.items())
            assert list(found.items_from(probe)) == model_from(model, probe)
            assert (found.first_key(), found.last_key()) == (
                min(model, default=None),
                max(model, default=None),
            )
            assert len(found) == len(model)
    for key in tuple(found):
        found = found.without([key])
        model.pop(key)
        assert (found.first_key(), len(found)) == (min(model, default=None), len(model))
    assert (found._root.height, found._root.keys) == (0, [])


def test_update_of_a_large_map_copies_a_leaf_and_the_nodes_above_it() -> None:
    found: SortedMap[int, int] = SortedMap((key, key) for key in range(0, 300_000, 3))
    known = set(map(id, _parts(found._root)))
    for made in (found.with_item(150_001, 0), found.without([150_000]), found.with_item(0, 9)):
        new = [part for part in _parts(made._root) if id(part) not in known]
        assert 2 <= len(new) <= 5  # Two of them are halves.
        assert sum(len(part.keys) for part in new) <= 3 * (LEAF_MAX + 1)


def _parts(part: _Part) -> Iterator[_Part]:
    yield part
    for below in part.held if part.height else ():
        yield from _parts(below)


@pytest.mark.parametrize("order", [1, -1])
def test_items_in_either_order_fill_their_leaves(order: int) -> None:
    found: SortedMap[int, int] = SortedMap()
    for key in range(0, order * 10 * LEAF_MAX, order):
        found = found.with_item(key, key)
    assert list(found) == sorted(found.values())
    assert len(list(_leaves(found._root))) <= 20


def test_removal_of_most_items_leaves_few_leaves() -> None:
    found = SortedMap((key, key) for key in range(40 * LEAF_MAX))
    for key in range(40 * LEAF_MAX):
        if key % LEAF_MAX:
            found = found.without([key])
    assert len(found) == 40
    assert len(list(_leaves(found._root))) <= 2


def test_missing_key_raises_key_error() -> None:
    for found in (SortedMap[int, int](), SortedMap({5: 1})):
        for key in (0, 9):
            with pytest.raises(KeyError):
                found[key]
            assert found.get(key, 7) == 7


def _entries(key: int, value: str) -> Iterator[tuple[str, int]]:
    yield from ((letter, key) for letter in value)


def test_index_follows_every_update() -> None:
    random = Random(1)
    found = IndexedMap(_entries, {3: "ab"})
    for step in range(600):
        keys = [random.randrange(50) for _ in range(random.choice((1, 5)))]
        if step % 3:
            found = found.with_items({key: random.choice(("", "a", "bc", "cb")) for key in keys})
        else:
            found = found.without(keys)
        expected = sorted({entry for item in found.items() for entry in _entries(*item)})
        assert list(found.indexed()) == expected
        assert list(found.indexed("b")) == [entry for entry in expected if entry[0] == "b"]
        from_20 = [entry for entry in expected if entry[0] == "b" and entry[1] >= 20]
        assert list(found.indexed("b", 20, equal=1)) == from_20
    again = pickle.loads(pickle.dumps(found)).with_item(99, "b")
    assert [*again.indexed("b")] == [*found.indexed("b"), ("b", 99)]


@pytest.mark.parametrize("size", [0, 10, 20_000])
@pytest.mark.parametrize("count", [1, LEAF_MAX, LEAF_MAX + 1, 5_000])
def test_change_of_many_items_equals_one_of_each(size: int, count: int) -> None:
    """Built anew or leaf by leaf, which the number of items decides."""
    before = {3 * number: number for number in range(size)}
    items = {7 * number + 1: -number for number in range(count)}
    gone = [0, 1, 9, 10**9]
    expected = {key: value for key, value in before.items() if key not in gone} | items
    made = SortedMap(before).changed(gone, items)
    assert list(made.items()) == sorted(expected.items())
    assert len(made) == len(expected)
    index = IndexedMap(by_last_digit, before).changed(gone, items)
    assert list(index.indexed()) == sorted(
        e for item in expected.items() for e in by_last_digit(*item)
    )


def by_last_digit(key: int, value: int) -> list[tuple[int, int]]:
    return [(value % 10, key)]
