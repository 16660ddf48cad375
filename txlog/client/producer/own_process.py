"""Refuses objects in a forked process, because parent and child would count the same numbers.

It guards I7 across fork(2): if two processes used one producer, its sequences and transaction
numbers would name different records equally, and all but the first would pass for repeats.
"""

from __future__ import annotations

from txlog.errors import IllegalTransition


def in_a_fork(what: str, method: str) -> IllegalTransition:
    """The error for a method that is called in another process than the object's own."""
    return IllegalTransition(
        f"{method}() is not possible: this {what} was made in another process, which was forked, "
        f"and what both send could not be told apart. Nothing was written; make a {what} in each "
        "process, after the fork."
    )
