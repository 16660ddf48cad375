"""A store on any file system of fsspec: what is refused at once, its address, and its words."""

from collections.abc import Mapping
from typing import Any

import fsspec
import pytest
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractFileSystem

from txlog.clock import Runtime
from txlog.errors import InvalidOption, StoreDenied, StoreNotAtomic, StoreUnavailable, UsageError
from txlog.storage import Created, Exists, FsspecStore, Store, open_store


class Exclusive(MemoryFileSystem):  # type: ignore[misc]
    """A file system with an exclusive create of its own; `fails` is raised by each call."""

    protocol = "exclusive"
    store: dict[str, Any] = {}  # noqa: RUF012 - fsspec's own form
    pseudo_dirs = [""]  # noqa: RUF012 - fsspec's own form
    fails: Exception | None = None
    asked: list[tuple[str, object]] = []  # noqa: RUF012 - of the class, whose objects fsspec makes
    given: Mapping[str, object] = {}

    def __init__(self, *arguments: object, **options: object) -> None:
        type(self).given = options
        super().__init__(*arguments, **options)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(path).removeprefix("exclusive://").rstrip("/")

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: object) -> None:
        """Create, or overwrite."""
        self.asked.append(("pipe_file", mode))
        if self.fails is not None:
            raise self.fails
        if mode == "create" and path in self.store:
            raise FileExistsError(path)
        super().pipe_file(path, value)

    def cat_file(self, path: str, start: Any = None, end: Any = None, **_: object) -> bytes:
        """Read."""
        self.asked.append(("cat_file", end))
        if self.fails is not None:
            raise self.fails
        data: bytes = super().cat_file(path, start, end)
        return data


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec.register_implementation("exclusive", Exclusive, clobber=True)
    monkeypatch.setattr(Exclusive, "store", {})
    monkeypatch.setattr(Exclusive, "fails", None)
    monkeypatch.setattr(Exclusive, "asked", [])


def opened(url: str = "exclusive://host/log", **options: object) -> Store:
    return open_store(url, Runtime(), {"attempts_max": 2, "pause_min_ms": 1, **options})


def test_store_is_at_its_url_without_secrets() -> None:
    for url in ("exclusive://host/log", "exclusive://host/log/"):
        store = opened(url)
        assert isinstance(store, FsspecStore)
        assert store.url == "exclusive://host/log"
    assert "hush" not in opened("exclusive://me:hush@host/log").url


def test_first_create_wins_and_the_second_gets_its_content() -> None:
    store = opened()
    assert store.create("a/b", b"mine") == Created()
    assert store.create("a/b", b"theirs") == Exists(b"mine")
    store.replace("a/b", b"hint")
    assert opened().get("a/b") == b"hint"
    assert [mode for call, mode in Exclusive.asked if call == "pipe_file"] == [
        "create",
        "create",
        "overwrite",
    ]


def test_options_reach_the_file_system_without_those_for_retries() -> None:
    opened(token="t", deadline_ms=5_000)
    given = dict(Exclusive.given)
    assert given.pop("token") == "t"
    assert given.pop("use_listings_cache") is False
    assert "deadline_ms" not in given
    assert "attempts_max" not in given
    assert opened() is not opened()
    with pytest.raises(InvalidOption, match="attempts_max is 'x'"):
        opened(attempts_max="x")


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (
            PermissionError("hush"),
            StoreDenied,
            (
                "PermissionError. Check the credentials and the storage options and the "
                "permissions on bucket or folder 'host/log' (read, write, list, delete)."
            ),
        ),
        (
            FileNotFoundError("hush"),
            StoreDenied,
            (
                "FileNotFoundError (there is no bucket or folder 'host/log' there). Create it, or "
                "correct its name and the endpoint (the URL or the storage options)."
            ),
        ),
    ],
)
def test_refusal_names_what_to_check(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception], words: str
) -> None:
    store = opened()
    monkeypatch.setattr(Exclusive, "fails", error)
    with pytest.raises(kind) as refused:
        store.create("x", b"1")
    said = f"cannot create exclusive://host/log/x at Exclusive: {words}"
    assert str(refused.value) == said
    assert len(Exclusive.asked) == 1


def test_fault_is_tried_again_as_often_as_the_options_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Exclusive, "fails", RuntimeError("hush"))
    for attempts_max in (1, 3):
        Exclusive.asked.clear()
        with pytest.raises(StoreUnavailable, match=f"{attempts_max} attempts .* RuntimeError"):
            opened(attempts_max=attempts_max).get("x")
        assert len(Exclusive.asked) == attempts_max


# What is refused at once.


class Inherited(AbstractFileSystem):  # type: ignore[misc]
    """fsspec's own create, which checks and then writes."""


class InheritedAsync(AsyncFileSystem):  # type: ignore[misc]
    """The same of asynchronous file systems."""


class ModeIgnored(AbstractFileSystem):  # type: ignore[misc]
    """Takes a mode, and overwrites whatever it is."""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: object) -> None:
        """Overwrite."""


class WithoutMode(AbstractFileSystem):  # type: ignore[misc]
    """Has no mode."""

    def pipe_file(self, path: str, value: bytes, **options: object) -> None:
        """Overwrite."""
        mode = options.get("mode")
        assert mode


class UsedAsync(AsyncFileSystem):  # type: ignore[misc]
    """An asynchronous file system with a create of its own."""

    async def _pipe_file(self, path: str, value: bytes, mode: str = "x", **_: object) -> None:
        assert mode


@pytest.mark.parametrize("kind", [Inherited, InheritedAsync, ModeIgnored, WithoutMode])
def test_file_system_without_an_exclusive_create_of_its_own_is_refused(
    kind: type[AbstractFileSystem],
) -> None:
    fsspec.register_implementation("exclusive", kind, clobber=True)
    with pytest.raises(StoreNotAtomic) as refused:
        opened()
    assert f"exclusive:// cannot hold a log: its file system ({kind.__name__})" in str(
        refused.value
    )
    assert refused.value.facts["scheme"] == "exclusive"


def test_asynchronous_file_system_with_an_exclusive_create_is_accepted() -> None:
    fsspec.register_implementation("exclusive", UsedAsync, clobber=True)
    assert isinstance(opened(), FsspecStore)


def test_chain_is_refused_without_secrets() -> None:
    with pytest.raises(StoreNotAtomic, match="is a chain of file systems") as refused:
        opened("simplecache::exclusive://me:hush@host/log")
    assert "hush" not in str(refused.value) + str(refused.value.facts)


class Unopened(Exclusive):
    """Cannot be opened."""

    def __init__(self, *arguments: object, **options: object) -> None:
        raise RuntimeError("hush")


def test_error_of_opening_is_named_by_its_kind_only() -> None:
    fsspec.register_implementation("exclusive", Unopened, clobber=True)
    with pytest.raises(StoreDenied, match=r"cannot be opened \(RuntimeError\)") as refused:
        opened("exclusive://me:hush@host/log")
    assert "hush" not in str(refused.value) + str(refused.value.facts)
    assert refused.value.__cause__ is None


def test_protocol_that_is_not_installed_is_named() -> None:
    with pytest.raises(UsageError, match="nonsense:// cannot be opened") as refused:
        opened("nonsense://host/log")
    assert refused.value.facts["scheme"] == "nonsense"
