"""How a written file gets its name on a disk: at once, and only if the name is free.

It guards I1 on file systems: link(2) never overwrites; renameat2(2) with RENAME_NOREPLACE is used
where there are no hard links; a file system with neither is refused. It must not know what is in
the files.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from typing import TypeAlias

from txlog.errors import StoreNotAtomic

Publish: TypeAlias = Callable[[int, str, str], bool]
"""In that open folder, give the file of the first name the second; False if that is taken."""

_LINK_UNSUPPORTED = frozenset((errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS))
_RENAME_UNSUPPORTED = frozenset((errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS))
_RENAME_NOREPLACE = 1


def publish_exclusively(folder: int, temporary: str, target: str) -> bool:
    """link(2), or renameat2(2) where there are no hard links. Raises OSError, StoreNotAtomic.

    An error may hide a success: NFS can lose the answer, so the link count decides (open(2)).
    """
    try:
        os.link(temporary, target, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError as error:
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
