"""Objects that are larger than any the log writes are not read into memory."""

import os
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem

from tests.logs.empty_log import empty_log
from txlog.client.admin import Admin
from txlog.clock import Runtime
from txlog.engine.connection import connect, open_connection
from txlog.errors import CorruptData
from txlog.layout import CLUSTER_FILE, HINT_BYTES_MAX, SMALL_BYTES_MAX, LogLayout, bytes_max
from txlog.storage import FsspecStore, LocalStore, MemoryStore

NAMES = LogLayout("10" * 16)
ENTRY, HINT = NAMES.transactions(3).entry(7), NAMES.cluster().hint
SNAPSHOT, SEGMENT = NAMES.transactions(0).snapshot(7), NAMES.topic("t", "1").segment("0" * 32)


def test_each_object_kind_except_segments_has_a_size_limit() -> None:
    assert bytes_max(CLUSTER_FILE) == bytes_max(ENTRY) == SMALL_BYTES_MAX
    assert bytes_max(NAMES.cluster().boundary(0)) == SMALL_BYTES_MAX
    assert bytes_max(HINT) == HINT_BYTES_MAX
    assert bytes_max(SNAPSHOT) == bytes_max(NAMES.topic("t", "1").chunk(0, 9)) == 256 << 20
    assert bytes_max(SEGMENT) is None
    assert bytes_max("README.txt") is None


def test_sparse_file_of_100_GiB_is_refused_by_its_size(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, Runtime(), durable=False)
    for path in (HINT, ENTRY, SNAPSHOT, CLUSTER_FILE):
        store.put_new(path, b"x")
        os.truncate(tmp_path / path, 100 << 30)
        with pytest.raises(CorruptData, match=f"{path} has {100 << 30} bytes"):
            store.get(path)
    store.put_new(SEGMENT, b"x")
    assert store.get(SEGMENT) == b"x"


@pytest.mark.parametrize("path", [HINT, ENTRY])
def test_object_at_the_size_limit_is_read_and_a_larger_one_is_refused(path: str) -> None:
    limit = bytes_max(path) or 0
    store = MemoryStore(Runtime())
    store.put_new(path, b"x" * limit)
    assert store.get(path) == b"x" * limit
    store.replace(path, b"x" * (limit + 1))
    with pytest.raises(CorruptData, match=f"{path} has {limit + 1} bytes"):
        store.get(path)


class _Files(LocalFileSystem):  # type: ignore[misc]
    """Files of another kind, which record the requested ranges."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.asked: list[tuple[int | None, int | None]] = []

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **named: object
    ) -> bytes:
        self.asked.append((start, end))
        found: bytes = super().cat_file(path, start, end, **named)
        return found


def test_fsspec_store_requests_at_most_one_byte_above_the_limit(tmp_path: Path) -> None:
    files = _Files(skip_instance_cache=True)
    store = FsspecStore(files, str(tmp_path), f"files://{tmp_path}", Runtime())
    (tmp_path / ENTRY).parent.mkdir(parents=True)
    (tmp_path / ENTRY).write_bytes(b"x")
    assert store.get(ENTRY) == b"x"
    os.truncate(tmp_path / ENTRY, 100 << 30)
    with pytest.raises(CorruptData, match=f"{ENTRY} has {SMALL_BYTES_MAX + 1} bytes"):
        store.get(ENTRY)
    assert files.asked == [(0, SMALL_BYTES_MAX + 1)] * 2


def spoil_hint(hint: Path, how: str) -> None:
    """Put another object in the hint's place."""
    if how == "sparse":
        hint.write_bytes(b"{")
        os.truncate(hint, 100 << 30)
    elif how == "pipe":
        os.mkfifo(hint)
    elif how == "link":
        hint.symlink_to("/etc/passwd")
    else:
        hint.mkdir()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("how", ["sparse", "pipe", "link", "folder"])
def test_R16_invalid_hint_is_ignored(tmp_path: Path, how: str) -> None:
    root = empty_log(tmp_path / "log")
    Admin(root).create_topic("t", 1)
    spoil_hint(tmp_path / "log" / connect(root).cluster.layout.cluster().hint, how)
    fresh = open_connection(LocalStore(root, Runtime(), durable=False), Runtime())
    assert list(fresh.cluster.state().topics) == ["t"]
