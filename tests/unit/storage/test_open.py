"""A URL opens the right kind of store; one that cannot hold a log is refused with the reason."""

import socket
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import fsspec
import pytest
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.local import LocalFileSystem

from txlog.clock import Runtime
from txlog.errors import InvalidOption, StoreDenied, StoreNotAtomic, UsageError
from txlog.storage import (
    FsspecStore,
    LocalStore,
    MemoryStore,
    ObjectStore,
    S3Store,
    Store,
    open_store,
)
from txlog.testing.clock import manual_runtime

KEYS = {"key": "k", "secret": "hush-hush"}


def _open(url: str | Path, **options: object) -> Store:
    return open_store(url, Runtime(), options)


def test_paths_and_file_urls_open_local_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = f"{tmp_path}/log"
    for url in (
        Path(folder), folder, f"{folder}/", "log", "./log", "~/log",
        f"file://{folder}", f"file:{folder}", f"FILE://{folder}", f"local://{folder}",
    ):  # fmt: skip
        store = _open(url)
        assert isinstance(store, LocalStore)
        assert store.url == folder


def test_special_characters_in_a_file_url_are_kept(tmp_path: Path) -> None:
    for name in ("with space", "percent%20", "a:b", "plus+"):
        assert _open(f"file://{tmp_path}/{name}").url == f"{tmp_path}/{name}"


def test_opening_a_store_creates_and_requests_nothing(tmp_path: Path) -> None:
    _open(tmp_path / "absent")
    assert not (tmp_path / "absent").exists()
    _open("s3://bucket/prefix", **KEYS, endpoint_url="http://127.0.0.1:9")


def test_s3_urls_open_a_bucket_with_a_prefix() -> None:
    for url in ("s3://bucket/a/b", "s3://bucket/a/b/", "s3a://bucket/a/b"):
        store = _open(url, **KEYS)
        assert isinstance(store, S3Store)
        assert store.url == "s3://bucket/a/b"
    assert _open("s3://bucket", **KEYS).url == "s3://bucket"


@pytest.mark.parametrize("url", ["", "  ", "s3://", "s3:///a", "s3://key:hush-hush@bucket/a"])
def test_invalid_url_is_refused_without_revealing_secrets(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        _open(url)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("prefix", ["a//b", "a/../b", "../b", "a/./b", "a: b//c"])
def test_bucket_prefix_with_dot_or_empty_segments_is_refused(prefix: str) -> None:
    with pytest.raises(UsageError, match="cannot be the prefix of a log") as refused:
        _open(f"s3://bucket/{prefix}", **KEYS)
    assert refused.value.message.endswith("it has an empty, '.' or '..' part. Choose another.")


ACCOUNT = {"account_name": "lake", "account_key": "aHVzaA=="}


@pytest.mark.parametrize("options", [{}, {"client": "obstore"}])
@pytest.mark.parametrize("scheme", ["gs", "gcs", "az", "abfs"])
def test_buckets_of_google_and_azure_are_opened_by_obstore(
    scheme: str, options: dict[str, object]
) -> None:
    account = ACCOUNT if scheme in ("az", "abfs") else {}
    store = _open(f"{scheme}://lake/a", **account, **options)
    assert isinstance(store, ObjectStore)
    assert not isinstance(store, FsspecStore)


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_client_of_another_service_is_refused(scheme: str) -> None:
    for client in ("s3fs", "", "OBSTORE"):
        with pytest.raises(InvalidOption, match=f"client is '{client}'; give obstore or fsspec"):
            _open(f"{scheme}://lake/a", client=client)


@pytest.mark.parametrize(
    ("scheme", "package"), [("gs", "gcsfs"), ("gcs", "gcsfs"), ("az", "adlfs")]
)
def test_fsspecs_file_system_is_used_where_obstore_is_not_installed(
    scheme: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(UsageError, match=f"{scheme}:// needs the package obstore"):
        _open(f"{scheme}://lake/a")
    module = ModuleType(package)
    module.__spec__ = ModuleSpec(package, None)
    for name in ("GCSFileSystem", "AzureBlobFileSystem"):
        setattr(module, name, AsyncFileSystem)
    monkeypatch.setitem(sys.modules, package, module)
    registry = import_module("fsspec.registry")
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    monkeypatch.setattr(registry, "registry", registry._registry)
    with pytest.raises(StoreNotAtomic, match=f"{scheme}:// cannot hold a log"):
        _open(f"{scheme}://lake/a")
    with pytest.raises(UsageError, match=f"{scheme}:// needs the package obstore"):
        _open(f"{scheme}://lake/a", client="obstore")


def test_memory_url_opens_a_memory_store() -> None:
    assert isinstance(_open("memory://anything"), MemoryStore)


@pytest.mark.parametrize("url", ["ftp://host/a", "zip://a", "github://o:r@main/a"])
def test_file_systems_without_exclusive_create_are_refused(url: str) -> None:
    with pytest.raises(StoreNotAtomic, match="no exclusive create, only a check before a write"):
        _open(url)


@pytest.mark.parametrize("url", ["simplecache::s3://bucket/a", "filecache::file:///tmp/a"])
def test_chained_file_systems_are_refused(url: str) -> None:
    with pytest.raises(StoreNotAtomic, match="chain"):
        _open(url)


def test_unknown_protocol_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="nonsense://"):
        _open("nonsense://a/b")


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("/tmp/a", {"key": "k"}, "local store has no storage option 'key'"),
        ("/tmp/a", {"durable": "no"}, "durable is 'no'"),
        (
            "memory://a",
            {"durable": True},
            "no storage option 'durable'; it takes none. Rem",
        ),
        ("s3://bucket/a", {"endpoint": "x"}, "did you mean 'endpoint_url'"),
        ("s3://bucket/a", {"deadline": 5}, "did you mean 'deadline_ms'"),
        ("s3://bucket/a", {"zzz": 5}, "no storage option 'zzz'"),
        ("s3://bucket/a", {"attempts_max": "x"}, "attempts_max is 'x'"),
        ("s3://bucket/a", {"endpoint_url": "host:9000"}, "https://host:port"),
        ("s3://bucket/a", {"endpoint_url": "http://key:hush@host"}, "without credentials"),
    ],
)
def test_unknown_options_and_values_are_refused(
    url: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidOption, match=message) as refused:
        _open(url, **options)
    assert "hush" not in str(refused.value)


class _ReadOnlyServer(SimpleHTTPRequestHandler):
    """Serves files, and accepts none (501)."""

    def log_message(self, format: str, *values: object) -> None:
        """Write nothing to stderr."""


def test_http_url_is_refused_without_a_request() -> None:
    """fsspec's HTTP file system takes a mode, and overwrites whatever it is. Regression: an unknown
    host took 19 s to say "Unknown error -2"."""
    with pytest.raises(StoreNotAtomic, match=r"http:// cannot hold a log: .* no exclusive create"):
        _open("http://no-such-host.invalid/log")


class Unresolved(LocalFileSystem):  # type: ignore[misc]
    """A file system whose host has a name that no server knows."""

    def cat_file(self, path: str, *bounds: object, **named: object) -> bytes:
        """What the resolver raises."""
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def test_unknown_host_is_named_as_such_and_not_tried_again() -> None:
    store = FsspecStore(Unresolved(), "/log", "there://host/log", manual_runtime())
    with pytest.raises(StoreDenied, match=r"Name or service not known"):
        store.get("a")


def test_store_that_lacks_an_operation_denies_it(tmp_path: Path) -> None:
    handler = partial(_ReadOnlyServer, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/log"
        files = fsspec.filesystem("http", skip_instance_cache=True)
        store = FsspecStore(files, url, url, Runtime())
        for write in (store.create, store.put_new):
            with pytest.raises(StoreDenied, match="cannot create http://.*/log/a"):
                write("a", b"x")
        assert store.get("a") is None
        server.shutdown()
    assert list(tmp_path.iterdir()) == []
