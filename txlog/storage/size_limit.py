"""Refuses to read an object into memory that is larger than its kind can be.

It guards I16 against a store that other users can write to: a sparse file of 100 GB costs its
author nothing, and would cost every reader its memory. The limits are in `txlog/layout.py`.
"""

from __future__ import annotations

from txlog.errors import CorruptData
from txlog.layout import bytes_max


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
