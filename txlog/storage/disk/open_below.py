"""Opening a file or folder below an open folder, with no symbolic link on the way.

It guards that no path of a log leads out of its root: a user who can write to the root could put a
link in place of a folder, and have another user's files read or deleted through it. Linux does it
in one call (openat2 with RESOLVE_NO_SYMLINKS, since 5.6); elsewhere each folder is opened in turn.
It must not know what the files are.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
from functools import cache
from typing import Any

OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
"""Flags for a folder that is listed, synced, or written to."""

HANDLE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC
"""Flags for a file or folder that is only held, or passed through: needs no right to read it."""

_SYS_OPENAT2 = 437
"""The number is the same on every architecture for which Arrow has Python wheels."""

_RESOLVE_NO_SYMLINKS = 0x04
_UNSUPPORTED = frozenset((errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG))
"""The error numbers of old kernels and sandboxes for a system call that they do not know."""


def open_below(folder: int, path: str, flags: int) -> int:
    """A descriptor of `path`, which has no part that is `..`, below the open `folder`.

    Nothing is created: `flags` have no O_CREAT. Raises OSError: ELOOP if any part is a link.
    """
    if _has_openat2():
        descriptor, number = _openat2(folder, path, flags)
        if descriptor >= 0:
            return descriptor
        if number not in _UNSUPPORTED:
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
    """Returns `new`, and closes `old` unless it is the caller's."""
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
    descriptor, number = _openat2(-100, "/", HANDLE | os.O_DIRECTORY)
    if descriptor >= 0:
        os.close(descriptor)
    return number not in _UNSUPPORTED


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


def _openat2(folder: int, path: str, flags: int) -> tuple[int, int]:
    """The descriptor, or -1 and the error's number."""
    while True:
        how = _how(flags)
        descriptor: int = _syscall()(_SYS_OPENAT2, folder, os.fsencode(path), how, 24)
        number = 0 if descriptor >= 0 else ctypes.get_errno()
        if number != errno.EINTR:
            return descriptor, number
