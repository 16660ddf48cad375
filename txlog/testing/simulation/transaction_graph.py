"""Cycles among transactions: who wrote before whom, who read from whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def cycles(edges: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """One cycle for each transaction that is first seen to lead back to one on its own way.

    `edges` lead from a transaction to those that depend on it. Depth first, without recursion.
    """
    done: set[str] = set()
    for root in sorted(edges):
        way: list[str] = []
        stack: list[tuple[str, Iterator[str]]] = []
        if root not in done:
            way.append(root)
            stack.append((root, iter(sorted(edges.get(root, ())))))
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
                stack.append((successor, iter(sorted(edges.get(successor, ())))))
