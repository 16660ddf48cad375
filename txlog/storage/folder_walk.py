"""Going through the files of a folder: in order of path, as an object store lists its keys.

It serves collection and repair only and decides nothing (I14). It must not know what the files are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from txlog.clock import Runtime
from txlog.storage.object_path import TEMPORARY_PREFIX
from txlog.storage.os_error import store_error
from txlog.storage.publish import sync_folder
from txlog.storage.store import StoredObject

TEMPORARY_AGE_MAX_MS = 24 * 3600 * 1000
"""A temporary file that is older was left by a process that died."""


def walk(base: str, folder: str, prefix: str, after: str) -> Iterator[StoredObject]:
    """Objects in `folder`, in order of path: a folder sorts as its name with a slash."""
    for path, entry in _children(base, folder):
        if path.endswith("/"):
            if _may_hold(path, prefix, after):
                yield from walk(base, path, prefix, after)
        elif path > after and path.startswith(prefix):
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield StoredObject(path, status.st_size, status.st_mtime_ns // 1_000_000)


def _children(base: str, folder: str) -> list[tuple[str, os.DirEntry[str]]]:
    children = []
    try:
        with os.scandir(base + folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    children.append((f"{folder}{entry.name}/", entry))
                elif entry.is_file(follow_symlinks=False) and not entry.name.startswith(
                    TEMPORARY_PREFIX
                ):
                    children.append((folder + entry.name, entry))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise store_error(error, "list", base + folder) from error
    children.sort(key=lambda child: child[0])
    return children


def _may_hold(folder: str, prefix: str, after: str) -> bool:
    """Whether a path in `folder` can start with `prefix` and sort after `after`."""
    below = folder.startswith(prefix) or prefix.startswith(folder)
    return below and (folder > after or after.startswith(folder))


def sweep_temporaries(
    root: str | os.PathLike[str], runtime: Runtime, age_min_ms: int = TEMPORARY_AGE_MAX_MS
) -> int:
    """Delete temporary files older than `age_min_ms` below `root`; how many there were.

    They hold nothing that was ever acknowledged. The age only keeps out of the way of writers that
    are still at work; one that is hit by it fails and tries again. If one died just after it had
    given a file its name, the temporary name says that the other is not safe yet: it goes only when
    that is.
    """
    oldest_kept_ms = runtime.clock.wall_ms() - age_min_ms
    swept = 0
    for folder, _, names in os.walk(root):
        for name in names:
            if name.startswith(TEMPORARY_PREFIX):
                swept += _swept(folder, os.path.join(folder, name), oldest_kept_ms)
    return swept


def _swept(folder: str, path: str, oldest_kept_ms: float) -> bool:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return False
    if status.st_mtime_ns / 1e6 >= oldest_kept_ms:
        return False
    if status.st_nlink > 1:
        sync_folder(folder)
    return _removed(path)


def _removed(path: str) -> bool:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True
