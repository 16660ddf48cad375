"""A watch wakes when a file gets its name in a folder, whichever process gives it."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from txlog.clock import Runtime
from txlog.storage import MemoryStore
from txlog.storage.disk.folder_watch import FolderWatch, _checked
from txlog.storage.disk.local import LocalStore
from txlog.storage.policy.store_wrapper import StoreWrapper
from txlog.storage.store import watched

LONG_MS = 60_000.0


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """A store with two folders."""
    store = LocalStore(tmp_path / "root", Runtime(), durable=False)
    for folder in ("a", "b"):
        store.create(f"{folder}/first", b"1")
    return store


def test_watch_reports_each_new_object_once(store: LocalStore) -> None:
    watch = watched(StoreWrapper(store), ["a/", "b/"])
    assert watch is not None
    assert not watch.wait(0)
    for name in ("a/second", "b/second"):
        store.create(name, b"2")
    assert watch.wait(LONG_MS)
    assert not watch.wait(0)


def test_watch_ignores_other_folders_and_files_without_their_name(
    store: LocalStore, tmp_path: Path
) -> None:
    watch = watched(store, ["a/"])
    assert watch is not None
    store.create("b/second", b"2")
    (tmp_path / "root" / "a" / "draft").write_bytes(b"2")
    assert not watch.wait(0)


def test_object_of_another_process_ends_the_wait(store: LocalStore, tmp_path: Path) -> None:
    watch = watched(store, ["a/"])
    assert watch is not None
    seen = []
    waiting = threading.Thread(target=lambda: seen.append(watch.wait(LONG_MS)))
    waiting.start()
    target = tmp_path / "root" / "a" / "second"
    script = "import os, sys; open('draft', 'w'); os.rename('draft', sys.argv[1])"
    subprocess.run([sys.executable, "-c", script, target], cwd=tmp_path, check=True)
    waiting.join(LONG_MS / 2_000)
    assert seen == [True]


def test_store_without_watches_says_so(store: LocalStore) -> None:
    assert watched(MemoryStore(Runtime()), ["a/"]) is None
    assert watched(store, ["a/", "missing/"]) is None


def test_watch_that_is_gone_leaves_no_descriptor(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        FolderWatch([str(tmp_path)])
        with pytest.raises(OSError, match="No such file"):
            FolderWatch([str(tmp_path / "missing")])
    assert len(os.listdir("/proc/self/fd")) <= before


def test_descriptor_of_a_process_without_standard_input_is_no_error() -> None:
    assert _checked(0) == 0
    with pytest.raises(OSError):
        _checked(-1)
