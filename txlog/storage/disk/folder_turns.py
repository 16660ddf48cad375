"""Turns in a folder of a disk, by flock(2) on the folder itself: no file is made for it.

A lock goes with its process, so that a killed one blocks no other, and the system wakes those
who wait in their order. It has no call that waits for a limited time, so a thread waits in it,
which is left to itself when the time is over. Nothing rests on any of it (see `turns.py`): where a
folder cannot be locked, as on NFS, and when a holder stands still, writers go on without.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from txlog.clock import Runtime

TURN_WAIT_MS_MAX = 1_000.0
"""From when on a writer goes on without its turn, however many others are before it."""

STUCK_MS = 300.0
"""The same, if no file was created in the folder meanwhile: the holder stands still."""

AFTER_STUCK_MS = 5_000.0
"""After a wait in vain no thread of this process waits in that folder for this long."""

OpenFolder = Callable[[str], int]
"""Opens a folder below the root, which may raise OSError."""


class FolderTurns:
    """The turns that one process takes. Safe to use from threads."""

    def __init__(self, open_folder: OpenFolder, runtime: Runtime) -> None:
        self._open_folder = open_folder
        self._runtime = runtime
        self._stuck_until_ms: dict[str, float] = {}

    @contextmanager
    def turn(self, folder: str) -> Iterator[bool]:
        """See `capabilities.py`."""
        lock = self._opened(folder)
        try:
            yield lock is not None and self._has_waited(folder, lock)
        finally:
            if lock is not None:
                lock.release()

    def _opened(self, folder: str) -> _Lock | None:
        try:
            return _Lock(self._open_folder(folder))
        except OSError:
            return None

    def _has_waited(self, folder: str, lock: _Lock) -> bool:
        """Take the lock, or let it be; whether others had it."""
        if lock.is_taken_at_once():
            return False
        now_ms = self._runtime.clock.monotonic_ms()
        if now_ms < self._stuck_until_ms.get(folder, now_ms):
            return True
        if not self._gets(lock):
            self._stuck_until_ms[folder] = self._runtime.clock.monotonic_ms() + AFTER_STUCK_MS
        return True

    def _gets(self, lock: _Lock) -> bool:
        """Wait for the lock, but not for long: whether it is this one's now.

        New names do not prove that the lock changes hands: writers without a turn make them, too.
        """
        told = self._runtime.new_event()
        self._runtime.background.begin(lambda: lock.wait(told.set))
        seen_ns, waited_ms = lock.changed_ns(), 0.0
        while waited_ms < TURN_WAIT_MS_MAX:
            if told.wait_ms(STUCK_MS):
                return True
            waited_ms += STUCK_MS
            before_ns, seen_ns = seen_ns, lock.changed_ns()
            if seen_ns == before_ns:
                return False
        return False


class _Lock:
    """An open folder that may be locked; the thread that waits for it may outlive its turn."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._guard = threading.Lock()
        self._is_waited_for = False
        self._is_over = False

    def is_taken_at_once(self) -> bool:
        """Whether it is this one's now, or cannot be taken at all."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._is_waited_for = True
            return False
        except OSError:  # This file system locks no folders.
            pass
        return True

    def wait(self, then: Callable[[], None]) -> None:
        """Until it is taken, or cannot be; for a thread of its own."""
        with suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        with self._guard:
            self._is_waited_for = False
            if self._is_over:
                self._close()
        then()

    def changed_ns(self) -> int:
        """When the last name in the folder was made or removed."""
        return os.fstat(self._descriptor).st_mtime_ns

    def release(self) -> None:
        """Let others have it. A thread that waits for it still does the same when it has it."""
        with self._guard:
            self._is_over = True
            if not self._is_waited_for:
                self._close()

    def _close(self) -> None:
        """A child that was forked meanwhile has the descriptor, too: to close it is not enough."""
        with suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)
