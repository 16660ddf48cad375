"""Walks through the files of a folder in order of path, as an object store lists its keys.

It serves collection and repair only and decides nothing (I14). It follows no symbolic link, because
what is listed here may be deleted. It must not know what the files are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from txlog.clock import Runtime
from txlog.storage.disk.new_file import sync_descriptor
from txlog.storage.disk.os_error import store_error
from txlog.storage.disk.root_folder import OPEN_FOLDER, open_below
from txlog.storage.store import TEMPORARY_PREFIX, StoredObject

_TEMPORARY = re.compile(re.escape(TEMPORARY_PREFIX) + "[0-9a-f]{32}")
"""A prefix alone could be another program's."""


def walk(root: int, base: str, folder: str, prefix: str, after: str) -> Iterator[StoredObject]:
    """Objects in `folder` below the open folder `root`, in order of path: a folder sorts as its
    name with a slash. `base` is the root's path, for messages."""
    try:
        at = open_below(root, folder.rstrip("/") or ".", OPEN_FOLDER)
    except FileNotFoundError:
        return
    except OSError as error:
        raise store_error(error, "list", base + folder) from error
    try:
        for path, entry in _children(at, base, folder):
            if path.endswith("/"):
                if _may_hold(path, prefix, after):
                    yield from walk(root, base, path, prefix, after)
            elif path > after and path.startswith(prefix):
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # It was deleted since its folder was read.
                    continue
                yield StoredObject(path, status.st_size, status.st_mtime_ns // 1_000_000)
    finally:
        os.close(at)  # Not earlier: each entry's status is looked up in this folder.


def _children(at: int, base: str, folder: str) -> list[tuple[str, os.DirEntry[str]]]:
    children = []
    try:
        with os.scandir(at) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    children.append((f"{folder}{entry.name}/", entry))
                elif entry.is_file(follow_symlinks=False) and not entry.name.startswith(
                    TEMPORARY_PREFIX
                ):
                    children.append((folder + entry.name, entry))
    except OSError as error:
        raise store_error(error, "list", base + folder) from error
    # By path, folders with their slash: an object store lists "a-b/x" before "a/b", too.
    children.sort(key=lambda child: child[0])
    return children


def _may_hold(folder: str, prefix: str, after: str) -> bool:
    """Whether a path in `folder` can start with `prefix` and sort after `after`."""
    below = folder.startswith(prefix) or prefix.startswith(folder)
    return below and (folder > after or after.startswith(folder))


def sweep_temporaries(folder: int, runtime: Runtime, age_min_ms: int) -> int:
    """Delete temporary files older than `age_min_ms` below that open folder; returns how many.

    They contain nothing that was acknowledged. The age only spares writers that are still running;
    a writer whose file is deleted fails and tries again. If a writer died just after it had named
    its file, the temporary name marks the final name as not yet durable, so the folder is synced
    before the temporary name is removed. Raises OSError.
    """
    oldest_kept_ms = runtime.clock.wall_ms() - age_min_ms
    swept = 0
    for _, _, names, at in os.fwalk(".", dir_fd=folder):  # Through no link.
        for name in names:
            if _TEMPORARY.fullmatch(name):
                swept += _swept(at, name, oldest_kept_ms)
    return swept


def _swept(folder: int, name: str, oldest_kept_ms: float) -> bool:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if status.st_mtime_ns / 1e6 >= oldest_kept_ms:
            return False
        if status.st_nlink > 1:  # Before the unlink: readers take a single name for a durable one.
            sync_descriptor(folder)
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True
