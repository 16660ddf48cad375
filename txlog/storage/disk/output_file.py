"""A file outside of any log that is written whole or not at all, as an export needs it.

It is written under a temporary name and gets its own when it is complete; an existing file is never
replaced. A local path is linked into place, which cannot replace anything; at an fsspec URL the
code checks before it renames. It must not know what is in the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import fsspec
from fsspec.implementations.local import LocalFileSystem

from txlog.clock import Entropy
from txlog.errors import StoreDenied, StoreUnavailable, TxlogError, UsageError
from txlog.layout import CLUSTER_FILE
from txlog.redaction import redact_url
from txlog.storage.disk.os_error import store_error
from txlog.storage.root_url import roots_above

BLOCK_BYTES = 8 << 20
"""Size of an upload's parts, which are kept in memory for a file on an object store. S3 takes
10,000 parts of at least 5 MB, so a file may have 80 GB."""


@contextmanager
def new_output_file(target: str, entropy: Entropy) -> Iterator[BinaryIO]:
    """Write to what this yields; after the `with` the file is `target`, or on an error absent.

    Raises UsageError if the name is taken or its folder is not there, StoreDenied, StoreFull,
    StoreUnavailable.
    """
    part = f".txlog-{entropy.token()[:16]}.part"
    writer = _remote(target, part) if "://" in target else _local(target, part)
    with writer as file:
        yield file


def require_new(target: str) -> None:
    """Raises UsageError if the file exists, or would be within a log. An export calls this before
    it reads any record."""
    if "://" not in target:
        _require_local(os.path.expanduser(target))
        require_outside_logs(target)
        return
    with _translated(target, "look for"):
        files, path = fsspec.core.url_to_fs(target)
        if files.exists(path):
            raise _taken(target)
        if isinstance(files, LocalFileSystem):
            require_outside_logs(path)
        else:
            _require_outside_remote_logs(target, files, path)


def require_outside_logs(path: str) -> None:
    """Raises UsageError if a local file would be within a log."""
    for place in roots_above(path):  # Without links, so that none leads into a log unseen.
        if os.path.lexists(os.path.join(place, CLUSTER_FILE)):
            raise _within(path, place)


def _require_outside_remote_logs(target: str, files: Any, path: str) -> None:
    place = path
    while (above := files._parent(place)) not in (place, ""):
        place = above
        with suppress(PermissionError):  # A place that this process may not read is skipped.
            if files.exists(f"{place.rstrip('/')}/{CLUSTER_FILE}"):
                raise _within(target, files.unstrip_protocol(place))


def _within(target: str, place: str) -> UsageError:
    return UsageError(
        f"{redact_url(target)} is within the log at {redact_url(place)}, where only the log's own "
        "files may be. Name a place outside of that log."
    )


def _require_local(path: str) -> None:
    if os.path.lexists(path):
        raise _taken(path)
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise UsageError(
            f"there is no folder {folder} for {os.path.basename(path)}; make it first."
        )


def _taken(target: str) -> UsageError:
    return UsageError(
        f"{redact_url(target)} exists already, and nothing is overwritten; name another file, or "
        "remove it."
    )


@contextmanager
def _local(target: str, part: str) -> Iterator[BinaryIO]:
    path = os.path.expanduser(target)
    _require_local(path)
    # By bytes, of which a file system allows 255 in a name; a cut character stays a valid name.
    name = os.fsdecode(os.fsencode(os.path.basename(path))[:100])
    temporary = os.path.join(os.path.dirname(path), f".{name}{part}")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _into_place(temporary, path)
    except OSError as error:
        raise store_error(error, "write", path) from error
    finally:
        with suppress(OSError):
            os.unlink(temporary)


def _into_place(temporary: str, path: str) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise _taken(path) from None
    except OSError:
        # The file system has no hard links. Only here could a file that another program creates
        # between the next two steps be replaced.
        if os.path.lexists(path):
            raise _taken(path) from None
        os.rename(temporary, path)


@contextmanager
def _remote(target: str, part: str) -> Iterator[BinaryIO]:
    with _translated(target, "write"):
        files, path = fsspec.core.url_to_fs(target)
        if files.exists(path):
            raise _taken(target)
        file = files.open(path + part, "wb", block_size=BLOCK_BYTES)
    try:
        try:
            yield file
        except OSError as error:
            raise _unavailable(target, "write", error) from None
        with _translated(target, "write"):
            file.close()
            # Once more, because the export may have taken long, and a rename would replace a file.
            if files.exists(path):
                raise _taken(target)
            files.mv(path + part, path)
    finally:
        with suppress(Exception):  # The partial file is removed, so it may stay incomplete.
            file.close()
        _remove(files, path + part)


def _remove(files: Any, path: str) -> None:
    with suppress(Exception):
        files.invalidate_cache()
        if files.exists(path):
            files.rm_file(path)


@contextmanager
def _translated(target: str, action: str) -> Iterator[None]:
    """Translate a library's errors to txlog's, without its message, which may repeat a password."""
    try:
        yield
    except TxlogError:
        raise
    except (ImportError, ValueError) as error:
        raise UsageError(
            f"{redact_url(target)} cannot be opened ({type(error).__name__}). Check the protocol, "
            "and install the package that provides it."
        ) from None
    except PermissionError:
        raise StoreDenied(
            f"cannot {action} {redact_url(target)}: the store refuses. Check the credentials."
        ) from None
    except Exception as error:  # noqa: BLE001 - each library raises its own kinds.
        raise _unavailable(target, action, error) from None


def _unavailable(target: str, action: str, error: Exception) -> StoreUnavailable:
    return StoreUnavailable(
        f"cannot {action} {redact_url(target)} ({type(error).__name__}). Check that it is "
        "reachable, and try again."
    )
