"""New files on a disk: written under a temporary name, then named at once, if the name is free.

No part of an object is ever visible: the temporary name, beside the final one, belongs to the
store, which never lists it. Keeps I1 on file systems: link(2) never overwrites; renameat2(2) with
RENAME_NOREPLACE is used where there are no hard links; a file system with neither is refused.
Everything is done in the open folder, not by path. This module must not know what is written.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import TypeAlias

from txlog.errors import StoreNotAtomic, TxlogError
from txlog.storage.store import Body, Bytes

WRITE_BYTES_MAX = 512 << 10
"""Bytes of one write(2), which ends at a multiple of them in the file. Smaller or unaligned ones
make Linux cache smaller pages: 116 MB took a fifth of a task's processor time more in calls of 128
KB. From 2 MB on it caches huge pages, which cost several times as much where memory must first be
requested, as in most virtual machines: 32 MB took 80 ms in one call and 10 ms in small ones
(docs/design/0010-streaming-sink-segments.md)."""

EARLY_BYTES = 4 << 20
"""A file that is written piece by piece is sent to the disk after this many bytes, so that the sync
at its end has little left to wait for: for 56 MB it took 2.5 ms instead of 29
(docs/design/0010-streaming-sink-segments.md)."""

PARTS_AT_ONCE_MAX = 1024
"""Buffers that one writev(2) takes (IOV_MAX)."""

Publish: TypeAlias = Callable[[int, str, str], bool]
"""(open folder, temporary name, final name): names the file; False if the final name is taken."""

Failure: TypeAlias = Callable[[OSError, str, str], TxlogError]
"""(error, action, path) -> the error of txlog to raise for it."""

_WRITE_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_LINK_UNSUPPORTED = frozenset((errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS))
_RENAME_UNSUPPORTED = frozenset((errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS))
_RENAME_NOREPLACE = 1


class Draft:
    """An open file with a temporary name in an open folder; it owns both descriptors."""

    def __init__(self, folder: int, temporary: str, name: str) -> None:
        self.folder = folder
        self.temporary = temporary
        self.name = name
        try:
            self.descriptor = os.open(temporary, _WRITE_NEW, 0o644, dir_fd=folder)
        except BaseException:
            os.close(folder)
            raise

    def close(self, *, is_mark: bool = False) -> None:
        """Remove the temporary name, unless it is needed as a mark, and close both descriptors. The
        content stays if it has another name. Call it once."""
        if not is_mark:
            with suppress(OSError):  # It was renamed, or the sweep removes it later.
                os.unlink(self.temporary, dir_fd=self.folder)
        os.close(self.descriptor)
        os.close(self.folder)


class NewFile:
    """See NewObject. Pieces go to the kernel as they arrive."""

    is_kept_in_memory = False

    def __init__(
        self, path: str, draft: Draft, finish: Callable[[NewFile], None], failure: Failure
    ) -> None:
        self.path = path
        self.draft = draft
        self._finish = finish
        self._failure = failure
        self._is_open = True
        self._written = 0
        self._sent = 0

    def write(self, pieces: Body) -> None:
        parts = pieces if isinstance(pieces, tuple) else (pieces,)
        try:
            write_parts(self.draft.descriptor, parts, self._written)
        except OSError as error:
            raise self._failure(error, "create", self.path) from error
        self._written += sum(map(len, parts))
        if self._written - self._sent >= EARLY_BYTES:
            _send_early(self.draft.descriptor, self._sent, self._written - self._sent)
            self._sent = self._written

    def finish(self) -> None:
        try:
            self._finish(self)
        finally:
            # Even if the name could not be synced: it is unique, and its writer, which gets the
            # error, gives it to no reader. So no mark is needed, as it is for an entry.
            self.discard()

    def discard(self) -> None:
        if self._is_open:
            self._is_open = False
            self.draft.close()


def write_parts(descriptor: int, parts: Sequence[Bytes], at: int = 0) -> None:
    """Write them in order behind the `at` bytes that the file has. Raises OSError."""
    # As bytes: the length of a memoryview counts its items, whatever their size.
    left = deque([memoryview(part).cast("B") for part in parts])
    while left:
        room = WRITE_BYTES_MAX - at % WRITE_BYTES_MAX
        first: list[memoryview] = []
        for part in islice(left, PARTS_AT_ONCE_MAX):
            first.append(part[:room])
            room -= len(first[-1])
            if not room:
                break
        written = os.writev(descriptor, first)
        at += written
        while left and written >= len(left[0]):
            written -= len(left.popleft())
        if written:
            left[0] = left[0][written:]


def _send_early(descriptor: int, start: int, length: int) -> None:
    """Advise Linux that these bytes will not be read: then it begins to write them, and this call
    does not block."""
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):  # Only advice: the sync at the end reports errors.
            os.posix_fadvise(descriptor, start, length, os.POSIX_FADV_DONTNEED)


def publish_exclusively(folder: int, temporary: str, target: str) -> bool:
    """link(2), or renameat2(2) where there are no hard links. Raises OSError, StoreNotAtomic.

    An error may hide a success: NFS can lose the answer, so the link count decides (open(2)).
    """
    try:
        os.link(temporary, target, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        # Before EEXIST, which is also the answer to a link that NFS sent twice: the name is taken
        # then by this very file.
        if os.stat(temporary, dir_fd=folder, follow_symlinks=False).st_nlink == 2:
            return True
        if error.errno == errno.EEXIST:
            return False
        if error.errno in _LINK_UNSUPPORTED:
            return rename_exclusively(folder, temporary, target)
        raise
    return True


def rename_exclusively(folder: int, temporary: str, target: str) -> bool:
    """renameat2(2) with RENAME_NOREPLACE. Raises OSError, StoreNotAtomic."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        raise _not_atomic(target, "the C library has no renameat2")
    arguments = (folder, os.fsencode(temporary), folder, os.fsencode(target))
    if renameat2(*arguments, _RENAME_NOREPLACE) == 0:
        return True
    number = ctypes.get_errno()
    if number == errno.EEXIST:
        return False
    if number in _RENAME_UNSUPPORTED:
        raise _not_atomic(target, os.strerror(number))
    raise OSError(number, os.strerror(number), target)


def sync_folder(folder: str) -> None:
    """Make the names in it survive a loss of power. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        sync_descriptor(descriptor)
    finally:
        os.close(descriptor)


def sync_descriptor(folder: int) -> None:
    """The same for an open folder."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: this file system cannot sync folders.
            raise


def _not_atomic(target: str, reason: str) -> StoreNotAtomic:
    return StoreNotAtomic(
        f"this file system can neither link a file nor rename it without overwriting ({reason}), "
        f"so it cannot create {target} only if it is absent. Put the log on another file system, "
        "such as ext4 or XFS, or on S3.",
        path=target,
    )
