"""Bytes of a new file reach the disk in order, however few of them a call takes; its name is synced
or the error is raised."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.clock import Runtime
from txlog.errors import StoreNotAtomic
from txlog.storage import LocalStore, MemoryStore
from txlog.storage.disk.new_file import (
    PARTS_AT_ONCE_MAX,
    WRITE_BYTES_MAX,
    publish_exclusively,
    rename_exclusively,
    sync_descriptor,
    sync_folder,
    write_parts,
)
from txlog.storage.disk.os_error import store_error
from txlog.storage.store import Bytes
from txlog.testing.clock import manual_runtime


class Calls:
    """Notes the sizes of the buffers of each writev(2), which takes at most `taken` bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, taken: int | None = None) -> None:
        self.sizes: list[list[int]] = []
        self._taken = taken
        self._writev = os.writev
        monkeypatch.setattr(os, "writev", self._write)

    def _write(self, descriptor: int, parts: Sequence[Bytes]) -> int:
        self.sizes.append([len(part) for part in parts])
        if self._taken is None:
            return self._writev(descriptor, parts)
        joined = b"".join(parts)[: self._taken]
        return os.write(descriptor, joined)


def written(path: Path, parts: Sequence[Bytes], start: bytes = b"") -> bytes:
    with path.open("wb") as file:
        file.write(start)
        file.flush()
        write_parts(file.fileno(), parts, len(start))
    return path.read_bytes()


def test_call_takes_at_most_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    body = os.urandom(2 * WRITE_BYTES_MAX + 5)
    assert written(tmp_path / "a", [body]) == body
    assert calls.sizes == [[WRITE_BYTES_MAX], [WRITE_BYTES_MAX], [5]]
    calls.sizes.clear()
    parts = [body[:10], body[10:WRITE_BYTES_MAX], body[WRITE_BYTES_MAX : WRITE_BYTES_MAX + 3]]
    assert written(tmp_path / "b", parts) == b"".join(parts)
    assert calls.sizes == [[10, WRITE_BYTES_MAX - 10], [3]]


def test_call_ends_at_a_multiple_of_its_bytes_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    body = os.urandom(2 * WRITE_BYTES_MAX)
    assert written(tmp_path / "a", [body], b"start") == b"start" + body
    assert calls.sizes == [[WRITE_BYTES_MAX - 5], [WRITE_BYTES_MAX], [5]]


def test_call_takes_at_most_its_buffers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    parts = [b"%03d" % (number % 1_000) for number in range(PARTS_AT_ONCE_MAX + 2)]
    assert written(tmp_path / "a", parts) == b"".join(parts)
    assert [len(sizes) for sizes in calls.sizes] == [PARTS_AT_ONCE_MAX, 2]


@pytest.mark.parametrize("taken", [1, 2, 3, 4, 7, 100])
def test_rest_of_a_call_is_written_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    Calls(monkeypatch, taken)
    parts = [b"abc", b"", memoryview(b"defg"), b"h", b"", b"ij", b""]
    assert written(tmp_path / "a", parts) == b"abcdefghij"


def test_buffer_of_numbers_is_written_by_its_bytes(tmp_path: Path) -> None:
    numbers = memoryview(bytes(range(16))).cast("I")
    assert len(numbers) == 4
    assert written(tmp_path / "a", [numbers, b"end"]) == bytes(range(16)) + b"end"
    assert written(tmp_path / "b", []) == b""


# Names.


@pytest.fixture
def folder(tmp_path: Path) -> int:
    """An open folder with a temporary file `t` and another file `taken`."""
    (tmp_path / "t").write_bytes(b"new")
    (tmp_path / "taken").write_bytes(b"old")
    return os.open(tmp_path, os.O_RDONLY)


def raises(number: int) -> object:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_name_is_given_once(folder: int, tmp_path: Path) -> None:
    for publish in (publish_exclusively, rename_exclusively):
        assert not publish(folder, "t", "taken")
        assert (tmp_path / "taken").read_bytes() == b"old"
    assert publish_exclusively(folder, "t", "a")
    assert (tmp_path / "t").samefile(tmp_path / "a")


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_file_is_renamed_where_it_cannot_be_linked(
    folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(os, "link", raises(number))
    assert not publish_exclusively(folder, "t", "taken")
    assert publish_exclusively(folder, "t", "a")
    assert sorted(os.listdir(tmp_path)) == ["a", "taken"]
    assert (tmp_path / "a").read_bytes() == b"new"


def test_other_errors_of_a_link_are_raised(folder: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", raises(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        publish_exclusively(folder, "t", "a")
    with pytest.raises(OSError, match="No such file") as failed:
        rename_exclusively(folder, "missing", "a")
    assert (failed.value.errno, failed.value.filename) == (errno.ENOENT, "a")


def test_link_whose_answer_is_an_error_counts_if_the_file_has_two_names(
    folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS sends a request again whose answer was lost."""
    link = os.link

    def twice(*names: str, **options: object) -> None:
        link(*names, **options)  # type: ignore[arg-type]
        link(*names, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "link", twice)
    assert publish_exclusively(folder, "t", "a")
    assert (tmp_path / "t").stat().st_nlink == 2
    assert not publish_exclusively(folder, "taken", "a")


class NoLibrary:
    """A C library without the function."""


def test_system_without_exclusive_rename_is_refused(
    folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: NoLibrary())
    with pytest.raises(StoreNotAtomic, match="the C library has no renameat2") as refused:
        rename_exclusively(folder, "t", "a")
    assert refused.value.facts["path"] == "a"


# Syncs.


def test_file_system_that_cannot_sync_folders_is_no_error(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    sync_folder(str(tmp_path))
    sync_descriptor(folder)
    monkeypatch.setattr(os, "fsync", raises(errno.EINVAL))
    sync_folder(str(tmp_path))
    sync_descriptor(folder)
    monkeypatch.setattr(os, "fsync", raises(errno.EIO))
    for sync in (lambda: sync_folder(str(tmp_path)), lambda: sync_descriptor(folder)):
        with pytest.raises(OSError, match="Input/output error"):
            sync()
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(NotADirectoryError):
        sync_folder(str(tmp_path / "t"))


def test_error_of_a_link_on_the_way_says_so() -> None:
    error = store_error(OSError(errno.ELOOP, ""), "read", "/x/y")
    assert "cannot read /x/y: a symbolic link is there or on the way" in error.message
    assert error.facts == {"action": "read", "place": "/x/y", "errno": "ELOOP"}


# Listings.

NAMES = st.lists(
    st.lists(st.sampled_from(["a", "a-b", "b", "ab", "0"]), min_size=1, max_size=3).map("/".join),
    max_size=8,
)
PREFIXES = st.sampled_from(["", "a", "a/", "a/a", "a-", "a/b/", "b/0", "ab"])


@given(NAMES, PREFIXES, st.sampled_from(["", "a", "a-b", "a/", "a/a/a", "a/b", "b", "b/0/0"]))
@settings(max_examples=examples(150), derandomize=True, deadline=None)
def test_listing_of_a_disk_is_that_of_a_bucket(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], prefix: str, after: str
) -> None:
    disk = LocalStore(tmp_path_factory.mktemp("root"), Runtime(), durable=False)
    memory = MemoryStore(manual_runtime())
    kept = set[str]()
    for name in names:
        # On a disk a name is a file or a folder.
        if any(
            f"{one}/".startswith(f"{name}/") or f"{name}/".startswith(f"{one}/") for one in kept
        ):
            continue
        kept.add(name)
        for store in (disk, memory):
            store.put_new(name, name.encode())
    # A file in the place of a folder is refused.
    assume(not any(prefix.startswith(f"{name}/") for name in kept))
    found = [(stored.path, stored.size_bytes) for stored in disk.list_after(prefix, after)]
    assert found == [(one.path, one.size_bytes) for one in memory.list_after(prefix, after)]
    wanted = sorted(name for name in kept if name.startswith(prefix) and name > after)
    assert [path for path, _ in found] == wanted
