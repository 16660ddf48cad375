"""Sorted maps that never change: an update returns another map, which shares almost all with it.

The state of a journal is a value, and each event leads to another one, so an update must cost what
it changes and not what the map holds. A map is a tree: its leaves have items in the order of their
keys, its nodes have leaves or nodes, and all leaves are equally deep. An update copies one leaf and
the nodes above it; a lookup is a binary search in each of them. Keys are compared and not hashed,
as a state has many keys whose hash is a call of Python.
The order of iteration is that of the keys, whatever led to the map. This module must not know what
the keys mean.
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
"""Items of a leaf, and parts of a node. An update copies up to so many for each level."""

IndexEntry: TypeAlias = tuple[Any, ...]

_ABSENT: Any = object()


class _Part:
    """A leaf or a node: keys in order, and beside each what belongs to it. In a leaf that is its
    value, in a node the part that begins with it. It does not change once it is in a map."""

    __slots__ = ("height", "held", "keys", "made")

    made: Any
    """What `by_leaf` has made of a leaf; unset before."""

    def __init__(self, height: int, keys: list[Any], held: list[Any]) -> None:
        self.height = height
        """0 of a leaf. A node has at least one part."""
        self.keys = keys
        self.held = held

    def __reduce__(self) -> tuple[Any, ...]:
        return _Part, (self.height, self.keys, self.held)

    def below(self, key: Any) -> int:
        """Where a node has the part that has the key, if any has it."""
        return max(bisect_right(self.keys, key) - 1, 0)

    def leaf(self, key: Any) -> _Part:
        """The leaf below this part, or itself, that has the key, if any has it."""
        part = self
        while part.height:
            part = part.held[part.below(key)]
        return part

    def copy(self) -> _Part:
        """A part that may be changed."""
        return _Part(self.height, self.keys.copy(), self.held.copy())

    def split(self, at: int) -> _Part:
        """Take away what is from `at` on, and return it as another part."""
        right = _Part(self.height, self.keys[at:], self.held[at:])
        del self.keys[at:], self.held[at:]
        return right

    def join(self, right: _Part) -> None:
        """Take in what the part to the right has."""
        self.keys += right.keys
        self.held += right.held

    def place(self, key: Any) -> int:
        """Where a leaf has the key; -1 if it does not."""
        at = bisect_left(self.keys, key)
        return at if at < len(self.keys) and self.keys[at] == key else -1

    def put(self, key: Any, held: Any) -> bool:
        """Add or replace what belongs to a key; returns whether the key is new."""
        keys, at = self.keys, bisect_left(self.keys, key)
        is_new = at == len(keys) or keys[at] != key
        keys[at : at + (not is_new)] = (key,)
        self.held[at : at + (not is_new)] = (held,)
        return is_new

    def remove(self, at: int) -> None:
        """Remove the key at that place, and what belongs to it."""
        del self.keys[at], self.held[at]


_EMPTY = _Part(0, [], [])


def _tree(pairs: list[tuple[Any, Any]]) -> _Part:
    """A tree of items that are in order."""
    keys, held = [key for key, _ in pairs], [value for _, value in pairs]
    height = 0
    while len(keys) > LEAF_MAX:
        parts = [
            _Part(height, keys[at : at + LEAF_MAX], held[at : at + LEAF_MAX])
            for at in range(0, len(keys), LEAF_MAX)
        ]
        keys, held, height = [part.keys[0] for part in parts], parts, height + 1
    return _Part(height, keys, held)


def _leaves(part: _Part) -> Iterator[_Part]:
    """The leaves of a tree, in order."""
    if not part.height:
        yield part
        return
    for below in part.held:
        yield from _leaves(below)


class SortedMap(Mapping[K, V_co]):
    """An immutable mapping in the order of its keys, which must be comparable with each other."""

    __slots__ = ("_root", "_size")

    def __init__(self, items: Mapping[K, V_co] | Iterable[tuple[K, V_co]] = ()) -> None:
        self._root, self._size = _EMPTY, 0
        if found := dict(items):
            self._fill(found)

    def _fill(self, items: Mapping[Any, Any]) -> None:
        self._root = _tree(sorted(items.items(), key=itemgetter(0)))
        self._size = len(items)

    def changed(self, gone: Iterable[K], items: Mapping[K, Any]) -> Self:
        """The map without the keys `gone`, which it need not have, and with these items."""
        made, root = object.__new__(type(self)), self._root
        if not root.height and len(root.keys) + len(items) <= LEAF_MAX:  # As most maps are.
            keys, held = root.keys.copy(), root.held.copy()
            for key in gone:
                at = bisect_left(keys, key)
                if at < len(keys) and keys[at] == key:
                    del keys[at], held[at]
            for key, value in items.items():
                at = bisect_left(keys, key)
                is_new = at == len(keys) or keys[at] != key
                keys[at : at + (not is_new)] = (key,)
                held[at : at + (not is_new)] = (value,)
            made._root, made._size = _Part(0, keys, held), len(keys)
            return made
        # More than an item for each leaf or so: each would copy a leaf, and most leaves change. Or
        # so many are gone that to copy the others costs less than to look for each.
        gone = frozenset(gone) if root.height else tuple(gone)
        many = len(items) > max(LEAF_MAX, self._size // LEAF_MAX)
        if many or (root.height and len(gone) > self._size // 16):
            kept = {key: value for key, value in self.items() if key not in gone}
            made._fill({**kept, **items})
            return made
        draft = _Draft(root, self._size)
        for key in gone:
            draft.remove(key)
        for key, value in items.items():
            draft.put(key, value)
        made._root, made._size = draft.root, draft.size
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
        part, right = self._root, list[_Part]()
        while part.height:
            at = part.below(key)
            right += reversed(part.held[at + 1 :])
            part = part.held[at]
        at = bisect_left(part.keys, key)
        yield from zip(part.keys[at:], part.held[at:], strict=True)
        while right:
            for leaf in _leaves(right.pop()):
                yield from zip(leaf.keys, leaf.held, strict=True)

    def by_leaf(self, make: Callable[[Iterable[tuple[K, V_co]]], T]) -> Iterator[T]:
        """What `make` returns for the items of each leaf, in order. It is called once for a leaf,
        which later maps share, so all maps of one kind must pass the same function."""
        for leaf in _leaves(self._root) if self._size else ():
            if not hasattr(leaf, "made"):
                leaf.made = make(zip(leaf.keys, leaf.held, strict=True))
            yield leaf.made

    def first_key(self) -> K | None:
        """The lowest key; None if the map is empty."""
        return self._root.keys[0] if self._size else None

    def last_key(self) -> K | None:
        """The highest key; None if the map is empty."""
        part = self._root
        while part.height:
            part = part.held[-1]
        return part.keys[-1] if self._size else None

    @overload
    def get(self, key: K, /) -> V_co | None: ...

    @overload
    def get(self, key: K, /, default: V_co | T) -> V_co | T: ...

    def get(self, key: K, /, default: Any = None) -> Any:
        """The value of the key, or `default`."""
        # Without a call for each step, as the rules look up several values for each command.
        part = self._root
        while part.height:
            part = part.held[max(bisect_right(part.keys, key) - 1, 0)]
        at = bisect_left(part.keys, key)
        return part.held[at] if at < len(part.keys) and part.keys[at] == key else default

    def __getitem__(self, key: K) -> V_co:
        part = self._root  # As in `get`.
        while part.height:
            part = part.held[max(bisect_right(part.keys, key) - 1, 0)]
        at = bisect_left(part.keys, key)
        if at == len(part.keys) or part.keys[at] != key:
            raise KeyError(key)
        found: V_co = part.held[at]
        return found

    def __contains__(self, key: object) -> bool:
        return self.get(key, _ABSENT) is not _ABSENT  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(leaf.keys for leaf in _leaves(self._root))

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
        leaves = _leaves(self._mapping._root)
        return chain.from_iterable(zip(leaf.keys, leaf.held, strict=True) for leaf in leaves)


class _Values(ValuesView[V_co]):
    _mapping: SortedMap[Any, V_co]

    def __iter__(self) -> Iterator[V_co]:
        return chain.from_iterable(leaf.held for leaf in _leaves(self._mapping._root))


class _Draft:
    """A map under construction. Each leaf and node is copied once, when it is first changed."""

    def __init__(self, root: _Part, size: int) -> None:
        self.root = root
        self.size = size
        self._owned: set[int] = set()
        """Ids of the parts that are this draft's own. They live as long as the draft, or their
        ids go to other parts of it."""

    def put(self, key: Any, value: Any) -> None:
        """Add or replace an item."""
        self.root = root = self._own(self.root)
        right = self._put(root, key, value)
        if right is not None:
            parts = [root, right]
            self.root = self._new(_Part(root.height + 1, [part.keys[0] for part in parts], parts))

    def _put(self, part: _Part, key: Any, value: Any) -> _Part | None:
        """Change a part of this draft. It returns what no longer fits in it, to its right."""
        keys = part.keys
        if part.height:
            at = part.below(key)
            part.held[at] = below = self._own(part.held[at])
            value = self._put(below, key, value)
            keys[at] = below.keys[0]
            if value is None:
                return None
            key = value.keys[0]
            part.put(key, value)
        else:
            self.size += part.put(key, value)
        if len(keys) <= LEAF_MAX:
            return None
        # Rising keys fill their leaves.
        return self._new(part.split(LEAF_MAX if keys[-1] is key else LEAF_MAX // 2))

    def remove(self, key: Any) -> None:
        """Remove an item, if it is there."""
        if self.root.leaf(key).place(key) < 0:
            return
        self.size -= 1
        self.root = self._own(self.root)
        self._remove(self.root, key)
        while self.root.height and len(self.root.keys) <= 1:
            self.root = self.root.held[0] if self.root.keys else _Part(0, [], [])

    def _remove(self, part: _Part, key: Any) -> None:
        """Remove an item that is in this part of the draft."""
        if not part.height:
            part.remove(part.place(key))
            return
        at, held = part.below(key), part.held
        held[at] = below = self._own(held[at])
        self._remove(below, key)
        if not below.keys:
            part.remove(at)
            return
        part.keys[at] = below.keys[0]
        # Parts that became small are merged, or a map would keep a leaf for each few items.
        for left in (at, at - 1):
            pair = held[max(left, 0) : left + 2]
            if len(pair) == 2 and sum(len(each.keys) for each in pair) <= LEAF_MAX // 2:
                held[left] = joined = self._own(pair[0])
                joined.join(pair[1])
                part.remove(left + 1)
                return

    def _own(self, part: _Part) -> _Part:
        return part if id(part) in self._owned else self._new(part.copy())

    def _new(self, part: _Part) -> _Part:
        self._owned.add(id(part))
        return part


_NO_ENTRIES: SortedMap[IndexEntry, None] = SortedMap()


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
        self._index = _NO_ENTRIES
        if self._size:
            entries = (entry for item in self.items() for entry in entries_of(*item))
            self._index = SortedMap(dict.fromkeys(entries))

    def indexed(self, *entry: Any, equal: int | None = None) -> Iterator[IndexEntry]:
        """The index entries that begin with these values, in order; with `equal` those from this
        entry on whose first values, so many, are its own."""
        prefix = entry[:equal]
        for found, _ in self._index.items_from(entry):
            if found[: len(prefix)] != prefix:
                return
            yield found

    def changed(self, gone: Iterable[K], items: Mapping[K, V]) -> Self:
        """The map without the keys `gone`, which it need not have, and with these items."""
        gone = tuple(gone)
        entries_of = self._entries_of
        known = [(key, self.get(key, _ABSENT)) for key in (*gone, *items)]
        before = {e for item in known if item[1] is not _ABSENT for e in entries_of(*item)}
        after = {entry for item in items.items() for entry in entries_of(*item)}
        made = super().changed(gone, items)
        made._entries_of, made._index = entries_of, self._index
        if before != after:
            made._index = self._index.changed(before - after, dict.fromkeys(after - before))
        return made
