"""What only a folder on a disk must do: sync, clean up, map, and stay in its root."""

import errno
import mmap
import os
from pathlib import Path
from typing import Any

import pytest

from tests.processes.interruption import Interruption
from txlog.clock import Runtime
from txlog.errors import (
    InternalError,
    OutcomeUnknown,
    StoreDenied,
    StoreFull,
    StoreNotAtomic,
    StoreUnavailable,
)
from txlog.storage import ByteRange, Created, Exists, LocalStore
from txlog.storage.disk.local import MAP_BYTES_MIN
from txlog.storage.disk.new_file import rename_exclusively
from txlog.testing.clock import ManualClock, manual_runtime


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "log", Runtime())


def _record_calls(monkeypatch: pytest.MonkeyPatch, root: Path) -> list[str]:
    """Record syncs and links as the kernel receives them, with paths below `root`."""
    calls: list[str] = []
    fsync, link = os.fsync, os.link

    def note_sync(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        name = os.path.relpath(path, root)
        calls.append("sync temporary" if "/.tmp-" in path else f"sync {name}")
        fsync(descriptor)

    def note_link(source: str, target: str, *, dst_dir_fd: int, **named: Any) -> None:
        folder = os.readlink(f"/proc/self/fd/{dst_dir_fd}")
        calls.append(f"link {os.path.relpath(os.path.join(folder, target), root)}")
        link(source, target, dst_dir_fd=dst_dir_fd, **named)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "link", note_link)
    return calls


def test_content_is_synced_before_the_link_and_folder_after_it(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("a/b/0", b"so that the folders are there")
    for write in (store.create, store.put_new):
        calls = _record_calls(monkeypatch, tmp_path)
        write(f"a/b/{write.__name__}", b"x")
        assert calls == ["sync temporary", f"link log/a/b/{write.__name__}", "sync log/a/b"]
        monkeypatch.undo()


def test_new_parent_folders_are_synced_before_files_are_written_in_them(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = _record_calls(monkeypatch, tmp_path)
    store.create("a/b/c", b"x")
    assert calls[:4] == ["sync log/a", "sync log", "sync .", "sync temporary"]


def test_parent_folders_created_by_another_process_are_synced_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log" / "a" / "b").mkdir(parents=True)
    calls = _record_calls(monkeypatch, tmp_path)
    LocalStore(tmp_path / "log", Runtime()).create("a/b/c", b"x")
    assert calls[:4] == ["sync log/a", "sync log", "sync .", "sync temporary"]


def test_parents_are_synced_by_their_creator_if_another_thread_opens_the_root_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path / "new/er/log", Runtime())
    makedirs = os.makedirs

    def create_and_be_overtaken(*path: str, **named: Any) -> None:
        makedirs(*path, **named)
        assert store.get("a") is None

    calls = _record_calls(monkeypatch, tmp_path)
    monkeypatch.setattr(os, "makedirs", create_and_be_overtaken)
    store.put_new("a", b"x")
    assert calls[:4] == ["sync new/er", "sync new", "sync .", "sync temporary"]


def test_hints_and_non_durable_stores_are_not_synced(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("a", b"x")
    throw_away = LocalStore(tmp_path / "other", Runtime(), durable=False)
    calls = _record_calls(monkeypatch, tmp_path)
    store.replace("hint", b"x")
    throw_away.create("a/b", b"x")
    throw_away.put_new("a/c", b"x")
    assert calls == ["link other/a/b", "link other/a/c"]


def test_repeated_create_syncs_folder_before_it_returns_Created(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("a/b", b"x")
    calls = _record_calls(monkeypatch, tmp_path)
    assert store.create("a/b", b"x") == Created()
    assert calls[-1] == "sync log/a"


def test_I4_reader_syncs_name_that_its_writer_has_not_synced(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a reader's next write may survive a power loss, and the object it depends on may
    not.
    """
    reader = LocalStore(tmp_path / "log", Runtime())
    throw_away = LocalStore(tmp_path / "log", Runtime(), durable=False)
    link, seen = os.link, []

    def link_and_be_seen(*names: str, **folders: Any) -> None:
        link(*names, **folders)
        calls = _record_calls(monkeypatch, tmp_path)
        assert throw_away.get("a/b") == b"x"
        assert calls == []
        assert reader.get("a/b") == b"x"
        seen.extend(calls)

    monkeypatch.setattr(os, "link", link_and_be_seen)
    store.create("a/b", b"x")
    assert seen == ["sync log/a"]
    monkeypatch.undo()
    calls = _record_calls(monkeypatch, tmp_path)
    assert reader.get("a/b") == b"x"
    assert calls == [], "its writer has"


def test_I4_name_left_unsynced_by_failed_fsync_is_synced_before_it_is_read(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("a/0", b"so that the folders are there")
    fsync = os.fsync

    def fail_for_folders(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "failed")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_for_folders)
    with pytest.raises(OutcomeUnknown):
        store.create("a/1", b"x")
    with pytest.raises(StoreUnavailable):
        LocalStore(tmp_path / "log", Runtime()).get("a/1")
    monkeypatch.undo()
    calls = _record_calls(monkeypatch, tmp_path)
    assert LocalStore(tmp_path / "log", Runtime()).get("a/1") == b"x"
    assert calls == ["sync log/a"]


@pytest.mark.bytecode
@pytest.mark.parametrize("method", ["create", "put_new"])
def test_I4_interrupted_write_leaves_name_synced_or_recognisable_as_unsynced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    modules = ["storage/disk/local.py", "storage/disk/new_file.py"]
    whole = Interruption(modules)
    with whole:
        getattr(LocalStore(tmp_path / "whole", Runtime()), method)("a/b", b"x")
    for at in range(len(whole.places)):
        calls = _record_calls(monkeypatch, tmp_path)
        folder = tmp_path / str(at)
        with whole.at(at) as interruption:
            getattr(LocalStore(folder, Runtime()), method)("a/b", b"x")
        assert interruption.has_come
        if (folder / "a/b").exists():
            is_safe = f"sync {at}/a" in calls[calls.index(f"link {at}/a/b") :]
            assert is_safe or (folder / "a/b").stat().st_nlink == 2, interruption.places[-1]
        monkeypatch.undo()
        getattr(LocalStore(folder, Runtime()), method)("a/b", b"x")
        assert LocalStore(folder, Runtime()).get("a/b") == b"x"


def test_folder_removed_by_another_program_is_created_again(
    store: LocalStore, tmp_path: Path
) -> None:
    store.create("a/b/1", b"x")
    (tmp_path / "log/a/b/1").unlink()
    (tmp_path / "log/a/b").rmdir()
    assert store.create("a/b/2", b"x") == Created()


def test_reading_creates_no_folder(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "absent", Runtime())
    assert store.get("a") is None
    assert list(store.list_after("")) == []
    store.delete("a")
    assert not (tmp_path / "absent").exists()


def test_temporary_files_are_neither_left_behind_nor_listed(
    store: LocalStore, tmp_path: Path
) -> None:
    store.create("a/1", b"x")
    store.create("a/1", b"y")
    store.put_new("a/2", b"x")
    store.replace("a/3", b"x")
    assert sorted(os.listdir(tmp_path / "log/a")) == ["1", "2", "3"]
    (tmp_path / "log/a/.tmp-left").write_bytes(b"torn")
    assert [found.path for found in store.list_after("")] == ["a/1", "a/2", "a/3"]


def test_sweep_removes_only_old_temporary_files(store: LocalStore, tmp_path: Path) -> None:
    store.create("a/1", b"x")
    old, young = tmp_path / f"log/a/.tmp-{'0' * 32}", tmp_path / f"log/.tmp-{'1' * 32}"
    foreign = tmp_path / "log/a/.tmp-notes.txt"
    stored = tmp_path / "log/a/1"
    for path, modified_s in ((old, 1_000), (young, 90_000), (foreign, 1_000), (stored, 1_000)):
        path.touch()
        os.utime(path, (modified_s, modified_s))
    runtime = manual_runtime(clock=ManualClock(now_ms=100_000_000.0))
    assert LocalStore(tmp_path / "log", runtime).sweep_temporaries(24 * 3600 * 1000) == 1
    assert not old.exists()
    assert young.exists()
    assert foreign.exists(), "another program's"
    assert store.get("a/1") is not None


def test_I4_sweep_syncs_object_whose_temporary_name_it_removes(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("a/1", b"x")
    os.link(tmp_path / "log/a/1", tmp_path / f"log/a/.tmp-{'1' * 32}")
    (tmp_path / f"log/a/.tmp-{'2' * 32}").touch()
    for path in (tmp_path / "log/a").iterdir():
        os.utime(path, (0, 0))
    calls = _record_calls(monkeypatch, tmp_path)
    assert store.sweep_temporaries(1_000) == 2
    assert calls == ["sync log/a"]
    assert os.listdir(tmp_path / "log/a") == ["1"]


def test_large_ranges_are_views_of_the_mapped_file(store: LocalStore) -> None:
    body = os.urandom(2 * MAP_BYTES_MIN)
    store.put_new("a", body)
    parts = store.get_ranges("a", [ByteRange(5, MAP_BYTES_MIN), ByteRange(0, 7)])
    assert parts is not None
    for part in parts:
        assert isinstance(part, memoryview)
        assert isinstance(part.obj, mmap.mmap)
    store.delete("a")
    assert [bytes(part) for part in parts] == [body[5 : 5 + MAP_BYTES_MIN], body[:7]]


def test_symlink_out_of_the_root_is_neither_listed_nor_swept(
    store: LocalStore, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"x")
    (outside / f".tmp-{'0' * 32}").write_bytes(b"x")
    os.utime(outside / f".tmp-{'0' * 32}", (0, 0))
    store.create("a/1", b"x")
    (tmp_path / "log/a/link").symlink_to(outside)
    assert [found.path for found in store.list_after("")] == ["a/1"]
    assert store.sweep_temporaries(1_000) == 0


def test_file_in_place_of_folder_is_refused(store: LocalStore, tmp_path: Path) -> None:
    store.create("a", b"x")
    with pytest.raises(StoreDenied, match="in the way"):
        store.create("a/b", b"x")
    with pytest.raises(StoreDenied, match="in the way"):
        store.get("a/b")
    root = tmp_path / "file"
    root.write_bytes(b"x")
    with pytest.raises(StoreDenied):
        LocalStore(root, Runtime()).create("a", b"x")


def test_folder_in_place_of_object_is_refused(store: LocalStore) -> None:
    store.create("a/b", b"x")
    for call in (lambda: store.get("a"), lambda: store.create("a", b"x")):
        with pytest.raises(StoreDenied, match="in the way"):
            call()


def test_unwritable_root_is_refused() -> None:
    with pytest.raises(StoreDenied, match="cannot create /sys/txlog/a"):
        LocalStore("/sys/txlog", Runtime()).create("a", b"x")


class _FailingSystemCalls:
    """os.fsync and os.link as on a failing disk or another kind of file system."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch

    def fail(self, name: str, number: int) -> None:
        def fail(*_: object, **__: object) -> None:
            raise OSError(number, os.strerror(number))

        self._patch.setattr(os, name, fail)


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> _FailingSystemCalls:
    return _FailingSystemCalls(monkeypatch)


@pytest.mark.parametrize(
    ("call", "number", "error"),
    [
        ("fsync", errno.ENOSPC, StoreFull),
        ("writev", errno.EDQUOT, StoreFull),
        ("link", errno.ENOSPC, StoreFull),
        ("fsync", errno.EIO, StoreUnavailable),
        ("link", errno.EROFS, StoreDenied),
    ],
)
def test_failed_sync_write_or_link_leaves_no_file(
    store: LocalStore,
    tmp_path: Path,
    system: _FailingSystemCalls,
    call: str,
    number: int,
    error: type[Exception],
) -> None:
    store.create("a/0", b"so that the folders are there")
    system.fail(call, number)
    for write in (store.create, store.put_new):
        with pytest.raises(error):
            write("a/1", b"x")
    assert os.listdir(tmp_path / "log/a") == ["0"]


def test_link_that_reports_an_error_after_success_counts_as_made(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS can lose the answer; the link count shows the success (open(2))."""
    link = os.link

    def link_and_lose_the_answer(*names: str, **folders: Any) -> None:
        link(*names, **folders)
        raise OSError(errno.EIO, "lost")

    monkeypatch.setattr(os, "link", link_and_lose_the_answer)
    assert store.create("a", b"x") == Created()
    store.put_new("b", b"x")


def test_file_system_without_hard_links_uses_exclusive_rename(
    store: LocalStore, tmp_path: Path, system: _FailingSystemCalls
) -> None:
    system.fail("link", errno.EPERM)
    assert store.create("a", b"first") == Created()
    assert store.create("a", b"second") == Exists(b"first")
    assert os.listdir(tmp_path / "log") == ["a"]


def test_file_system_without_hard_links_and_exclusive_rename_is_refused(
    store: LocalStore,
    tmp_path: Path,
    system: _FailingSystemCalls,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel returns EINVAL for a flag that it or the file system does not support."""
    system.fail("link", errno.EOPNOTSUPP)
    monkeypatch.setattr("txlog.storage.disk.new_file._RENAME_NOREPLACE", 1 << 20)
    with pytest.raises(StoreNotAtomic, match="ext4 or XFS, or on S3"):
        store.create("a", b"x")
    assert os.listdir(tmp_path / "log") == []


def test_an_exclusive_rename_never_overwrites(tmp_path: Path) -> None:
    temporary, target = tmp_path / "temporary", tmp_path / "target"
    temporary.write_bytes(b"new")
    target.write_bytes(b"old")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert not rename_exclusively(folder, "temporary", "target")
    finally:
        os.close(folder)
    assert target.read_bytes() == b"old"


# Objects that are written piece by piece.


def test_object_from_open_new_is_visible_only_after_finish(
    store: LocalStore, tmp_path: Path
) -> None:
    new = store.open_new("a/b")
    new.write(b"one")
    new.write((memoryview(b"two"), b"", b"three" * 100_000))
    assert store.get("a/b") is None
    assert list(store.list_after("")) == []
    new.finish()
    assert store.get("a/b") == b"onetwo" + b"three" * 100_000
    assert os.listdir(tmp_path / "log/a") == ["b"]


def test_discarded_object_from_open_new_leaves_no_file(store: LocalStore, tmp_path: Path) -> None:
    new = store.open_new("a/b")
    new.write(b"x")
    new.discard()
    new.discard()
    assert os.listdir(tmp_path / "log/a") == []


@pytest.mark.parametrize("call", ["writev", "fsync", "link"])
def test_open_new_on_a_full_disk_leaves_no_file(
    store: LocalStore, tmp_path: Path, system: _FailingSystemCalls, call: str
) -> None:
    new = store.open_new("a/b")
    system.fail(call, errno.ENOSPC)

    def write() -> None:
        new.write(b"x")
        new.finish()

    with pytest.raises(StoreFull):
        write()
    new.discard()
    assert os.listdir(tmp_path / "log/a") == []


def test_open_new_never_overwrites_an_existing_object(store: LocalStore, tmp_path: Path) -> None:
    store.put_new("a/b", b"first")
    new = store.open_new("a/b")
    new.write(b"second")
    with pytest.raises(InternalError, match="exists already with other content"):
        new.finish()
    assert store.get("a/b") == b"first"
    assert os.listdir(tmp_path / "log/a") == ["b"]
