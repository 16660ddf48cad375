"""A file of an export is there whole or not at all, on a disk and behind fsspec."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from txlog.clock import Runtime
from txlog.errors import StoreDenied, StoreFull, StoreUnavailable, UsageError
from txlog.storage.disk.output_file import new_output_file, require_new, require_outside_logs

ENTROPY = Runtime().entropy


@pytest.fixture(params=["disk", "fsspec"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The name of a file in an empty folder, on a disk, or at a URL of fsspec's memory."""
    if request.param == "disk":
        return str(tmp_path / "out.parquet")
    folder = f"memory://{tmp_path.name}"
    fsspec.filesystem("memory").makedirs(folder, exist_ok=True)
    return f"{folder}/out.parquet"


def names_beside(target: str) -> list[str]:
    """The names in the target's folder."""
    files, path = fsspec.core.url_to_fs(target)
    files.invalidate_cache()
    found = files.ls(path.rpartition("/")[0], detail=False)
    return sorted(name.rpartition("/")[2] for name in found)


def content(target: str) -> bytes:
    files, path = fsspec.core.url_to_fs(target)
    data: bytes = files.cat_file(path)
    return data


def write(target: str, *pieces: bytes) -> None:
    with new_output_file(target, ENTROPY) as file:
        for piece in pieces:
            file.write(piece)


def test_file_has_its_name_once_it_is_complete(target: str) -> None:
    require_new(target)
    with new_output_file(target, ENTROPY) as file:
        file.write(b"one")
        file.flush()
        assert "out.parquet" not in names_beside(target)
        file.write(b", two")
    assert content(target) == b"one, two"
    assert names_beside(target) == ["out.parquet"]


def test_temporary_name_is_hidden_and_says_whose_it_is(tmp_path: Path) -> None:
    with new_output_file(str(tmp_path / "out.csv"), ENTROPY) as file:
        file.write(b"x")
        (name,) = os.listdir(tmp_path)
    assert name.startswith(".out.csv.txlog-")
    assert name.endswith(".part")
    assert len(name) == len(".out.csv.txlog-.part") + 16


def test_existing_file_is_refused_and_kept(target: str) -> None:
    write(target, b"first")
    for call in (require_new, lambda name: write(name, b"second")):
        with pytest.raises(UsageError, match="exists already, and nothing is overwritten"):
            call(target)
    assert (content(target), names_beside(target)) == (b"first", ["out.parquet"])


def test_file_that_appears_meanwhile_is_kept(target: str) -> None:
    files, path = fsspec.core.url_to_fs(target)

    def overtaken() -> None:
        with new_output_file(target, ENTROPY) as file:
            file.write(b"mine")
            files.pipe_file(path, b"theirs")

    with pytest.raises(UsageError, match="exists already"):
        overtaken()
    assert (content(target), names_beside(target)) == (b"theirs", ["out.parquet"])


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_failed_export_leaves_no_file(target: str, error: type[BaseException]) -> None:
    def fail() -> None:
        with new_output_file(target, ENTROPY) as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        fail()
    assert names_beside(target) == []


def raises(number: int) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_full_disk_is_named_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = str(tmp_path / "out.parquet")
    monkeypatch.setattr(os, "fsync", raises(errno.ENOSPC))
    with pytest.raises(StoreFull, match=f"cannot write {target}: no room"):
        write(target, b"x")
    assert os.listdir(tmp_path) == []


def test_content_is_synced_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, int]] = []
    fsync, link = os.fsync, os.link

    def synced(descriptor: int) -> None:
        done.append(("sync", os.fstat(descriptor).st_size))
        fsync(descriptor)

    def linked(*names: str) -> None:
        done.append(("link", 0))
        link(*names)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", linked)
    write(str(tmp_path / "out"), b"12345")
    assert done == [("sync", 5), ("link", 0)]


def test_file_system_without_hard_links_gets_the_file_unless_the_name_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", raises(errno.EPERM))
    target = tmp_path / "out"
    write(str(target), b"x")
    assert target.read_bytes() == b"x"
    other = tmp_path / "other"

    def overtaken() -> None:
        with new_output_file(str(other), ENTROPY) as file:
            file.write(b"mine")
            other.write_bytes(b"theirs")

    with pytest.raises(UsageError, match="exists already"):
        overtaken()
    assert other.read_bytes() == b"theirs"
    assert sorted(os.listdir(tmp_path)) == ["other", "out"]


def test_missing_folder_and_dangling_link_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    for call in (require_new, lambda name: write(name, b"x")):
        with pytest.raises(UsageError, match=rf"no folder {tmp_path}/none for out\.csv; make it"):
            call(f"{tmp_path}/none/out.csv")
        with pytest.raises(UsageError, match="exists already"):
            call(f"{tmp_path}/link")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    require_new("out.csv")
    write("out.csv", b"here")
    write("~/home.csv", b"there")
    assert sorted(os.listdir(tmp_path)) == ["home.csv", "link", "out.csv"]
    with pytest.raises(UsageError, match="exists already"):
        require_new("~/home.csv")


def test_unwritable_folder_is_denied_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", raises(errno.EACCES))
    monkeypatch.setattr(os, "rename", raises(errno.EACCES))
    with pytest.raises(StoreDenied, match=f"cannot write {tmp_path}/out"):
        write(str(tmp_path / "out"), b"x")
    assert os.listdir(tmp_path) == []


# Logs.


def test_file_within_a_log_is_refused_on_every_way_to_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    (log / "topics").mkdir(parents=True)
    (log / "txlog.json").write_text("{}")
    (tmp_path / "link").symlink_to("log/topics")
    for name in ("log/out", "log/topics/out", "link/out"):
        for call in (require_outside_logs, require_new):
            with pytest.raises(UsageError, match=f"is within the log at {log}, where only"):
                call(f"{tmp_path}/{name}")
        with pytest.raises(UsageError, match=f"is within the log at {log}, where only"):
            require_new(f"file://{tmp_path}/{name}")
    require_new(f"{tmp_path}/out")
    require_new(f"file://{tmp_path}/out")


def test_file_within_a_log_behind_fsspec_is_refused(tmp_path: Path) -> None:
    files = fsspec.filesystem("memory")
    root = f"/{tmp_path.name}/log"
    files.pipe_file(f"{root}/txlog.json", b"{}")
    for name in ("out", "topics/t/out"):
        with pytest.raises(UsageError, match=f"within the log at memory://{root}, where only"):
            require_new(f"memory:/{root}/{name}")
    require_new(f"memory://{tmp_path.name}/out")


class Bucket(MemoryFileSystem):  # type: ignore[misc]
    """A file system whose paths begin with a bucket's name, as those of S3; it has no root."""

    protocol = "bucket"
    root_marker = ""
    asked: list[str] = []  # noqa: RUF012 - of the class, whose objects fsspec makes

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(path).removeprefix("bucket://").rstrip("/")

    def exists(self, path: str, **_: object) -> bool:
        """Note the path; a place that this process may not read is refused."""
        self.asked.append(path)
        if path == "lake/closed/txlog.json":
            raise PermissionError(path)
        return False


def test_every_place_above_a_file_in_a_bucket_is_looked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fsspec.register_implementation("bucket", Bucket, clobber=True)
    monkeypatch.setattr(Bucket, "asked", [])
    require_new("bucket://lake/closed/a/out")
    assert Bucket.asked == [
        "lake/closed/a/out",
        "lake/closed/a/txlog.json",
        "lake/closed/txlog.json",
        "lake/txlog.json",
    ]


def test_every_place_above_a_file_with_a_root_is_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    kind = type(fsspec.filesystem("memory"))
    exists = kind.exists

    def noted(self: object, path: str, **options: object) -> bool:
        asked.append(path)
        return bool(exists(self, path, **options))

    monkeypatch.setattr(kind, "exists", noted)
    require_new(f"memory://{tmp_path.name}/a/out")
    root = f"/{tmp_path.name}"
    assert asked == [f"{root}/a/out", f"{root}/a/txlog.json", f"{root}/txlog.json", "/txlog.json"]


# Errors of the libraries behind fsspec.


class Failing:
    """Raises an error in place of fsspec's memory file system."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self._kind = type(fsspec.filesystem("memory"))

    def on(self, call: str, error: Exception) -> None:
        def fail(*_: object, **__: object) -> None:
            raise error

        self._patch.setattr(self._kind, call, fail)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (PermissionError("hush"), StoreDenied, "the store refuses. Check the credentials."),
        (ImportError("hush"), UsageError, r"cannot be opened \(ImportError\)"),
        (ValueError("hush"), UsageError, r"cannot be opened \(ValueError\)"),
        (RuntimeError("hush"), StoreUnavailable, r"\(RuntimeError\)\. Check that it is reachable"),
    ],
)
def test_error_of_a_library_is_translated_without_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type, words: str
) -> None:
    target = f"memory://{tmp_path.name}/out"
    with monkeypatch.context() as patched:
        Failing(patched).on("exists", error)
        for call in (require_new, lambda name: write(name, b"x")):
            with pytest.raises(kind, match=words) as refused:
                call(target)
            assert "hush" not in str(refused.value)
            assert refused.value.__cause__ is None
    with monkeypatch.context() as patched:
        Failing(patched).on("mv", error)
        with pytest.raises(kind, match=words):
            write(target, b"x")
    files = fsspec.filesystem("memory")
    assert [name for name in files.store if tmp_path.name in name] == []
