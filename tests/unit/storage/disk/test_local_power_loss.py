"""The power is lost at every step of writing one object, in each way of writing segments, entries
and snapshots. The object is whole or absent, and present once its writer got the answer.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from txlog.clock import Runtime
from txlog.storage.disk.local import LocalStore
from txlog.storage.disk.new_file import (
    EARLY_BYTES,
    PARTS_AT_ONCE_MAX,
    WRITE_BYTES_MAX,
    Publish,
    publish_exclusively,
    rename_exclusively,
)
from txlog.testing.power_loss import SURVIVALS, Disk, Renamed, Trace, recorded

NAME = "topics/t/segments/s.arrow"

Write = Callable[[LocalStore, tuple[bytes, ...]], object]


def create(store: LocalStore, pieces: tuple[bytes, ...]) -> object:
    """Write as entries, boundaries and the cluster file are written."""
    return store.create(NAME, b"".join(pieces))


def put_new(store: LocalStore, pieces: tuple[bytes, ...]) -> object:
    """Write as snapshots, chunks and small segments are written."""
    return store.put_new(NAME, pieces)


def in_pieces(store: LocalStore, pieces: tuple[bytes, ...]) -> object:
    """Write as a segment is written while its rows arrive."""
    file = store.open_new(NAME)
    for piece in pieces:
        file.write(piece)
    return file.finish()


def around(size: int) -> list[tuple[bytes, ...]]:
    """One byte less than `size`, as many, and one more; the last byte in a piece of its own."""
    return [(b"a" * (size - 2), b"z"), (b"a" * (size - 1), b"z"), (b"a" * size, b"z")]


SMALL = [(b"a",), (), *around(WRITE_BYTES_MAX), (b"ab",) * (PARTS_AT_ONCE_MAX + 1)]
LARGE = [*around(EARLY_BYTES), (b"a" * EARLY_BYTES, b"b" * EARLY_BYTES, b"z")]
WRITTEN: list[tuple[Write, tuple[bytes, ...]]] = [
    *[(create, pieces) for pieces in SMALL if pieces],
    *[(put_new, pieces) for pieces in SMALL + LARGE],
    *[(in_pieces, pieces) for pieces in SMALL + LARGE],
]


def by_rename(folder: Path, trace: Trace) -> Publish:
    """Publish without hard links; the recorder sees calls of `os` only."""

    def publish(at: int, temporary: str, target: str) -> bool:
        published = rename_exclusively(at, temporary, target)
        below = os.path.relpath(os.readlink(f"/proc/self/fd/{at}"), folder)
        trace.operations.append(Renamed(f"{below}/{temporary}", f"{below}/{target}"))
        return published

    return publish


@pytest.mark.parametrize("renames", [False, True], ids=["link", "rename"])
@pytest.mark.parametrize(
    ("write", "pieces"),
    WRITTEN,
    ids=[f"{write.__name__} {sum(map(len, p))} in {len(p)}" for write, p in WRITTEN],
)
def test_I15_stored_object_survives_power_loss_and_is_never_partial(
    tmp_path: Path, write: Write, pieces: tuple[bytes, ...], renames: bool
) -> None:
    disk = Disk(tmp_path)
    with recorded(tmp_path) as trace:
        publish = by_rename(tmp_path, trace) if renames else publish_exclusively
        store = LocalStore(tmp_path / "log", Runtime(), publish=publish)
        write(store, pieces)
    stored = b"".join(pieces)
    seen = set()
    for operation in trace.operations:
        disk.apply(operation)
        for survival in SURVIVALS:
            seen.add(disk.image(survival).get(f"log/{NAME}"))
    assert seen <= {None, stored}
    for survival in SURVIVALS:
        assert disk.image(survival).get(f"log/{NAME}") == stored
