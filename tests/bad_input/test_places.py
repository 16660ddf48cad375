"""Unsuitable or inaccessible places for a log are reported before anything is written."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from txlog.catalog.cluster_file import first_entries, read_cluster_file
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.errors import (
    InvalidOption,
    NotATxlog,
    StoreDenied,
    StoreNotAtomic,
    TxlogError,
    UsageError,
)
from txlog.layout import CLUSTER_FILE
from txlog.storage import open_store
from txlog.storage.root_url import roots_above
from txlog.testing.s3_server import S3Server

pytestmark = pytest.mark.slow

CLIENTS: list[Callable[..., object]] = [
    Producer,
    Admin,
    lambda root, **options: Consumer(root=root, **options),
]


def opened_by_every_client(root: str, **options: Any) -> Iterator[Callable[[], object]]:
    for client in CLIENTS:
        yield lambda client=client: client(root, **options)  # type: ignore[misc]
    yield lambda: Admin(root, create=True, **options)
    yield lambda: Producer(root, create=True, **options)


# Stores without an atomic create.


@pytest.mark.parametrize(
    "url", ["ftp://127.0.0.1:9/log", "zip://log.zip", "simplecache::s3://bucket/log"]
)
def test_store_without_exclusive_create_is_refused_by_its_url(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for open_log in opened_by_every_client(url):
        with pytest.raises(StoreNotAtomic):
            open_log()
    assert list(tmp_path.iterdir()) == []


def test_plain_http_server_is_refused(tmp_path: Path) -> None:
    handler = partial(QuietHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for open_log in opened_by_every_client(f"http://127.0.0.1:{server.server_port}/log"):
            with pytest.raises(StoreNotAtomic):
                open_log()
        server.shutdown()
    assert list(tmp_path.iterdir()) == []


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files, silently accepts none."""

    def log_message(self, format: str, *values: object) -> None:
        pass


class CarelessFileSystem(MemoryFileSystem):
    """Accepts the condition of a create, and ignores it."""

    protocol = "careless"
    store: dict[str, Any] = {}  # noqa: RUF012 - as in its base class
    pseudo_dirs = [""]  # noqa: RUF012

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        super().pipe_file(path, value, mode="overwrite", **options)


def test_probe_detects_non_atomic_store_and_removes_its_objects() -> None:
    fsspec.register_implementation("careless", CarelessFileSystem, clobber=True)
    CarelessFileSystem.store["/log/.notes"] = None
    with pytest.raises(StoreNotAtomic, match="cannot create an object only if it is absent"):
        Admin("careless://log", create=True)
    assert list(CarelessFileSystem.store) == ["/log/.notes"]


def test_successful_probe_leaves_only_the_cluster_file_and_first_entries() -> None:
    root = "memory://places-probe"
    Admin(root, create=True)
    store = open_store(root, Runtime())
    file = read_cluster_file(store)
    assert file is not None
    wanted = sorted([CLUSTER_FILE, *first_entries(file, Runtime())])
    assert [found.path for found in store.list_after("")] == wanted


# Places that are not a log.


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "root is empty"),
        ("  ", "root is empty"),
        ("no-such-protocol://x", "cannot be opened"),
    ],
)
def test_empty_url_or_unknown_protocol_is_refused(url: str, message: str) -> None:
    for open_log in opened_by_every_client(url):
        with pytest.raises(UsageError, match=message):
            open_log()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3:/bucket/log", "write s3://bucket/log, or ./s3:/bucket/log for a folder"),
        ("s3:bucket/log", "write s3://bucket/log"),
        ("S3:/bucket", "write s3://bucket"),
        ("gs:/bucket", "write gs://bucket"),
        ("memory:/x", "write memory://x"),
        ("file://tmp/x", "names the host 'tmp'; for a folder of this machine write three slashes"),
        ("FILE://host/x", "as in file:///host/x"),
        ("s3://", "s3://bucket/prefix"),
        ("s3://me:hu5h@bucket/x", "with no credentials in it"),
        ("file://me:hu5h@host/x", "names the host 'host'"),
        ("file://me:h@hu5h@host/x", "as in file:///host/x"),
    ],
)
def test_mistyped_url_is_refused_and_not_used_as_a_folder(
    url: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for open_log in opened_by_every_client(url):
        with pytest.raises(UsageError) as caught:
            open_log()
        assert message in str(caught.value)
        assert "hu5h" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("{}/a", "a"),
        ("file://{}/a", "a"),
        ("file:{}/a", "a"),
        ("FILE://localhost{}/a", "a"),
        ("./s3:/bucket", "s3:/bucket"),
        ("plain:name", "plain:name"),
    ],
)
def test_paths_and_file_urls_open_the_same_folder(
    url: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store(url.format(tmp_path), Runtime())
    assert Path(store.url).resolve() == tmp_path / path


def test_s3_url_scheme_is_case_insensitive() -> None:
    options = {"key": "k", "secret": "s"}
    for url in ("S3://bucket/log", "S3A://bucket/log/"):
        assert open_store(url, Runtime(), options).url == "s3://bucket/log"


# Places that already hold something.


@pytest.mark.parametrize("name", ["orders.csv", "_delta_log/0.json", "data/x", ".git/config"])
def test_a_log_is_not_created_among_other_files(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    for open_log in (
        lambda: Admin(str(tmp_path), create=True),
        lambda: Producer(str(tmp_path), create=True),
        lambda: Admin(f"file://{tmp_path}", create=True),
    ):
        with pytest.raises(UsageError, match="contains files that belong to no log") as caught:
            open_log()
        assert name in str(caught.value)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / name]


@pytest.mark.parametrize("name", [".DS_Store", "lost+found/x", ".gitkeep", "probes/00"])
def test_log_is_created_beside_system_files(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    Admin(str(tmp_path), create=True).create_topic("orders", 1)


def test_existing_log_is_opened_despite_other_files(tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    Admin(root, create=True).create_topic("orders", 1)
    (tmp_path / "log" / "notes.txt").write_text("mine")
    assert Admin(f"file://{root}", create=True).list_topics() == ["orders"]


@pytest.mark.parametrize("below", ["sub", "topics", "sub/deep/log", "topics/../sub", "link/x"])
def test_a_log_is_not_created_within_another(below: str, tmp_path: Path) -> None:
    root = tmp_path / "log"
    Admin(str(root), create=True).create_topic("orders", 1)
    (tmp_path / "link").symlink_to(root)
    place = tmp_path / below if below.startswith("link") else root / below
    with pytest.raises(UsageError, match="is within the log at"):
        Admin(str(place), create=True)
    assert not (place / "txlog.json").exists()


def test_roots_above_lists_every_parent_of_a_root() -> None:
    assert roots_above("/a/b/c") == ["/a/b", "/a", "/"]
    assert roots_above("s3://bucket/a/b/") == ["s3://bucket/a", "s3://bucket"]
    assert roots_above("s3a://bucket") == []
    assert roots_above("memory://a/b") == []


@pytest.mark.s3
def test_log_in_a_bucket_is_not_created_within_a_log_or_among_other_files(
    guarded: S3Server,
) -> None:
    outer = guarded.url("outer")
    options = guarded.storage_options
    Admin(outer, create=True, storage_options=options)
    with pytest.raises(UsageError, match="is within the log at"):
        Admin(f"{outer}/a/b", create=True, storage_options=options)
    open_store(f"{outer}-x", Runtime(), options).replace("notes.txt", b"mine")
    with pytest.raises(UsageError, match="notes.txt"):
        Admin(f"{outer}-x", create=True, storage_options=options)


def test_an_unknown_storage_option_is_refused(tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    for open_log in opened_by_every_client(root, storage_options={"durabel": True}):
        with pytest.raises(InvalidOption, match="no storage option 'durabel'; it takes durable"):
            open_log()
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("mine")
    for open_log in opened_by_every_client(str(tmp_path / "log")):
        with pytest.raises((StoreDenied, NotATxlog)):
            open_log()
    assert (tmp_path / "log").read_text() == "mine"


def test_opening_a_folder_without_a_log_does_not_change_it(tmp_path: Path) -> None:
    """A Delta table, for example: opening it must not write to it."""
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / "00000000000000000000.json").write_text("{}")
    for open_log in list(opened_by_every_client(str(tmp_path)))[:3]:
        with pytest.raises(NotATxlog, match="there is no log at .*Check the path, or create one"):
            open_log()
    assert len(list(tmp_path.rglob("*"))) == 2


# Wrong credentials and missing buckets.


@pytest.fixture(scope="module")
def guarded() -> Iterator[S3Server]:
    with S3Server.start(check_credentials=True) as server:
        yield server


@pytest.mark.s3
def test_error_for_wrong_credentials_does_not_reveal_them(guarded: S3Server) -> None:
    secrets = {"key": "AKIAWRONGWRONGWRONG1", "secret": "hush-hush-hush"}
    options = {**guarded.storage_options, **secrets}
    for open_log in opened_by_every_client(guarded.url("log"), storage_options=options):
        with pytest.raises(StoreDenied, match="AWS_ACCESS_KEY_ID") as refused:
            open_log()
        shown = _text_of_error_chain(refused.value)
        assert not [secret for secret in secrets.values() if secret in shown]
    right = open_store(guarded.url("log"), Runtime(), guarded.storage_options)
    assert list(right.list_after("")) == [], "nothing was written"


def _text_of_error_chain(error: BaseException | None) -> str:
    shown = ""
    while error is not None:
        facts = error.facts if isinstance(error, TxlogError) else {}
        shown += f"{error} {error!r} {facts}"
        error = error.__cause__
    return shown


@pytest.mark.s3
def test_error_for_a_missing_bucket_names_it(guarded: S3Server) -> None:
    options = guarded.storage_options
    for open_log in opened_by_every_client("s3://no-such-bucket/log", storage_options=options):
        with pytest.raises(StoreDenied, match="no bucket 'no-such-bucket'"):
            open_log()
