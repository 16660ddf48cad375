"""Who counts in memory counts for one process: a fork of it would count the same again.

It guards I7 across fork(2): sequences and transaction numbers of a producer that two processes use
would name different records by one name, and all but the first would pass for repeats.
"""

from __future__ import annotations

from txlog.errors import IllegalTransition


def in_a_fork(what: str, method: str) -> IllegalTransition:
    """The error of a method that is called in another process than the object was made in."""
    return IllegalTransition(
        f"{method}() is not possible: this {what} was made in another process, which was forked, "
        f"and what both send could not be told apart. Nothing was written; make a {what} in each "
        "process, after the fork."
    )
