"""Cycles in a graph: of transactions, or of their moments. It must not know what the edges mean."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def cycles(edges: Mapping[Node, set[Node]]) -> Iterator[list[Node]]:
    """One cycle for each node that is first seen to lead back to one on its own way.

    `edges` lead from a node to those that come after it. Depth first, without recursion.
    """
    done: set[Node] = set()
    for root in sorted(edges, key=str):
        way: list[Node] = []
        stack: list[tuple[Node, Iterator[Node]]] = []
        if root not in done:
            way.append(root)
            stack.append((root, iter(sorted(edges.get(root, ()), key=str))))
        while stack:
            node, following = stack[-1]
            successor = next(following, None)
            if successor is None:
                done.add(node)
                way.pop()
                stack.pop()
            elif successor in way:
                yield [*way[way.index(successor) :], successor]
            elif successor not in done:
                way.append(successor)
                stack.append((successor, iter(sorted(edges.get(successor, ()), key=str))))
