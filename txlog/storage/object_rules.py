"""The rules for objects that every store checks: their paths and their sizes.

The rule for paths is the second defence against a name that leaves the root; `txlog/layout.py` is
the first. The limits of sizes guard I16 in a store that other users can write to: a sparse file of
100 GB costs its author nothing, and would cost every reader its memory. This module must not access
a store, and does not interpret names.
"""

from __future__ import annotations

from functools import lru_cache

from txlog.errors import CorruptData, InternalError, UsageError
from txlog.layout import bytes_max
from txlog.storage.store import ENTRY_BYTES_MAX

PATH_BYTES_MAX = 800
"""UTF-8 bytes of a path; S3 takes 1,024 with the root's prefix."""

PART_BYTES_MAX = 255
"""UTF-8 bytes between two slashes: the limit of every common file system."""

TEMPORARY_PREFIX = ".tmp-"
"""Names reserved for files that a store is still writing."""

_FORBIDDEN_PARTS = frozenset(("", ".", ".."))


@lru_cache(1_024)  # A waiting reader requests the same object repeatedly.
def check_path(path: str) -> None:
    """Refuse a path that does not consist of plain parts between slashes. Raises InternalError."""
    if fault := _fault(path):
        raise _refusal(path, fault)


def check_prefix(prefix: str) -> None:
    """Refuse a listing prefix that no path could start with. Raises InternalError."""
    folder, _, start = prefix.rpartition("/")
    if folder or prefix.startswith("/"):
        check_path(folder)
    if start in (".", "..") or not prefix.isprintable():
        raise _refusal(prefix, "no object can start with it")


def check_root(prefix: str) -> None:
    """Refuse a prefix below which no object can be. Raises UsageError."""
    if fault := _fault(prefix):
        raise UsageError(
            f"{prefix!r} cannot be the prefix of a log in a bucket: {fault}. Choose another.",
            prefix=prefix,
        )


def _fault(path: str) -> str:
    """Why no object can be at `path`; empty if one can."""
    parts = path.split("/")
    if not _FORBIDDEN_PARTS.isdisjoint(parts):
        return "it has an empty, '.' or '..' part"
    # The first test is cheap, and false for all names of a log.
    if TEMPORARY_PREFIX in path and any(part.startswith(TEMPORARY_PREFIX) for part in parts):
        return f"names that begin with {TEMPORARY_PREFIX!r} are reserved for the store"
    if not path.isprintable():  # A lone surrogate, too, which could not be encoded below.
        return "it has characters that cannot be printed"
    if len(path) <= PART_BYTES_MAX and path.isascii():  # Within both limits.
        return ""
    if len(path.encode()) <= PATH_BYTES_MAX and all(
        len(part.encode()) <= PART_BYTES_MAX for part in parts
    ):
        return ""
    return f"it is longer than {PATH_BYTES_MAX} bytes, or a part is longer than {PART_BYTES_MAX}"


def _refusal(path: str, reason: str) -> InternalError:
    return InternalError(
        f"{path[:100]!r} is not a name for an object: {reason}. Nothing was written; please report "
        "this.",
        path=path,
    )


def check_entry_body(path: str, data: bytes) -> None:
    """Refuse a body that one conditional write cannot carry. Raises InternalError."""
    if not 0 < len(data) <= ENTRY_BYTES_MAX:
        raise InternalError(
            f"the body of {path} has {len(data)} bytes; create takes 1 to {ENTRY_BYTES_MAX}. "
            "Nothing was written; please report this.",
            path=path,
            size_bytes=len(data),
        )


def name_in_use(place: str, path: str) -> InternalError:
    """The error for an object under a unique name that has other content."""
    return InternalError(
        f"{place} exists already with other content, but its name should be unique. Nothing was "
        "overwritten; please report this.",
        path=path,
    )


def require_size(path: str, size_bytes: int, place: str) -> None:
    """Raises CorruptData, naming `place`, if an object at `path` cannot be so large."""
    limit = bytes_max(path)
    if limit is not None and size_bytes > limit:
        raise CorruptData(
            f"{place} has {size_bytes} bytes, and an object of its kind has {limit} at most: the "
            "log has not written it. It was not read; restore it from a backup.",
            path=place,
            size_bytes=size_bytes,
        )
