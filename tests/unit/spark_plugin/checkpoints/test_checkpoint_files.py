"""The location of a checkpoint, in every way that users write it, and reading its files."""

from collections.abc import Callable
from pathlib import Path

import pytest

from spark_plugin.checkpoints.checkpoint import (
    CheckpointFiles,
    CheckpointPlace,
    LocalFiles,
    ObjectFiles,
    locate,
    open_checkpoint,
)
from txlog.clock import Runtime
from txlog.errors import InvalidOption, StoreDenied, StoreUnavailable
from txlog.storage.open import open_store
from txlog.testing.clock import manual_runtime


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/cp", "/cp"),
        ("/cp/", "/cp"),
        ("/a//b///c/", "/a/b/c"),
        ("/a/../b/./c", "/b/c"),
        ("/with space/cp", "/with space/cp"),
        ("//X/cp", "/X/cp"),
        ("/c%20p", "/c%20p"),
        ("/c+p#x?y", "/c+p#x?y"),
        ("/a/x:y/cp", "/a/x:y/cp"),
        ("/", "/"),
        ("file:/cp", "/cp"),
        ("file:///cp", "/cp"),
        ("FILE:///cp", "/cp"),
        ("file:///c%20p/with space", "/c%20p/with space"),
        ("rel/cp a", "/home/me/rel/cp a"),
        ("./x:y/cp", "/home/me/x:y/cp"),
        ("../cp", "/home/cp"),
        ("cp ", "/home/me/cp "),
    ],
)
def test_R24_local_path_is_interpreted_as_the_user_wrote_it(location: str, path: str) -> None:
    assert locate(location, folder="/home/me") == CheckpointPlace("file", "", path)


@pytest.mark.parametrize(
    ("location", "place", "url"),
    [
        ("s3a://b/cp", CheckpointPlace("s3a", "b", "/cp"), "s3a://b/cp"),
        ("s3://b/cp/", CheckpointPlace("s3", "b", "/cp"), "s3://b/cp"),
        ("hdfs://n:8020/cp", CheckpointPlace("hdfs", "n:8020", "/cp"), "hdfs://n:8020/cp"),
        ("hdfs:///cp", CheckpointPlace("hdfs", "", "/cp"), "hdfs:///cp"),
        ("dbfs:/cp", CheckpointPlace("dbfs", "", "/cp"), "dbfs:///cp"),
        ("s3a://b", CheckpointPlace("s3a", "b", "/"), "s3a://b/"),
    ],
)
def test_other_file_systems_keep_their_scheme_and_host(
    location: str, place: CheckpointPlace, url: str
) -> None:
    assert locate(location) == place
    assert place.url == url


def test_R24_a_location_without_a_scheme_is_on_the_default_file_system() -> None:
    assert locate("/cp", "s3a://bucket") == CheckpointPlace("s3a", "bucket", "/cp")
    assert locate("/cp", "hdfs://n:8020/") == CheckpointPlace("hdfs", "n:8020", "/cp")


@pytest.mark.parametrize(
    ("location", "default", "reason"),
    [
        ("", "file:///", "is empty"),
        ("  ", "file:///", "is empty"),
        ("cp", "hdfs://n:8020", "is relative, and the default file system is hdfs"),
        ("/cp", "nothing", "has no scheme"),
        ("/cp", "file://host", "names the host 'host'"),
        ("file://cp/x", "file:///", "names the host 'cp'"),
        ("file:cp", "file:///", "a scheme and a relative path"),
        ("file://", "file:///", "a scheme and a relative path"),
        ("x:y/cp", "file:///", "a folder whose name has a colon"),
    ],
)
def test_invalid_location_is_refused_with_the_reason(
    location: str, default: str, reason: str
) -> None:
    with pytest.raises(InvalidOption, match=reason):
        locate(location, default)


def test_credentials_in_a_url_are_hidden_and_refused() -> None:
    location = "s3a://key:secret@bucket/cp"
    assert "secret" not in locate(location).url
    with pytest.raises(InvalidOption, match="without credentials") as raised:
        open_checkpoint(location, Runtime())
    assert "secret" not in str(raised.value)


def test_unsupported_file_system_is_refused_with_alternatives() -> None:
    with pytest.raises(InvalidOption, match=r"on hdfs .*file:///\.\.\.\) or on S3"):
        open_checkpoint("hdfs://n/cp", Runtime())


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("s3a://bucket/folder/cp/", "s3://bucket/folder/cp"),
        ("s3a://bucket/folder/cpX", "s3://bucket/folder/cpX"),
        ("s3a://bucket/folder/cp ", "s3://bucket/folder/cp "),
        ("s3://bucket", "s3://bucket"),
    ],
)
def test_s3_is_read_through_the_object_store(location: str, url: str) -> None:
    files = open_checkpoint(location, Runtime()).files
    assert isinstance(files, ObjectFiles)
    assert files.store.url == url


def test_s3_requests_are_retried_on_the_given_clock() -> None:
    runtime = manual_runtime(1)
    options = {"endpoint_url": "http://127.0.0.1:1", "key": "k", "secret": "s"}
    checkpoint = open_checkpoint("s3a://bucket/cp", runtime, storage_options=options)
    began_ms = runtime.clock.monotonic_ms()
    with pytest.raises(StoreUnavailable):
        checkpoint.query_id()
    assert runtime.clock.monotonic_ms() > began_ms


def test_object_store_is_opened_with_the_given_storage_options() -> None:
    with pytest.raises(InvalidOption, match="request_timeout_s"):
        open_checkpoint("s3a://bucket/cp", Runtime(), storage_options={"request_timeout_s": "soon"})


def local_files(folder: Path) -> CheckpointFiles:
    """The checkpoint on disk."""
    return open_checkpoint(str(folder), Runtime()).files


def object_files(folder: Path) -> CheckpointFiles:
    """The same checkpoint in an object store."""
    return ObjectFiles(open_store(folder, Runtime()))


@pytest.mark.parametrize("opened", [local_files, object_files])
def test_files_are_read_and_listed(
    tmp_path: Path, opened: Callable[[Path], CheckpointFiles]
) -> None:
    (tmp_path / "offsets" / "deeper").mkdir(parents=True)
    (tmp_path / "offsets" / "deeper" / "9").write_text("x")
    for name in ("0", "1", ".0.crc"):
        (tmp_path / "offsets" / name).write_text(name)
    files = opened(tmp_path)
    assert files.read("offsets/1") == b"1"
    assert files.read("offsets/2") is None
    assert {"0", "1"} <= set(files.list_names("offsets"))
    assert not {"9", "deeper/9"} & set(files.list_names("offsets"))
    assert files.list_names("commits") == []


def test_folder_in_place_of_file_raises_store_unavailable(tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    with pytest.raises(StoreUnavailable, match="metadata cannot be read"):
        LocalFiles(str(tmp_path)).read("metadata")


def test_missing_permission_raises_store_denied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    monkeypatch.setattr("os.listdir", refuse)
    with pytest.raises(StoreDenied, match="cannot be read"):
        LocalFiles(str(tmp_path)).read("metadata")
    with pytest.raises(StoreDenied, match="cannot be listed"):
        LocalFiles(str(tmp_path)).list_names("offsets")


def test_disk_error_raises_store_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.listdir", fail)
    with pytest.raises(StoreUnavailable, match="cannot be listed"):
        LocalFiles(str(tmp_path)).list_names("offsets")
