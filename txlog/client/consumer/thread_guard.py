"""Refuses a consumer that two threads use at once, as KafkaConsumer does: they would get the same
records, and their positions would no longer be those of one reader. It must not know what the
methods do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from txlog.errors import IllegalTransition

P = ParamSpec("P")
R = TypeVar("R")


class Guarded(Protocol):
    """An object for one thread at a time."""

    _in_use: threading.RLock
    """Held while a method runs. Reentrant: a method may call another one."""


S = TypeVar("S", bound=Guarded)


def by_one_thread(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """The method, which raises IllegalTransition while another thread is in a method of the same
    object."""

    @wraps(method)
    def guarded(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if not self._in_use.acquire(blocking=False):
            raise IllegalTransition(
                f"{method.__name__}() is not possible: another thread is using this consumer. Give "
                "each thread a consumer of its own."
            )
        try:
            return method(self, *args, **kwargs)
        finally:
            self._in_use.release()

    return guarded
