"""The rule for object paths, which every store checks.

It is the second defence against a name that leaves the root; `txlog/layout.py` is the first. It
must not access a store and knows nothing about the meaning of names.
"""

from __future__ import annotations

from functools import lru_cache

from txlog.errors import InternalError, UsageError

PATH_BYTES_MAX = 800
"""UTF-8 bytes of a path; S3 takes 1,024 with the root's prefix."""

PART_BYTES_MAX = 255
"""UTF-8 bytes between two slashes: the limit of every common file system."""

TEMPORARY_PREFIX = ".tmp-"
"""Names reserved for files that a store is still writing."""

_FORBIDDEN_PARTS = frozenset(("", ".", ".."))


@lru_cache(1_024)  # A reader that waits asks for the same object again and again.
def check_path(path: str) -> None:
    """Refuse a path that does not consist of plain parts between slashes. Raises InternalError."""
    parts = path.split("/")
    if not _FORBIDDEN_PARTS.isdisjoint(parts):
        raise _refusal(path, "it has an empty, '.' or '..' part")
    if TEMPORARY_PREFIX in path and any(part.startswith(TEMPORARY_PREFIX) for part in parts):
        raise _refusal(path, f"names from {TEMPORARY_PREFIX!r} on are reserved for the store")
    if not path.isprintable():
        raise _refusal(path, "it has characters that cannot be printed")
    if len(path) > PART_BYTES_MAX or not path.isascii():
        _check_lengths(path, parts)


def check_prefix(prefix: str) -> None:
    """Refuse a listing prefix that no path could start with. Raises InternalError."""
    folder, _, start = prefix.rpartition("/")
    if folder or prefix.startswith("/"):
        check_path(folder)
    if start in (".", "..") or not prefix.isprintable():
        raise _refusal(prefix, "no object can start with it")


def check_root(prefix: str) -> None:
    """Refuse a prefix below which no object can be. Raises UsageError."""
    try:
        check_path(prefix)
    except InternalError as error:
        raise UsageError(
            f"{prefix!r} cannot be the prefix of a log in a bucket: {error.message.split(': ')[1]} "
            "Choose another prefix.",
            prefix=prefix,
        ) from None


def _check_lengths(path: str, parts: list[str]) -> None:
    sizes = [len(part.encode()) for part in parts]
    if max(sizes) > PART_BYTES_MAX or sum(sizes) + len(parts) - 1 > PATH_BYTES_MAX:
        raise _refusal(
            path,
            f"it is longer than {PATH_BYTES_MAX} bytes, or a part is longer than {PART_BYTES_MAX}",
        )


def _refusal(path: str, reason: str) -> InternalError:
    return InternalError(
        f"{path[:100]!r} is not a name for an object: {reason}. Nothing was written; please report "
        "this.",
        path=path,
    )
