"""The root of a store on a disk, held open: every operation uses this handle, never the path.

What is acknowledged is in the log that was opened. The handle still belongs to that folder after it
is removed, renamed or unmounted, or another takes its place: what is written through it lands
nowhere else, and comparing it with the path shows whether the path still leads here. The log's own
file is held in the same way, because a root may be emptied and used again. While a handle is open,
no new file gets its inode.

No path of a log leads out of its root either: a user who can write to the root could
put a symbolic link in place of a folder, and have another user's files read or deleted through it.
`open_below` follows none. Linux does it in one call (openat2 with RESOLVE_NO_SYMLINKS, since 5.6);
elsewhere each folder is opened in turn. This module must not know what the objects mean.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
import weakref
from contextlib import suppress
from functools import cache
from typing import Any

from txlog.errors import NotATxlog
from txlog.storage.disk.new_file import sync_descriptor, sync_folder
from txlog.storage.disk.os_error import store_error

OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
"""Flags for a folder that is listed, synced, or written to."""

HANDLE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC
"""Flags for a file or folder that is only held, or passed through: needs no right to read it."""

_SYS_OPENAT2 = 437
"""The number is the same on every architecture for which Arrow has Python wheels."""

_RESOLVE_NO_SYMLINKS = 0x04
_UNSUPPORTED = frozenset((errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG))
"""The error numbers of old kernels and sandboxes for an unknown system call."""

_GONE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE))
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


class Held:
    """An open file or folder and its identity. It is closed with this object."""

    def __init__(self, descriptor: int, name: str) -> None:
        self.descriptor = descriptor
        self.name = name
        self._close = weakref.finalize(self, os.close, descriptor)
        status = os.fstat(descriptor)
        self._identity = (status.st_dev, status.st_ino)

    def is_at(self, path: str, folder: int | None = None) -> bool:
        """Whether `path` leads here. Raises OSError."""
        # The root's own path may go through links to the same folder; no path below it may.
        try:
            found = os.stat(path, dir_fd=folder, follow_symlinks=folder is None)
        except OSError as error:
            if error.errno in _GONE:
                return False
            raise
        return (found.st_dev, found.st_ino) == self._identity


class RootFolder:
    """The folder at `path`, opened when it is first needed, and the same one from then on.

    `path` may be a link; it is resolved once. Safe to use from threads and forked processes.
    """

    def __init__(self, path: str, durable: bool) -> None:
        self.path = path
        self._durable = durable
        self.descriptor: int | None = None
        """The root's, once it is open."""
        self._roots: list[Held] = []
        """The first one is used; threads that opened the root at the same time added the others."""
        self._file: Held | None = None
        self._place = ""
        """The path of the held file, without links."""
        self._seen: tuple[int, ...] = ()
        """Device, inode, time of change and number of names (1) of the file when it and the root
        were last found in their places; empty if it had more names."""
        self._above: dict[str, None] = {}
        """Folders above the root whose names may not be on disk yet."""
        self._synced: set[str] = set()
        """Folders whose names are on disk. A cache: a folder that is missing is created again."""

    def handle(self) -> int | None:
        """The root's descriptor, or None while there is none. Raises OSError."""
        if self.descriptor is not None:
            return self.descriptor
        try:
            return self._open(above=1)
        except FileNotFoundError:
            return None

    def hold(self, path: str) -> None:
        """Bind the root to the file that is at `path` in it now.

        Raises NotATxlog if there is no such file, or another one is already held.
        """
        if self._file is not None and self._file.name == path:
            self.require_same()
            return
        try:
            root = self.handle()
            if root is None:
                raise self._gone("there is no such folder")
            held = Held(open_below(root, path, _READ), path)
        except FileNotFoundError:
            raise self._gone(f"there is no {path} in it") from None
        except OSError as error:
            raise store_error(error, "read", f"{self.path}/{path}") from error
        if self._file is None:
            self._file, self._place = held, f"{self._roots[0].name}/{path}"
        self.require_same()

    def require_same(self) -> None:
        """Raises NotATxlog if the root's path leads to another root, or another held file."""
        try:
            # A file with one name whose status has not changed was neither moved nor linked since.
            # If the path still leads to it, it leads to the root, too: one call asks both.
            if self._seen:
                at = os.stat(self._place, follow_symlinks=False)
                if (at.st_dev, at.st_ino, at.st_ctime_ns, at.st_nlink) == self._seen:
                    return
        except OSError:
            pass  # Asked again below, one by one.
        self._require_same()

    def _require_same(self) -> None:
        try:
            found = None if self._file is None else os.fstat(self._file.descriptor)
            reason = self._reason_gone()
        except OSError as error:
            raise store_error(error, "read", self.path) from error
        if reason:
            raise self._gone(reason)
        self._seen = ()
        if found is not None and found.st_nlink == 1:
            self._seen = (found.st_dev, found.st_ino, found.st_ctime_ns, found.st_nlink)

    def open_folder(self, folder: str) -> int:
        """A descriptor of that folder, created if absent, whose name is on disk. Raises OSError.

        Another process may have created a parent and died before it synced it, so the names of the
        root and of all below it are synced, once a process; above it only those created here.
        """
        root = self._make() if self.descriptor is None else self.descriptor
        if folder in self._synced:
            try:
                return open_below(root, folder or ".", OPEN_FOLDER)
            except FileNotFoundError:
                # Another process removed it, perhaps with its parents: their names are not on
                # disk either once they are created again.
                self._synced.clear()
        descriptor = self._create_synced(root, folder)
        self._synced.add(folder)
        return descriptor

    def _open(self, above: int) -> int:
        place = os.path.realpath(self.path)
        root = Held(os.open(place, HANDLE | os.O_DIRECTORY), place)
        parents = [place]
        while len(parents) <= above:
            parents.append(os.path.dirname(parents[-1]))
        # Also if another thread has opened it first: that thread did not see which folders are new.
        self._above.update(dict.fromkeys(parents[1:]))
        self._roots.append(root)
        self.descriptor = self._roots[0].descriptor
        return self.descriptor

    def _make(self) -> int:
        """Create the root, and any missing folders above it."""
        place = existing = os.path.realpath(self.path)
        # Counted before they are created: each name that is new must be synced in its parent.
        missing = 0
        while not os.path.isdir(existing) and existing != "/":
            existing = os.path.dirname(existing)
            missing += 1
        os.makedirs(place, exist_ok=True)
        return self._open(above=max(missing, 1))

    def _create_synced(self, root: int, folder: str) -> int:
        handles = [open_below(root, ".", OPEN_FOLDER)]
        try:
            for part in folder.split("/") if folder else ():
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=handles[-1])
                handles.append(open_below(handles[-1], part, OPEN_FOLDER))
            # A folder's name is kept by its parent. So the last folder is left out: it is synced
            # once an object has its name there, and that sync includes no parent.
            if self._durable:
                for parent in reversed(handles[:-1]):
                    sync_descriptor(parent)
                self._sync_above()
            return os.dup(handles[-1])
        finally:
            for handle in handles:
                os.close(handle)

    def _sync_above(self) -> None:
        for folder in tuple(self._above):
            # The user may pass through a folder such as /home without the right to read it, and
            # to sync it is to open it.
            with suppress(PermissionError):
                sync_folder(folder)
            self._above.pop(folder, None)  # Not after an error: the next write tries again.

    def _reason_gone(self) -> str:
        root, file = self._roots[0] if self._roots else None, self._file
        if root is not None and not root.is_at(root.name):
            return "the path leads to another folder now, or to none"
        if root is None or file is None or file.is_at(file.name, root.descriptor):
            return ""
        return f"{file.name} in it was replaced or removed"

    def _gone(self, reason: str) -> NotATxlog:
        return NotATxlog(
            f"the log that was opened at {self.path} is not there any more: {reason}. Nothing was "
            "written. Put it back if it was moved or unmounted, or open the log that is there now "
            "with a new producer, consumer or query; then send again what was refused.",
            path=self.path,
            reason=reason,
        )


# Opening below an open folder, through no symbolic link.


def open_below(folder: int, path: str, flags: int) -> int:
    """A descriptor of `path`, which has no part that is `..`, below the open `folder`.

    Nothing is created: `flags` have no O_CREAT. Raises OSError: ELOOP if any part is a link.
    """
    while _has_openat2():
        descriptor: int = _syscall()(_SYS_OPENAT2, folder, os.fsencode(path), _how(flags), 24)
        if descriptor >= 0:
            return descriptor
        number = ctypes.get_errno()
        if number in _UNSUPPORTED:
            break
        # os.open repeats an interrupted call by itself (PEP 475), a bare system call does not.
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number), path)
    return open_by_parts(folder, path, flags)


def open_by_parts(folder: int, path: str, flags: int) -> int:
    """The same on systems without openat2(2)."""
    *parents, name = path.split("/")
    at = folder
    try:
        for parent in parents:
            inner = _open_part(at, parent, HANDLE | os.O_DIRECTORY)
            at = _moved(at, inner, folder)
        return _open_part(at, name, flags)
    finally:
        _moved(at, folder, folder)


def _moved(old: int, new: int, kept: int) -> int:
    """Returns `new`, and closes `old` unless it is the caller's folder."""
    if old != kept:
        os.close(old)
    return new


def _open_part(folder: int, name: str, flags: int) -> int:
    try:
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
    except NotADirectoryError:  # Raised for a link as well as for a file in a folder's place.
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
        raise


@cache
def _has_openat2() -> bool:
    """Whether this kernel has openat2(2), and allows it in this process."""
    if sys.platform != "linux":
        return False
    folder = HANDLE | os.O_DIRECTORY
    descriptor = _syscall()(_SYS_OPENAT2, -100, b"/", _how(folder), 24)  # -100 is AT_FDCWD.
    if descriptor >= 0:
        os.close(descriptor)
    return descriptor >= 0 or ctypes.get_errno() not in _UNSUPPORTED


@cache
def _syscall() -> Any:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.argtypes = (*(ctypes.c_long,) * 2, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    call.restype = ctypes.c_long
    return call


@cache
def _how(flags: int) -> ctypes.Array[ctypes.c_char]:
    """The kernel's struct open_how; it is only read, so threads share it."""
    return ctypes.create_string_buffer(struct.pack("QQQ", flags, 0, _RESOLVE_NO_SYMLINKS), 24)
