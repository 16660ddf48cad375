"""The location of a checkpoint, in every way that users write it, and reading its files."""

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
def test_R24_local_path_is_interpreted_as_the_user_wrote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str, path: str
) -> None:
    (tmp_path / "me").mkdir()
    monkeypatch.chdir(tmp_path / "me")
    assert locate(location) == CheckpointPlace("file", "", path.replace("/home", str(tmp_path)))


@pytest.mark.parametrize(
    ("location", "place", "url"),
    [
        ("s3a://b/cp", CheckpointPlace("s3a", "b", "/cp"), "s3a://b/cp"),
        ("s3://b/cp/", CheckpointPlace("s3", "b", "/cp"), "s3://b/cp"),
        ("hdfs://n:8020/cp", CheckpointPlace("hdfs", "n:8020", "/cp"), "hdfs://n:8020/cp"),
        ("hdfs:///cp", CheckpointPlace("hdfs", "", "/cp"), "hdfs:///cp"),
        ("dbfs:/cp", CheckpointPlace("dbfs", "", "/cp"), "dbfs:///cp"),
        (
            "abfss://c@a.dfs.core.windows.net/cp",
            CheckpointPlace("abfss", "c@a.dfs.core.windows.net", "/cp"),
            "abfss://c@a.dfs.core.windows.net/cp",
        ),
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


@pytest.mark.parametrize("variable", ["SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR"])
def test_R24_default_file_system_is_that_of_hadoops_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    assert locate("/cp") == CheckpointPlace("file", "", "/cp")
    file = tmp_path / "core-site.xml"
    file.write_text(
        "<configuration><property><name>a</name><value>b</value></property><property>"
        "<name>fs.defaultFS</name>\n<value>\nhdfs://n:8020\n</value></property></configuration>"
    )
    assert locate("/cp") == CheckpointPlace("hdfs", "n:8020", "/cp")
    assert locate("/cp", "file:///") == CheckpointPlace("file", "", "/cp")
    assert locate("file:///cp") == CheckpointPlace("file", "", "/cp")
    file.write_text("<configuration/>")
    assert locate("/cp") == CheckpointPlace("file", "", "/cp")
    file.write_text("<configuration>")
    with pytest.raises(InvalidOption, match=r"core-site\.xml cannot be read: .* full URL"):
        locate("/cp")


@pytest.mark.parametrize(
    "location",
    [
        "s3a://key:secret@bucket/cp",
        "hdfs://me:secret@n:8020/cp",
        "abfss://c:secret@a.dfs.core.windows.net/cp",
    ],
)
def test_credentials_in_a_url_are_hidden_and_refused(location: str) -> None:
    assert "secret" not in locate(location).url
    with pytest.raises(InvalidOption, match="without credentials") as raised:
        open_checkpoint(location, Runtime())
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("location", "folder"),
    [
        ("dbfs:/cp", "/dbfs/cp"),
        ("dbfs:///a/../cp/", "/dbfs/cp"),
        ("dbfs:/Volumes/main/default/v/cp", "/Volumes/main/default/v/cp"),
        ("/Volumes/main/default/v/cp", "/Volumes/main/default/v/cp"),
    ],
)
def test_R24_checkpoint_of_databricks_is_read_where_it_is_mounted(
    location: str, folder: str
) -> None:
    assert open_checkpoint(location, Runtime()).files == LocalFiles(folder)


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("s3a://bucket/folder/cp/", "s3://bucket/folder/cp"),
        ("s3a://bucket/folder/cpX", "s3://bucket/folder/cpX"),
        ("s3a://bucket/folder/cp ", "s3://bucket/folder/cp "),
        ("s3://bucket", "s3://bucket"),
        ("gs://bucket/a//b/cp", "gs://bucket/a/b/cp"),
        ("abfss://box@account1.dfs.core.windows.net/a/cp/", "az://box/a/cp"),
        ("abfs://box@account1.dfs.core.windows.net/cp", "az://box/cp"),
    ],
)
def test_R24_bucket_is_read_by_the_client_of_the_log(location: str, url: str) -> None:
    files = open_checkpoint(location, Runtime()).files
    assert isinstance(files, ObjectFiles)
    assert files.store.url == url


@pytest.mark.parametrize("host", ["core.windows.net", "core.chinacloudapi.cn"])
def test_R24_checkpoint_on_azure_is_read_from_the_account_in_its_url(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "another")
    location, options = f"abfss://box@account1.dfs.{host}/cp", {"anon": "true", "deadline_ms": 500}
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        checkpoint = open_checkpoint(location, Runtime(), storage_options=options)
        with ThreadPoolExecutor() as pool:
            read = pool.submit(checkpoint.query_id)
            connection, _ = proxy.accept()
            asked = connection.recv(1 << 16)
            for each in (connection, proxy):
                each.close()
            assert asked.startswith(f"CONNECT account1.blob.{host}:443 ".encode())
            assert isinstance(read.exception(), StoreUnavailable)


def test_bucket_without_a_name_is_refused() -> None:
    for scheme in ("s3a", "gs"):
        with pytest.raises(InvalidOption, match=f"must be {scheme}://bucket/folder"):
            open_checkpoint(f"{scheme}:///cp", Runtime())


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
