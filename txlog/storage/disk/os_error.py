"""Translates an operating system's error into an error of txlog.

A full disk and a refusal are distinguished from a store that is merely slow. It must not do I/O.
"""

from __future__ import annotations

import errno
import os

from txlog.errors import StoreDenied, StoreFull, StoreUnavailable, TxlogError

_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_DENIED = frozenset(
    (
        errno.EACCES,
        errno.EPERM,
        errno.EEXIST,  # A file is in the place of the root.
        errno.EROFS,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENAMETOOLONG,
    )
)


def store_error(error: OSError, action: str, place: str) -> TxlogError:
    """The error to raise when `action` ("create", "read") on `place` failed with `error`."""
    number = error.errno or 0
    reason = os.strerror(number) if number else type(error).__name__
    facts = {"action": action, "place": place, "errno": errno.errorcode.get(number, str(number))}
    if number in _FULL:
        return StoreFull(
            f"cannot {action} {place}: no room ({reason}). Nothing was written in part: free some "
            "room or raise the quota, then call again.",
            **facts,
        )
    if number == errno.ELOOP:
        return StoreDenied(
            f"cannot {action} {place}: a symbolic link is there or on the way. A log follows "
            "none below its root: put the folder or file itself in its place.",
            **facts,
        )
    if number in _DENIED:
        is_refused = number in (errno.EACCES, errno.EPERM)
        shared = " (if several users share the log, the umask of each must let the others in)"
        return StoreDenied(
            f"cannot {action} {place}: {reason}. Check that this user may read and write there"
            f"{shared if is_refused else ''}, and that no file or folder of another program is in "
            "the way.",
            **facts,
        )
    return StoreUnavailable(
        f"cannot {action} {place}: {reason}. Call again; if that fails, check the disk or mount.",
        **facts,
    )
