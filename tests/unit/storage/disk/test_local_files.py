"""Files of a local store: read in the pieces that the kernel returns, and their permissions."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from txlog.clock import Runtime
from txlog.errors import InternalError, StoreDenied, StoreUnavailable
from txlog.storage import ByteRange, LocalStore
from txlog.storage.disk.local import MAP_BYTES_MIN
from txlog.storage.disk.new_file import EARLY_BYTES
from txlog.storage.store import TEMPORARY_PREFIX

BODY = bytes(range(256)) * 40


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "log", Runtime(), durable=False)


@pytest.fixture
def short_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that returns at most 100 bytes, as a network file system may."""
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, at: pread(fd, min(length, 100), at))


@pytest.mark.usefixtures("short_reads")
def test_short_reads_return_the_whole_object_and_whole_ranges(store: LocalStore) -> None:
    store.put_new("a/b", BODY)
    assert store.get("a/b") == BODY
    found = store.get_ranges("a/b", [ByteRange(5, 1000), ByteRange(0, 100), ByteRange(9000, 300)])
    assert found == [BODY[5:1005], BODY[:100], BODY[9000:9300]]


@pytest.mark.usefixtures("short_reads")
def test_short_reads_do_not_extend_a_range(store: LocalStore) -> None:
    store.create("a", BODY)
    assert store.get_ranges("a", [ByteRange(10, 250)]) == [BODY[10:260]]


@pytest.mark.usefixtures("short_reads")
def test_range_beyond_the_end_is_truncated(store: LocalStore) -> None:
    store.put_new("a/b", BODY)
    found = store.get_ranges("a/b", [ByteRange(len(BODY) - 3, 10), ByteRange(len(BODY), 10)])
    assert found == [BODY[-3:], b""]


@pytest.mark.parametrize("length", [MAP_BYTES_MIN - 1, MAP_BYTES_MIN, MAP_BYTES_MIN + 1])
@pytest.mark.parametrize("size", [0, 1, 1000])
def test_large_range_of_small_object_returns_available_bytes(
    store: LocalStore, size: int, length: int
) -> None:
    store.put_new("a/b", BODY[:size])
    found = store.get_ranges("a/b", [ByteRange(0, length), ByteRange(size, 1)])
    assert found is not None
    assert [bytes(part) for part in found] == [BODY[:size], b""]


def test_object_has_mode_644(store: LocalStore) -> None:
    before = os.umask(0)
    try:
        store.put_new("a/b", b"x")
    finally:
        os.umask(before)
    assert os.stat(f"{store.url}/a/b").st_mode & 0o777 == 0o644


def test_recreated_folder_and_its_object_have_the_same_modes_as_before(store: LocalStore) -> None:
    """The umask decides about folders, as for any program's."""

    def modes() -> list[int]:
        store.put_new("a/b", b"x")
        paths = (f"{store.url}/a", f"{store.url}/a/b")
        return [os.stat(path).st_mode & 0o7777 for path in paths]

    before = os.umask(0o002)
    try:
        assert modes() == [0o775, 0o644]
        os.unlink(f"{store.url}/a/b")
        os.rmdir(f"{store.url}/a")
        assert modes() == [0o775, 0o644]
    finally:
        os.umask(before)


def test_failed_hint_replacement_leaves_no_file(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "log" / "hint").mkdir(parents=True)
    with pytest.raises(StoreDenied):
        store.replace("hint", b"x")
    assert os.listdir(tmp_path / "log") == ["hint"]


def test_listing_walks_only_the_folder_of_the_prefix(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("a/b/1", "a/b/2", "a/c/1", "d/1"):
        store.put_new(path, b"x")
    walked: list[str] = []
    scandir = os.scandir

    def note(folder: int) -> Iterator[os.DirEntry[str]]:
        walked.append(os.path.relpath(os.readlink(f"/proc/self/fd/{folder}"), store.url))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", note)
    assert [found.path for found in store.list_after("a/b/")] == ["a/b/1", "a/b/2"]
    assert walked == ["a/b"]


def test_a_listing_outlives_the_last_reference_to_its_store(tmp_path: Path) -> None:
    LocalStore(tmp_path, Runtime(), durable=False).put_new("a/b", b"x")
    listing = LocalStore(tmp_path, Runtime(), durable=False).list_after("")
    assert [found.path for found in listing] == ["a/b"]


def test_sweep_removes_temporary_files_older_than_the_given_age(
    store: LocalStore, tmp_path: Path
) -> None:
    store.put_new("a/b", b"x")
    litter = tmp_path / "log" / "a" / f"{TEMPORARY_PREFIX}{'1' * 32}"
    litter.write_bytes(b"x")
    old_s = time.time() - 100
    os.utime(litter, (old_s, old_s))
    assert store.sweep_temporaries(200_000) == 0
    assert store.sweep_temporaries(50_000) == 1
    assert not litter.exists()
    assert store.get("a/b") == b"x"


def test_a_root_may_end_with_a_slash(tmp_path: Path) -> None:
    store = LocalStore(f"{tmp_path}/log/", Runtime(), durable=False)
    store.put_new("a", b"x")
    assert (tmp_path / "log" / "a").read_bytes() == b"x"
    assert store.url == f"{tmp_path}/log"


def test_error_names_folder_in_place_of_object(tmp_path: Path) -> None:
    os.makedirs(tmp_path / "logX/a")
    places = {"/": "/proc", f"{tmp_path}/logX": f"{tmp_path}/logX/a"}
    for root, place in places.items():
        with pytest.raises(StoreDenied, match=f"cannot read {place}:") as raised:
            LocalStore(root, Runtime()).get(os.path.basename(place))
        assert raised.value.facts["place"] == place


@pytest.mark.parametrize(
    ("pieces", "sent"),
    [
        ([EARLY_BYTES - 1], []),
        ([EARLY_BYTES - 1, 1], [(0, EARLY_BYTES)]),
        ([EARLY_BYTES, 5], [(0, EARLY_BYTES)]),
        (
            [EARLY_BYTES + 1, EARLY_BYTES - 1, 1],
            [(0, EARLY_BYTES + 1), (EARLY_BYTES + 1, EARLY_BYTES)],
        ),
    ],
)
def test_written_pieces_go_to_disk_early_once_EARLY_BYTES_are_reached(
    store: LocalStore,
    monkeypatch: pytest.MonkeyPatch,
    pieces: list[int],
    sent: list[tuple[int, int]],
) -> None:
    advised: list[tuple[int, int]] = []
    monkeypatch.setattr(
        os, "posix_fadvise", lambda _, start, length, advice: advised.append((start, length))
    )
    new = store.open_new("a/b")
    for size in pieces:
        new.write(bytes(size))
    new.finish()
    assert advised == sent


def test_refused_posix_fadvise_is_ignored(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(22, "invalid")

    monkeypatch.setattr(os, "posix_fadvise", refuse)
    new = store.open_new("a/b")
    new.write(bytes(EARLY_BYTES))
    new.finish()
    found = store.get("a/b")
    assert found is not None
    assert len(found) == EARLY_BYTES


def test_create_fails_if_name_is_repeatedly_taken_and_then_absent(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "log", Runtime(), publish=lambda *_: False)
    with pytest.raises(StoreUnavailable, match="taken and then absent 4 times") as raised:
        store.create("a/b", b"x")
    assert raised.value.facts["path"] == f"{tmp_path}/log/a/b"


def test_error_for_empty_entry_body_names_the_object(store: LocalStore) -> None:
    with pytest.raises(InternalError, match="the body of a/b has 0 bytes"):
        store.create("a/b", b"")


def test_sweep_of_missing_root_removes_nothing(tmp_path: Path) -> None:
    assert LocalStore(tmp_path / "log", Runtime()).sweep_temporaries(0) == 0


def test_sweep_of_missing_root_spares_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / f"{TEMPORARY_PREFIX}{'1' * 32}"
    elsewhere.touch()
    os.utime(elsewhere, (0, 0))
    monkeypatch.chdir(tmp_path)
    assert LocalStore(tmp_path / "log", Runtime()).sweep_temporaries(0) == 0
    assert elsewhere.exists()


def test_open_new_and_replace_below_a_file_are_refused(store: LocalStore) -> None:
    store.create("a", b"x")
    for write in (store.open_new, lambda path: store.replace(path, b"x")):
        with pytest.raises(StoreDenied, match="cannot (create|replace) .*a/b"):
            write("a/b")
