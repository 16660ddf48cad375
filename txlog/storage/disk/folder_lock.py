"""Turns in a folder of a disk, by flock(2) on the folder itself, so that no lock file is needed.

The system releases the lock of a process that dies, and wakes waiting processes in order. flock has
no timeout, so a background thread waits in it, and continues to wait when the writer gives up. All
but one of the waiting writers wait for the folder above: the one that has its lock is the next, and
prepares for its turn while the one before it writes.
Safety does not depend on turns (see `turn` in `store.py`): where a folder cannot be locked, as on
NFS, and when the holder of a lock stalls, writers proceed without one.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from txlog.clock import Background, Runtime

TURN_WAIT_MS_MAX = 1_000.0
"""After this time a writer proceeds without its turn, however many writers are before it. Sixteen
live writers take turns in a third of it (docs/design/0025-advisory-lock-on-a-disk.md); if it is
shorter, a writer of a busy folder races, and often loses its sync."""

STUCK_MS = 300.0
"""The same, if no file was created in the folder meanwhile, because then the holder stalls: an
entry is created in milliseconds. A stopped holder costs each process so much, once while it is
stopped."""

OpenFolder = Callable[[str], int]
"""Opens a folder below the root. May raise OSError."""


class FolderLocks:
    """The turns of one process. Safe to use from threads."""

    def __init__(self, open_folder: OpenFolder, runtime: Runtime) -> None:
        self._open_folder = open_folder
        self._runtime = runtime
        self._given_up: dict[tuple[int, str], _Lock] = {}
        """Process and folder -> the last lock whose writer gave up waiting for it."""

    @contextmanager
    def turn(self, folder: str, prepare: Callable[[], object]) -> Iterator[bool]:
        lock: _Lock | None = None
        with suppress(OSError):
            lock = _Lock(self._open_folder(folder))
        try:
            yield (
                lock is not None
                and not lock.is_taken_at_once()
                and self._wait(folder, lock, prepare)
            )
        finally:
            if lock is not None:
                lock.release()

    def _wait(self, folder: str, lock: _Lock, prepare: Callable[[], object]) -> bool:
        """Wait for a lock that another writer holds, or proceed without it; returns true.

        New names do not prove that the lock changes hands: writers without a turn create them, too.
        """
        place = (os.getpid(), folder)
        given_up = self._given_up.get(place)
        if given_up is not None and given_up.is_waited_for:
            # The holder still stalls: each entry would cost a wait, a thread and a descriptor.
            return True
        awaited = is_next = self._runtime.new_event()
        is_taken = self._runtime.new_event()
        queue = partial(self._open_folder, folder.rpartition("/")[0])
        waited_ms = TURN_WAIT_MS_MAX
        if lock.begin_wait(self._runtime.background, queue, is_next.set, is_taken.set):
            seen_ns, waited_ms = lock.changed_ns(), 0.0
        while waited_ms < TURN_WAIT_MS_MAX:
            if awaited.wait_ms(STUCK_MS):
                if awaited is is_taken:
                    return True
                awaited = is_taken
                prepare()
                continue
            waited_ms += STUCK_MS
            before_ns, seen_ns = seen_ns, lock.changed_ns()
            if seen_ns == before_ns:  # A live holder would have created its entry meanwhile.
                break
        self._given_up[place] = lock
        return True


class _Lock:
    """An open folder that may be locked. A thread that waits for the lock may outlive the turn."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._guard = threading.Lock()
        self.is_waited_for = False
        """Whether a thread waits for the lock."""
        self._is_over = False

    def is_taken_at_once(self) -> bool:
        """True if the lock was taken at once, or if this folder cannot be locked."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # This file system locks no folders.
            pass
        return True

    def begin_wait(
        self,
        background: Background,
        queue: Callable[[], int],
        is_next: Callable[[], None],
        is_taken: Callable[[], None],
    ) -> bool:
        """Wait in a thread of its own, first for the lock of the folder that `queue` opens, then
        for this one; each time call the function for it, also if a folder cannot be locked. False
        if no thread is left for it."""
        self.is_waited_for = True
        try:
            background.begin(lambda: self._wait(queue, is_next, is_taken))
        except RuntimeError:
            self.is_waited_for = False
            return False
        return True

    def _wait(
        self, queue: Callable[[], int], is_next: Callable[[], None], is_taken: Callable[[], None]
    ) -> None:
        above: int | None = None
        with suppress(OSError):
            above = queue()
            fcntl.flock(above, fcntl.LOCK_EX)
        is_next()
        if not self._is_over:
            with suppress(OSError):
                fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        if above is not None:
            _close(above)
        # A writer that gave up has left the descriptor to this thread to close: closed before the
        # flock above began, its number could have become another file's.
        with self._guard:
            self.is_waited_for = False
            if self._is_over:
                _close(self._descriptor)
        is_taken()

    def changed_ns(self) -> int:
        """When the last name in the folder was created or removed."""
        return os.fstat(self._descriptor).st_mtime_ns

    def release(self) -> None:
        """Release the lock. A thread that still waits for it releases it once it has it."""
        with self._guard:
            self._is_over = True
            if not self.is_waited_for:
                _close(self._descriptor)


def _close(descriptor: int) -> None:
    """Unlock and close. A forked child has the descriptor, too, so closing is not enough."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)
