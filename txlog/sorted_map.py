"""Sorted maps that never change: an update returns another map, which shares almost all with it.

The state of a journal is a value, and each event leads to another one, so an update must cost what
it changes and not what the map holds. A map is a tree: its leaves are small dictionaries in the
order of their keys, its nodes are lists of leaves or of nodes, and all leaves are equally deep. An
update copies one leaf and the nodes above it; a lookup is a binary search in each of these nodes.
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


class _Leaf(dict[Any, Any]):
    """A few items in the order of their keys, which do not change once they are in a map."""

    __slots__ = ("made",)

    made: Any
    """What `by_leaf` has made of them; unset before."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _Leaf, (list(self.items()),)

    def first(self) -> Any:
        """The lowest key."""
        return next(iter(self))

    def copy(self) -> _Leaf:
        """A leaf that may be changed."""
        return _Leaf(self)

    def split(self, at: int) -> _Leaf:
        """Take away the items from `at` on, and return them as another leaf."""
        pairs = list(self.items())
        self.clear()
        self.update(pairs[:at])
        return _Leaf(pairs[at:])

    def join(self, right: _Leaf) -> None:
        """Take in the items of the leaf to the right."""
        self.update(right)


class _Node:
    """Parts in the order of their keys, and the first key of each. It has at least one part; it
    does not change once it is in a map."""

    __slots__ = ("firsts", "parts")

    def __init__(self, parts: list[_Part], firsts: list[Any] | None = None) -> None:
        self.parts = parts
        self.firsts = [part.first() for part in parts] if firsts is None else firsts

    def __len__(self) -> int:
        return len(self.parts)

    def place(self, key: Any) -> int:
        """Where the part is that has the key, if any has it."""
        return max(bisect_right(self.firsts, key) - 1, 0)

    def first(self) -> Any:
        """The lowest key."""
        return self.firsts[0]

    def copy(self) -> _Node:
        """A node that may be changed."""
        return _Node(self.parts.copy(), self.firsts.copy())

    def split(self, at: int) -> _Node:
        """Take away the parts from `at` on, and return them as another node."""
        right = _Node(self.parts[at:], self.firsts[at:])
        del self.parts[at:], self.firsts[at:]
        return right

    def join(self, right: _Node) -> None:
        """Take in the parts of the node to the right."""
        self.parts += right.parts
        self.firsts += right.firsts


_Part: TypeAlias = _Leaf | _Node


def _tree(pairs: list[tuple[Any, Any]]) -> _Part:
    """A tree of items that are in order, of which there is at least one."""
    parts: list[_Part] = [_Leaf(pairs[at : at + LEAF_MAX]) for at in range(0, len(pairs), LEAF_MAX)]
    while len(parts) > 1:
        parts = [_Node(parts[at : at + LEAF_MAX]) for at in range(0, len(parts), LEAF_MAX)]
    return parts[0]


def _leaves(part: _Part) -> Iterator[_Leaf]:
    """The leaves of a tree, in order."""
    if isinstance(part, _Leaf):
        yield part
        return
    for below in part.parts:
        yield from _leaves(below)


class SortedMap(Mapping[K, V_co]):
    """An immutable mapping in the order of its keys, which must be comparable with each other."""

    __slots__ = ("_root", "_size")

    def __init__(self, items: Mapping[K, V_co] | Iterable[tuple[K, V_co]] = ()) -> None:
        self._fill(dict(items))

    def _fill(self, items: Mapping[Any, Any]) -> None:
        pairs = sorted(items.items(), key=itemgetter(0))
        self._root = _Leaf(pairs) if len(pairs) <= LEAF_MAX else _tree(pairs)
        self._size = len(items)

    def changed(self, gone: Iterable[K], items: Mapping[K, Any]) -> Self:
        """The map without the keys `gone`, which it need not have, and with these items."""
        made, root = object.__new__(type(self)), self._root
        if type(root) is _Leaf and len(root) + len(items) <= LEAF_MAX:  # As most maps are.
            leaf = _Leaf(root)
            for key in gone:
                leaf.pop(key, None)
            for key, value in items.items():
                if key in leaf or not leaf or key > next(reversed(leaf)):
                    leaf[key] = value
                else:
                    pairs = list(leaf.items())
                    pairs.insert(bisect_left(list(leaf), key), (key, value))
                    leaf = _Leaf(pairs)
            made._root = leaf
            made._size = len(leaf)
            return made
        # More than an item for each leaf or so: each would copy a leaf, and most leaves change. Or
        # so many are gone that to copy the others costs less than to look for each.
        gone = frozenset(gone)
        if len(items) > max(LEAF_MAX, self._size // LEAF_MAX) or len(gone) > self._size // 16:
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
        while isinstance(part, _Node):
            at = part.place(key)
            right += reversed(part.parts[at + 1 :])
            part = part.parts[at]
        keys = list(part)
        keys = keys[bisect_left(keys, key) :]
        yield from zip(keys, map(part.__getitem__, keys), strict=True)
        while right:
            yield from chain.from_iterable(leaf.items() for leaf in _leaves(right.pop()))

    def by_leaf(self, make: Callable[[Iterable[tuple[K, V_co]]], T]) -> Iterator[T]:
        """What `make` returns for the items of each leaf, in order. It is called once for a leaf,
        which later maps share, so all maps of one kind must pass the same function."""
        for leaf in _leaves(self._root) if self._size else ():
            if not hasattr(leaf, "made"):
                leaf.made = make(leaf.items())
            yield leaf.made

    def first_key(self) -> K | None:
        """The lowest key; None if the map is empty."""
        return self._root.first() if self._size else None

    def last_key(self) -> K | None:
        """The highest key; None if the map is empty."""
        part = self._root
        while isinstance(part, _Node):
            part = part.parts[-1]
        return next(reversed(part), None)

    @overload
    def get(self, key: K, /) -> V_co | None: ...

    @overload
    def get(self, key: K, /, default: V_co | T) -> V_co | T: ...

    def get(self, key: K, /, default: Any = None) -> Any:
        """The value of the key, or `default`."""
        part = self._root
        while isinstance(part, _Node):
            part = part.parts[part.place(key)]
        return part.get(key, default)

    def __getitem__(self, key: K) -> V_co:
        part = self._root
        while isinstance(part, _Node):
            part = part.parts[part.place(key)]
        value: V_co = part[key]
        return value

    def __contains__(self, key: object) -> bool:
        part = self._root
        while isinstance(part, _Node):
            part = part.parts[part.place(key)]
        return key in part

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(_leaves(self._root))

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
        return chain.from_iterable(leaf.items() for leaf in _leaves(self._mapping._root))


class _Values(ValuesView[V_co]):
    _mapping: SortedMap[Any, V_co]

    def __iter__(self) -> Iterator[V_co]:
        return chain.from_iterable(leaf.values() for leaf in _leaves(self._mapping._root))


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
        self.root = self._own(self.root)
        right = self._put(self.root, key, value)
        if right is not None:
            self.root = self._new(_Node([self.root, right]))

    def _put(self, part: _Part, key: Any, value: Any) -> _Part | None:
        """Change a part of this draft. It returns what no longer fits in it, to its right."""
        if isinstance(part, _Node):
            at = part.place(key)
            part.parts[at] = below = self._own(part.parts[at])
            right = self._put(below, key, value)
            part.firsts[at] = below.first()
            if right is None:
                return None
            part.parts.insert(at + 1, right)
            part.firsts.insert(at + 1, right.first())
            is_last = at + 2 == len(part)
        elif key in part:
            part[key] = value
            return None
        else:
            self.size += 1
            is_last = not part or key > next(reversed(part))
            after = None if is_last else part.split(bisect_left(list(part), key))
            part[key] = value
            if after is not None:
                part.join(after)
        if len(part) <= LEAF_MAX:
            return None
        # Rising keys fill their leaves.
        return self._new(part.split(LEAF_MAX if is_last else LEAF_MAX // 2))

    def remove(self, key: Any) -> None:
        """Remove an item, if it is there."""
        part = self.root
        while isinstance(part, _Node):
            part = part.parts[part.place(key)]
        if key not in part:
            return
        self.size -= 1
        self.root = self._own(self.root)
        self._remove(self.root, key)
        while isinstance(self.root, _Node) and len(self.root) <= 1:
            self.root = self.root.parts[0] if self.root else _Leaf()

    def _remove(self, part: _Part, key: Any) -> None:
        """Remove an item that is in this part of the draft."""
        if isinstance(part, _Leaf):
            del part[key]
            return
        at = part.place(key)
        part.parts[at] = below = self._own(part.parts[at])
        self._remove(below, key)
        if not below:
            del part.parts[at], part.firsts[at]
            return
        part.firsts[at] = below.first()
        # Parts that became small are merged, or a map would keep a leaf for each few items.
        for left in (at, at - 1):
            pair: list[Any] = part.parts[max(left, 0) : left + 2]
            if len(pair) == 2 and sum(map(len, pair)) <= LEAF_MAX // 2:
                part.parts[left] = joined = self._own(pair[0])
                joined.join(pair[1])
                del part.parts[left + 1], part.firsts[left + 1]
                return

    def _own(self, part: Any) -> Any:
        return part if id(part) in self._owned else self._new(part.copy())

    def _new(self, part: _Part) -> _Part:
        self._owned.add(id(part))
        return part


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
