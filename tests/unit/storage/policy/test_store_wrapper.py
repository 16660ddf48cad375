"""Stores that wrap another one: what they pass on, and what they refuse."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from txlog.clock import Runtime
from txlog.errors import CorruptData, NotATxlog, StoreDenied
from txlog.storage import LocalStore, MemoryStore, Store
from txlog.storage.policy.store_wrapper import AuditedStore, ReadOnlyStore, StoreWrapper
from txlog.storage.store import (
    ByteRange,
    can_hold,
    hold,
    is_near,
    open_new,
    sweep_unfinished,
    turn,
)

READS: dict[str, Callable[[Store], Any]] = {
    "get": lambda store: store.get("a/there"),
    "get what is absent": lambda store: store.get("a/absent"),
    "ranges": lambda store: [
        bytes(part)
        for part in store.get_ranges("a/there", [ByteRange(1, 2), ByteRange(0, 1)]) or ()
    ],
    "ranges of what is absent": lambda store: store.get_ranges("a/absent", [ByteRange(0, 1)]),
    "list all": lambda store: [one.path for one in store.list_after("")],
    "list": lambda store: [(one.path, one.size_bytes) for one in store.list_after("a/")],
    "list after": lambda store: [one.path for one in store.list_after("a/", "a/other")],
}
WRITES: dict[str, Callable[[Store], Any]] = {
    "create": lambda store: store.create("a/new", b"x"),
    "create what is there": lambda store: store.create("a/there", b"x"),
    "put_new": lambda store: store.put_new("a/new", (b"x", b"y")),
    "replace": lambda store: store.replace("a/there", b"y"),
    "delete": lambda store: store.delete("a/there"),
}


def filled(store: Store) -> Store:
    for name in ("0", "a/other", "a/there", "b/1"):
        store.put_new(name, b"1234")
    return store


def content(store: Store) -> dict[str, bytes | None]:
    return {one.path: store.get(one.path) for one in store.list_after("")}


@pytest.mark.parametrize("call", [*READS, *WRITES])
def test_wrapper_passes_on_every_call_and_its_answer(tmp_path: Path, call: str) -> None:
    calls = READS | WRITES
    plain, wrapped = (filled(LocalStore(tmp_path / name, Runtime())) for name in ("1", "2"))
    assert calls[call](StoreWrapper(wrapped)) == calls[call](plain)
    assert content(wrapped) == content(plain)


def test_wrapper_has_the_place_nearness_turns_and_hold_of_its_store(tmp_path: Path) -> None:
    class Far(MemoryStore):
        @property
        def is_near(self) -> bool:
            return False

        def turn(self, folder: str, prepare: Callable[[], object]) -> AbstractContextManager[bool]:
            taken.append(folder)
            return turn(local, folder, prepare)

    taken: list[str] = []
    local, far = LocalStore(tmp_path, Runtime()), Far(Runtime(), "far")
    for store in (filled(local), filled(far)):
        wrapper = StoreWrapper(store)
        assert (wrapper.url, is_near(wrapper)) == (store.url, store is local)
        assert can_hold(wrapper)
        assert hold(wrapper, "b/1")
    with turn(StoreWrapper(far), "folder", list):
        assert taken == ["folder"]
    far.opened_again().delete("b/1")
    with pytest.raises(NotATxlog):
        far.create("b/2", b"x")


@pytest.mark.parametrize("kind", [ReadOnlyStore, AuditedStore])
@pytest.mark.parametrize("call", WRITES)
def test_I15_read_only_store_refuses_every_change_by_its_name(
    kind: type[ReadOnlyStore], call: str
) -> None:
    store = filled(MemoryStore(Runtime(), "mine"))
    before = content(store)
    with pytest.raises(StoreDenied, match="memory://mine is open for reading only") as refused:
        WRITES[call](kind(store))
    assert refused.value.facts["path"] in ("a/new", "a/there")
    assert content(store) == before


@pytest.mark.parametrize("kind", [ReadOnlyStore, AuditedStore])
@pytest.mark.parametrize("call", READS)
def test_read_only_store_reads_as_its_store(kind: type[ReadOnlyStore], call: str) -> None:
    store = filled(MemoryStore(Runtime()))
    assert READS[call](kind(store)) == READS[call](store)


@pytest.mark.parametrize(
    ("call", "named"),
    [("get", "a/there"), ("ranges", "a/there"), ("list", "a/"), ("list after", "a/")],
)
def test_audit_names_what_the_store_refuses_to_read_as_damage(
    tmp_path: Path, call: str, named: str
) -> None:
    """A link in the place of a folder; the rest can be read."""
    store = filled(LocalStore(tmp_path / "log", Runtime()))
    (tmp_path / "log/a").rename(tmp_path / "elsewhere")
    (tmp_path / "log/a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreDenied):
        READS[call](ReadOnlyStore(store))
    with pytest.raises(CorruptData, match="symbolic link") as damage:
        READS[call](AuditedStore(store))
    assert damage.value.facts["path"] == named
    assert AuditedStore(store).get("b/1") == b"1234"


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store that keeps the pieces of a new object, and one that writes them."""
    near = LocalStore(tmp_path / "log", Runtime())
    return near if request.param == "disk" else MemoryStore(Runtime())


def test_object_written_in_pieces_is_whole_after_finish_and_absent_before(store: Store) -> None:
    new = open_new(store, "a/1")
    new.write(b"12")
    new.write((b"", memoryview(b"34")))
    assert content(store) == {}
    new.finish()
    assert content(store) == {"a/1": b"1234"}
    new.discard()
    assert new.is_kept_in_memory == (not isinstance(store, LocalStore))


def test_discarded_object_is_never_there(store: Store) -> None:
    new = open_new(store, "a/1")
    new.write(b"12")
    new.discard()
    new.discard()
    assert content(store) == {}


def test_unfinished_objects_are_swept_where_a_store_has_them(store: Store) -> None:
    new = open_new(store, "a/1")
    new.write(b"12")
    assert sweep_unfinished(store, 3_600_000) == 0
    assert sweep_unfinished(store, -1_000) == isinstance(store, LocalStore)
    assert sweep_unfinished(store, -1_000) == 0
    new.discard()


@pytest.mark.parametrize("how", ["removed", "replaced by the same bytes"])
@pytest.mark.parametrize("call", [*WRITES, "get what is absent", "ranges of what is absent"])
def test_memory_store_bound_to_a_log_writes_nothing_once_that_is_gone(how: str, call: str) -> None:
    store = MemoryStore(Runtime(), "mine")
    filled(store)
    assert hold(store, "b/1")
    other = store.opened_again()
    other.delete("b/1")
    if how != "removed":
        other.put_new("b/1", b"".join([b"12", b"34"]))
    before = content(other)
    with pytest.raises(NotATxlog, match="at memory://mine is not there any more: b/1 in it was"):
        (READS | WRITES)[call](store)
    with pytest.raises(NotATxlog, match="is not there any more"):
        hold(store, "b/1")
    assert content(other) == before


def test_memory_store_is_not_bound_to_what_it_does_not_have() -> None:
    with pytest.raises(NotATxlog, match="there is no b/2 in it"):
        hold(filled(MemoryStore(Runtime())), "b/2")
