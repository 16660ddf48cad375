"""Waiting for a new object in some folders of a disk, by inotify(7), without looking at them again
and again.

It only shortens a wait: on a network file system it does not see the files of other machines, and a
system may have no more watches to give.
"""

from __future__ import annotations

import ctypes
import os
import select
from collections.abc import Iterable
from contextlib import suppress

_IN_MOVED_TO, _IN_DELETE = 0x80, 0x200
"""From the system's <sys/inotify.h>. A new file has its name, and is synced, before its temporary
name is deleted (new_file.py); where there are no links, it is moved."""

_EVENTS_BYTES = 1 << 16
"""What one read takes of the events that wait."""


class FolderWatch:
    """Files that a store adds to these folders from now on, or deletes. For one thread; closed with
    the object."""

    def __init__(self, folders: Iterable[str]) -> None:
        """Raises OSError where the system cannot watch them all."""
        system = ctypes.CDLL(None, use_errno=True)
        if not hasattr(system, "inotify_init1"):
            raise OSError("this system has no inotify")
        self._descriptor = _checked(system.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        for folder in folders:
            events = _IN_DELETE | _IN_MOVED_TO
            _checked(system.inotify_add_watch(self._descriptor, os.fsencode(folder), events))
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)

    def wait(self, timeout_ms: float) -> bool:
        """Whether there was a file since the last call that said so, or is within this time."""
        is_new = bool(self._poll.poll(timeout_ms))
        with suppress(BlockingIOError):
            while is_new and os.read(self._descriptor, _EVENTS_BYTES):
                pass
        return is_new

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self._descriptor)


def _checked(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer
