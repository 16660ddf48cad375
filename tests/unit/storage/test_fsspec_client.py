"""How the calls of any fsspec file system are made, and what its errors mean."""

import datetime as dt
import errno
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from txlog.clock import Runtime
from txlog.storage.fsspec_store import FsspecClient
from txlog.storage.object_stores.object_client import Failure, Meaning, Page, Unread
from txlog.storage.policy.retry import Attempts, RetrySettings
from txlog.storage.store import ByteRange


class Files(LocalFileSystem):  # type: ignore[misc]
    """Local files; a call raises `error` if there is one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.error: Exception | None = None
        self.ranges: list[Any] | None = None
        self.details: dict[str, object] = {}
        self.walked: list[str] = []

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **named: Any) -> None:
        self._fail()
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with open(path, "xb" if mode == "create" else "wb") as file:
            file.write(value)

    def cat_file(self, path: str, start: Any = None, end: Any = None, **named: Any) -> Any:
        self._fail()
        return super().cat_file(path, start, end, **named)

    def cat_ranges(self, paths: Any, starts: Any, ends: Any, **named: Any) -> Any:
        if self.ranges is not None:
            return self.ranges
        self._fail()
        return super().cat_ranges(paths, starts, ends, **named)

    def rm_file(self, path: str) -> None:
        self._fail()
        super().rm_file(path)

    def find(self, path: str, **named: Any) -> Any:
        self._fail()
        self.walked.append(path)
        found = super().find(path, **named)
        return {name: {**one, **self.details} for name, one in found.items()}


class Answered(Exception):
    """An error of a library that speaks HTTP."""

    def __init__(self, name: str, status: object) -> None:
        setattr(self, name, status)


@pytest.fixture
def files() -> Files:
    return Files(skip_instance_cache=True)


@pytest.fixture
def client(files: Files, tmp_path: Path) -> FsspecClient:
    return FsspecClient(files, f"{tmp_path}/log/")


def attempts() -> Attempts:
    return Attempts(RetrySettings(), Runtime())


def test_listing_walks_only_the_folder_of_its_prefix(
    client: FsspecClient, files: Files, tmp_path: Path
) -> None:
    for prefix in ("a/b/c", "a/b/", "a", ""):
        client.pages(prefix, "").next(attempts())
    assert files.walked == [f"{tmp_path}/log/{folder}" for folder in ("a/b", "a/b", "", "")]


def test_put_overwrites_unless_the_object_must_be_absent(client: FsspecClient) -> None:
    assert client.put(attempts(), "a/1", b"x", if_absent=True) is None
    taken = client.put(attempts(), "a/1", b"y", if_absent=True)
    assert isinstance(taken, Failure)
    assert (taken.meaning, taken.reason) == (Meaning.TAKEN, "FileExistsError")
    assert client.get(attempts(), "a/1", None) == b"x"
    assert client.put(attempts(), "a/1", b"y", if_absent=False) is None
    assert client.get(attempts(), "a/1", None) == b"y"


def test_object_is_read_up_to_the_limit_and_no_further(client: FsspecClient) -> None:
    client.put(attempts(), "a", b"1234", if_absent=True)
    assert client.get(attempts(), "a", 4) == b"1234"
    assert client.get(attempts(), "a", 3) == Unread(4)
    assert client.get(attempts(), "a", 2) == Unread(3), "one byte more than the limit"


def test_what_is_absent_is_absent_and_a_missing_bucket_is_named(
    client: FsspecClient, files: Files
) -> None:
    absent = Failure(Meaning.ABSENT, "FileNotFoundError")
    assert client.get(attempts(), "a", None) == absent
    assert client.get_ranges(attempts(), "a", [ByteRange(0, 1), ByteRange(1, 1)]) == [absent] * 2
    assert client.delete(attempts(), "a") == absent
    empty = client.pages("a/", "").next(attempts())
    assert isinstance(empty, Page)
    assert (list(empty.objects), empty.is_last) == ([], True)
    files.error = FileNotFoundError()
    assert client.pages("a/", "").next(attempts()) == Page((), is_last=True)
    for if_absent in (True, False):
        refused = client.put(attempts(), "a", b"x", if_absent=if_absent)
        assert refused == Failure(Meaning.NO_BUCKET, "FileNotFoundError")


@pytest.mark.parametrize("answer", [None, "some raise", "errors in the list", "an error instead"])
def test_ranges_beyond_the_end_are_cut_however_the_library_refuses_them(
    client: FsspecClient, files: Files, answer: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.put(attempts(), "a", b"12345", if_absent=True)
    if answer == "errors in the list":
        files.ranges = [b"23", ValueError("beyond"), b""]
    elif answer == "an error instead":
        files.ranges = [ValueError("beyond")]
    elif answer == "some raise":

        def refuse(*_: object, **named: object) -> None:
            raise ValueError("beyond")

        monkeypatch.setattr(files, "cat_ranges", refuse)
    wanted = [ByteRange(1, 2), ByteRange(3, 9), ByteRange(8, 1)]
    assert client.get_ranges(attempts(), "a", wanted) == [b"23", b"45", b""]


def test_page_has_the_objects_below_the_prefix_in_order_with_size_and_time(
    client: FsspecClient, tmp_path: Path
) -> None:
    for name in ("a/2", "a/1", "a/b/3", "a-b", "b/1"):
        client.put(attempts(), name, name.encode(), if_absent=True)
    os.utime(tmp_path / "log/a/1", (1, 1.5))
    page = client.pages("a/", "").next(attempts())
    assert isinstance(page, Page)
    assert page.is_last
    assert [(one.path, one.size_bytes) for one in page.objects] == [
        ("a/1", 3),
        ("a/2", 3),
        ("a/b/3", 5),
    ]
    assert page.objects[0].modified_ms == 1_500
    narrower = client.pages("a/b", "").next(attempts())
    assert isinstance(narrower, Page)
    assert [one.path for one in narrower.objects] == ["a/b/3"]


@pytest.mark.parametrize(
    ("details", "modified_ms"),
    [
        ({"LastModified": dt.datetime(1970, 1, 1, 0, 0, 2, tzinfo=dt.UTC)}, 2_000),
        ({"last_modified": dt.datetime(1970, 1, 1, 0, 0, 3, tzinfo=dt.UTC)}, 3_000),
        ({"mtime": 1.25}, 1_250),
        ({"mtime": 7}, 7_000),
        ({"updated": "1970-01-01T00:00:04Z"}, 4_000),
        ({"modified": "1970-01-01T01:00:05+01:00"}, 5_000),
        ({"created": 6.0}, 6_000),
        ({"size": None, "created": None}, 0),
        ({}, 0),
    ],
)
def test_time_of_an_object_is_read_under_every_name_for_it(
    client: FsspecClient, files: Files, details: dict[str, object], modified_ms: int
) -> None:
    client.put(attempts(), "a", b"1", if_absent=True)
    files.details = {"mtime": None, "created": None, **details}
    page = client.pages("", "").next(attempts())
    assert isinstance(page, Page)
    assert [one.modified_ms for one in page.objects] == [modified_ms]
    assert [one.size_bytes for one in page.objects] == [0 if "size" in details else 1]


DENIED = [
    PermissionError(),
    IsADirectoryError(),
    NotADirectoryError(),
    NotImplementedError(),
    *(Answered(name, 403) for name in ("status", "status_code", "code")),
    *(Answered("status", status) for status in (400, 401, 404, 410, 451, 499, 501)),
]
UNCLEAR = [
    RuntimeError(),
    ConnectionResetError(),
    TimeoutError(),
    *(Answered("status", status) for status in (408, 409, 412, 425, 429, 500, 502, 503, 599)),
    *(Answered("code", status) for status in (200, 399, 600, "403", None)),
]
NUMBERS = [
    (errno.EIO, Meaning.UNCLEAR),
    (errno.ENOSPC, Meaning.FULL),
    (errno.EDQUOT, Meaning.FULL),
    (errno.EACCES, Meaning.DENIED),
    (errno.EROFS, Meaning.DENIED),
    (errno.ECONNRESET, Meaning.UNCLEAR),
    (errno.ETIMEDOUT, Meaning.UNCLEAR),
]


def answers(client: FsspecClient) -> dict[str, Failure]:
    """What each call answers where the file system fails."""
    given: dict[str, Any] = {
        "create": client.put(attempts(), "a", b"x", if_absent=True),
        "put": client.put(attempts(), "a", b"x", if_absent=False),
        "get": client.get(attempts(), "a", None),
        "ranges": client.get_ranges(attempts(), "a", [ByteRange(0, 1)])[0],
        "delete": client.delete(attempts(), "a"),
        "list": client.pages("", "").next(attempts()),
    }
    assert all(isinstance(failure, Failure) for failure in given.values()), given
    return given


@pytest.mark.parametrize(
    ("error", "meaning"),
    [(error, Meaning.DENIED) for error in DENIED] + [(error, Meaning.UNCLEAR) for error in UNCLEAR],
    ids=repr,
)
def test_I13_error_of_a_call_is_a_refusal_or_unclear(
    client: FsspecClient, files: Files, error: Exception, meaning: Meaning
) -> None:
    files.error = error
    for call, failure in answers(client).items():
        assert (failure.meaning, failure.reason) == (meaning, type(error).__name__), call


@pytest.mark.parametrize(("number", "meaning"), NUMBERS)
def test_I13_error_with_a_number_is_what_the_number_means_unless_an_object_may_be_created(
    client: FsspecClient, files: Files, number: int, meaning: Meaning
) -> None:
    """A create that failed may have stored the object, whatever the number says."""
    files.error = OSError(number, "text of the library's")
    found = answers(client)
    created = found.pop("create")
    is_refusal = number == errno.EACCES
    assert created.meaning is (Meaning.DENIED if is_refusal else Meaning.UNCLEAR)
    for call, failure in found.items():
        assert (failure.meaning, failure.reason) == (meaning, os.strerror(number)), call


def test_unknown_host_is_a_refusal_with_the_resolvers_words(
    client: FsspecClient, files: Files
) -> None:
    for number, meaning in ((socket.EAI_NONAME, Meaning.DENIED), (-3, Meaning.UNCLEAR)):
        files.error = socket.gaierror(number, "of the resolver's")
        failure = answers(client)["get"]
        assert (failure.meaning, failure.reason) == (meaning, "of the resolver's")
    files.error = socket.gaierror(socket.EAI_NONAME)
    assert "gaierror" in answers(client)["get"].reason
