"""The probe refuses every store that breaks its contract, and reports what it saw."""

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import fsspec
import pytest

from txlog import layout
from txlog.clock import Runtime
from txlog.errors import StoreDenied, StoreNotAtomic, StoreUnavailable
from txlog.storage import (
    Created,
    CreateResult,
    Exists,
    FsspecStore,
    LocalStore,
    MemoryStore,
    Store,
    probe,
)
from txlog.storage.policy.probe import WRITERS
from txlog.testing.clock import manual_runtime


class OverwritingStore(MemoryStore):
    """Ignores the condition, as servers do that do not support If-None-Match."""

    def create(self, path: str, data: bytes) -> CreateResult:
        self.replace(path, data)
        return Created()


class CheckThenWriteStore(MemoryStore):
    """Checks whether the name is free, then writes: two writers can check at the same time."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._both_looked: defaultdict[str, threading.Barrier] = defaultdict(
            lambda: threading.Barrier(2)
        )
        self._lookers: Counter[str] = Counter()

    def create(self, path: str, data: bytes) -> CreateResult:
        found = self.get(path)
        if found is not None:
            return Exists(found)
        if not path.endswith("/first"):
            self._wait_for_another_looker(path)
        self.replace(path, data)
        return Created()

    def _wait_for_another_looker(self, path: str) -> None:
        with self._lock:
            self._lookers[path] += 1
            looker, both = self._lookers[path], self._both_looked[path]
        if looker <= 2:
            both.wait(timeout=30)


class LateStore(MemoryStore):
    """Shows an object only on the second read."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._asked: set[str] = set()

    def get(self, path: str) -> bytes | None:
        data = super().get(path)
        if data is None or path in self._asked:
            return data
        self._asked.add(path)
        return None


class OtherContentStore(MemoryStore):
    """Answers that the name is taken, but not by which content."""

    def create(self, path: str, data: bytes) -> CreateResult:
        answer = super().create(path, data)
        return Exists(b"something") if isinstance(answer, Exists) else answer


class TornStore(MemoryStore):
    """Returns the first half of an object while writers race for it."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._torn: set[str] = set()

    def get(self, path: str) -> bytes | None:
        data = super().get(path)
        if data is None or path.endswith("/first") or path in self._torn:
            return data
        self._torn.add(path)
        return data[: len(data) // 2]


class TakenStore(MemoryStore):
    """Answers that a fresh name is taken."""

    def create(self, path: str, data: bytes) -> CreateResult:
        super().create(path, b"another writer")
        return Exists(b"another writer")


@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        (OverwritingStore, "overwrote it"),
        (CheckThenWriteStore, f"create succeeded for 2 of {WRITERS} writers"),
        (LateStore, "could not be read at once"),
        (OtherContentStore, "returned other content"),
        (TakenStore, "create refused a name that was free"),
    ],
)
def test_probe_names_defect_of_non_atomic_store_and_removes_its_objects(
    kind: Callable[[Runtime], Store], seen: str
) -> None:
    store = kind(Runtime())
    with pytest.raises(StoreNotAtomic, match=seen) as refused:
        probe(store, Runtime())
    assert refused.value.facts["store"] == store.url
    assert list(store.list_after("")) == []


def test_probe_refuses_store_with_torn_reads() -> None:
    with pytest.raises(StoreNotAtomic, match="part of an object|winner's content"):
        probe(TornStore(Runtime()), Runtime())


def test_probe_refuses_exclusive_create_of_fsspec_on_a_disk(tmp_path: Path) -> None:
    """fsspec checks before it writes, so txlog has its own store for disks."""
    files = fsspec.filesystem("file", auto_mkdir=True, skip_instance_cache=True)
    store = FsspecStore(files, f"{tmp_path}/log", f"file://{tmp_path}/log", Runtime())
    # A race in which no two writers meet proves nothing, so the test repeats it until two do.
    assert any(_probe_refuses(store) for _ in range(50))


def _probe_refuses(store: FsspecStore) -> bool:
    try:
        probe(store, Runtime())
    except StoreNotAtomic:
        return True
    return False


def test_probe_result_is_plain_json(tmp_path: Path) -> None:
    result = probe(LocalStore(tmp_path, Runtime()), Runtime())
    stored = json.loads(json.dumps(result.as_json()))
    assert stored["store"] == str(tmp_path)
    assert stored["conflicts"] == stored["keys"] * (stored["writers"] - 1)
    assert stored["objects_removed"] is True


def test_the_probe_runs_in_a_simulation_without_threads() -> None:
    runtime = manual_runtime()
    assert probe(MemoryStore(runtime), runtime).objects_removed


def test_probe_objects_are_below_the_probes_folder(tmp_path: Path) -> None:
    class KeepingStore(LocalStore):
        """A bucket whose owner forbids deletion."""

        def delete(self, path: str) -> None:
            raise StoreDenied("deletion is not allowed here", path=path)

    store = KeepingStore(tmp_path, Runtime())
    assert not probe(store, Runtime()).objects_removed
    paths = [found.path for found in store.list_after("")]
    assert paths
    assert all(path.startswith(f"{layout.PROBES}/") for path in paths)


def test_probe_propagates_store_errors() -> None:
    class AbsentStore(MemoryStore):
        """A store that cannot be reached."""

        def create(self, path: str, data: bytes) -> CreateResult:
            raise StoreUnavailable("no answer", path=path)

    with pytest.raises(StoreUnavailable):
        probe(AbsentStore(Runtime()), Runtime())


def test_probe_does_not_wait_for_a_writer_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each later race would wait START_WAIT_S for the failed writer."""

    class OnceDeniedStore(MemoryStore):
        """Refuses the first create of a race."""

        is_denied = False

        def create(self, path: str, data: bytes) -> CreateResult:
            if path.endswith("/00") and not self.is_denied:
                self.is_denied = True
                raise StoreDenied("not now", path=path)
            return super().create(path, data)

    monkeypatch.setattr(import_module("txlog.storage.policy.probe"), "START_WAIT_S", 60.0)
    with pytest.raises(StoreDenied, match="not now"):
        probe(OnceDeniedStore(Runtime()), Runtime())
