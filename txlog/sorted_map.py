"""Sorted maps that never change: an update returns another map, which shares almost all with it.

The state of a journal is a value, and each event leads to another one, so an update must cost what
it changes and not what the map holds. A map is a tuple of small dictionaries ("leaves") in the
order of their keys. An update copies one leaf and the tuple; a lookup is a binary search in the
tuple and a lookup in a leaf. The order of iteration is that of the keys, whatever led to the map.
This module must not know what the keys mean.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from itertools import chain
from operator import itemgetter
from typing import Any, Self, TypeAlias, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
V_co = TypeVar("V_co", covariant=True)

LEAF_MAX = 128
"""Items of a leaf. An update of a map of n items copies up to so many, and n / 64 references."""

IndexEntry: TypeAlias = tuple[Any, ...]


class _Leaf(dict[Any, Any]):
    """A few items in the order of their keys, which do not change once they are in a map."""

    __slots__ = ("made",)

    made: Any
    """What `by_leaf` has made of them; unset before."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _Leaf, (list(self.items()),)


class SortedMap(Mapping[K, V_co]):
    """An immutable mapping in the order of its keys, which must be comparable with each other."""

    __slots__ = ("_firsts", "_leaves", "_size")

    def __init__(self, items: Mapping[K, V_co] | Iterable[tuple[K, V_co]] = ()) -> None:
        self._fill(dict(items))

    def _fill(self, items: Mapping[Any, Any]) -> None:
        pairs = sorted(items.items(), key=itemgetter(0))
        leaves = [_Leaf(pairs[at : at + LEAF_MAX]) for at in range(0, len(pairs), LEAF_MAX)]
        self._firsts = tuple(next(iter(leaf)) for leaf in leaves)
        self._leaves = tuple(leaves)
        self._size = len(pairs)

    def changed(self, gone: Iterable[K], items: Mapping[K, Any]) -> Self:
        """The map without the keys `gone`, which it need not have, and with these items."""
        made = object.__new__(type(self))
        # More than an item for each leaf or so: each would copy a leaf, and most leaves change.
        if len(items) > max(LEAF_MAX, self._size // LEAF_MAX):
            gone = frozenset(gone)
            kept = {key: value for key, value in self.items() if key not in gone}
            made._fill({**kept, **items})
            return made
        draft = _Draft(self._firsts, self._leaves, self._size)
        for key in gone:
            draft.remove(key)
        for key, value in items.items():
            draft.put(key, value)
        made._firsts, made._leaves = tuple(draft.firsts), tuple(draft.leaves)
        made._size = draft.size
        return made

    def with_items(self, items: Mapping[K, Any]) -> Self:
        """The map with these items added or replaced."""
        return self.changed((), items)

    def with_item(self, key: K, value: Any) -> Self:
        """The map with one item added or replaced."""
        return self.changed((), {key: value})

    def without(self, keys: Iterable[K]) -> Self:
        """The map without these keys, which it need not have."""
        return self.changed(keys, {})

    def items_from(self, key: Any) -> Iterator[tuple[K, V_co]]:
        """The items from that key on, in order. A tuple is below those that it is the start of."""
        at = max(bisect_right(self._firsts, key) - 1, 0)
        for leaf in self._leaves[at : at + 1]:
            keys = list(leaf)
            yield from ((found, leaf[found]) for found in keys[bisect_left(keys, key) :])
        for leaf in self._leaves[at + 1 :]:
            yield from leaf.items()

    def by_leaf(self, make: Callable[[Iterable[tuple[K, V_co]]], T]) -> Iterator[T]:
        """What `make` returns for the items of each leaf, in order. It is called once for a leaf,
        which later maps share, so all maps of one kind must pass the same function."""
        for leaf in self._leaves:
            if not hasattr(leaf, "made"):
                leaf.made = make(leaf.items())
            yield leaf.made

    def first_key(self) -> K | None:
        """The lowest key; None if the map is empty."""
        return self._firsts[0] if self._firsts else None

    def last_key(self) -> K | None:
        """The highest key; None if the map is empty."""
        return next(reversed(self._leaves[-1])) if self._leaves else None

    @overload
    def get(self, key: K, /) -> V_co | None: ...

    @overload
    def get(self, key: K, /, default: V_co | T) -> V_co | T: ...

    def get(self, key: K, /, default: Any = None) -> Any:
        """The value of the key, or `default`."""
        at = bisect_right(self._firsts, key) - 1
        return default if at < 0 else self._leaves[at].get(key, default)

    def __getitem__(self, key: K) -> V_co:
        at = bisect_right(self._firsts, key) - 1
        if at < 0:
            raise KeyError(key)
        value: V_co = self._leaves[at][key]
        return value

    def __contains__(self, key: object) -> bool:
        at = bisect_right(self._firsts, key) - 1
        return at >= 0 and key in self._leaves[at]

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self._leaves)

    def __len__(self) -> int:
        return self._size

    def items(self) -> ItemsView[K, V_co]:
        """The items, in order."""
        return _Items(self)

    def values(self) -> ValuesView[V_co]:
        """The values, in the order of their keys."""
        return _Values(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)!r})"


class _Items(ItemsView[K, V_co]):
    _mapping: SortedMap[K, V_co]

    def __iter__(self) -> Iterator[tuple[K, V_co]]:
        return chain.from_iterable(leaf.items() for leaf in self._mapping._leaves)


class _Values(ValuesView[V_co]):
    _mapping: SortedMap[Any, V_co]

    def __iter__(self) -> Iterator[V_co]:
        return chain.from_iterable(leaf.values() for leaf in self._mapping._leaves)


class _Draft:
    """A map under construction. Each leaf is copied once, when it is first changed."""

    def __init__(self, firsts: tuple[Any, ...], leaves: tuple[_Leaf, ...], size: int) -> None:
        self.firsts = list(firsts)
        self.leaves = list(leaves)
        self.size = size
        self._owned: set[int] = set()
        """Ids of the leaves that are this draft's own. They live as long as the draft."""

    def put(self, key: Any, value: Any) -> None:
        if not self.leaves:
            self._insert(0, _Leaf({key: value}))
            self.size = 1
            return
        at = max(bisect_right(self.firsts, key) - 1, 0)
        leaf = self._own(at)
        if key in leaf:
            leaf[key] = value
            return
        self.size += 1
        is_last = key > next(reversed(leaf))
        if is_last and len(leaf) >= LEAF_MAX and at == len(self.leaves) - 1:
            self._insert(at + 1, _Leaf({key: value}))  # So that rising keys fill their leaves.
            return
        if is_last and len(leaf) < LEAF_MAX:
            leaf[key] = value
            return
        pairs = list(leaf.items())
        pairs.insert(bisect_left(list(leaf), key), (key, value))
        half = len(pairs) if len(pairs) <= LEAF_MAX else LEAF_MAX // 2
        self._replace(at, _Leaf(pairs[:half]))
        if pairs[half:]:
            self._insert(at + 1, _Leaf(pairs[half:]))

    def remove(self, key: Any) -> None:
        at = bisect_right(self.firsts, key) - 1
        if at < 0 or key not in self.leaves[at]:
            return
        leaf = self._own(at)
        del leaf[key]
        self.size -= 1
        # Leaves that became small are merged, or a map would keep a leaf for each few items.
        for first in (at, at - 1):
            pair = self.leaves[max(first, 0) : first + 2]
            if len(pair) == 2 and sum(map(len, pair)) <= LEAF_MAX // 2:
                del self.leaves[first], self.firsts[first]
                self._replace(first, _Leaf({**pair[0], **pair[1]}))
                return
        if leaf:
            self.firsts[at] = next(iter(leaf))
        else:
            del self.leaves[at], self.firsts[at]

    def _own(self, at: int) -> _Leaf:
        if id(self.leaves[at]) not in self._owned:
            self._replace(at, _Leaf(self.leaves[at]))
        return self.leaves[at]

    def _insert(self, at: int, leaf: _Leaf) -> None:
        self.leaves.insert(at, leaf)
        self.firsts.insert(at, None)
        self._replace(at, leaf)

    def _replace(self, at: int, leaf: _Leaf) -> None:
        self.leaves[at] = leaf
        self.firsts[at] = next(iter(leaf))
        self._owned.add(id(leaf))


class IndexedMap(SortedMap[K, V]):
    """A sorted map with an index of its items, which each update brings up to date.

    `entries_of` names the index entries of an item: tuples, of which those that begin with equal
    values are comparable. It must be a function of a module, so that a state can be pickled.
    """

    __slots__ = ("_entries_of", "_index")

    def __init__(
        self,
        entries_of: Callable[[K, V], Iterable[IndexEntry]],
        items: Mapping[K, V] | Iterable[tuple[K, V]] = (),
    ) -> None:
        super().__init__(items)
        self._entries_of = entries_of
        self._index: SortedMap[IndexEntry, None] = SortedMap(
            (entry, None) for item in self.items() for entry in entries_of(*item)
        )

    def indexed(self, *prefix: Any) -> Iterator[IndexEntry]:
        """The index entries that begin with these values, in order."""
        return self.indexed_from(prefix, len(prefix))

    def indexed_from(self, entry: IndexEntry, equal: int) -> Iterator[IndexEntry]:
        """The index entries from this one on whose first `equal` values are its own, in order."""
        prefix = entry[:equal]
        for found, _ in self._index.items_from(entry):
            if found[:equal] != prefix:
                return
            yield found

    def changed(self, gone: Iterable[K], items: Mapping[K, V]) -> Self:
        """The map without the keys `gone`, which it need not have, and with these items."""
        gone = tuple(gone)
        made = super().changed(gone, items)
        entries_of = made._entries_of = self._entries_of
        before = {e for key in (*gone, *items) if key in self for e in entries_of(key, self[key])}
        after = {entry for item in items.items() for entry in entries_of(*item)}
        made._index = self._index
        if before != after:
            made._index = self._index.changed(before - after, dict.fromkeys(after - before))
        return made
