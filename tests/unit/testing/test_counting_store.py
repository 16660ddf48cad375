"""Counts name each request and its kind of object; counting changes no answer."""

import pytest

from txlog import layout
from txlog.storage import ByteRange, Created, Exists, MemoryStore
from txlog.testing.clock import manual_runtime
from txlog.testing.counting_store import CountingStore, object_kind

JOURNAL = layout.LogLayout("0" * 32).topic("flights", "0" * 32)


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryStore(manual_runtime()))


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (layout.CLUSTER_FILE, "cluster-file"),
        (JOURNAL.entry(7), "entry"),
        (JOURNAL.snapshot(7), "snapshot"),
        (JOURNAL.chunk(0, 7), "chunk"),
        (JOURNAL.boundary(1), "boundary"),
        (JOURNAL.segment("0" * 32), "segment"),
        (JOURNAL.hint, "hint"),
        (f"{layout.PROBES}/x/1", "probe"),
        ("something/else", "other"),
    ],
)
def test_every_object_of_the_layout_has_its_kind(path: str, kind: str) -> None:
    assert object_kind(path) == kind


def test_calls_are_counted_by_verb_and_kind_and_answers_unchanged(store: CountingStore) -> None:
    assert store.create(JOURNAL.entry(0), b"12345") == Created()
    assert store.create(JOURNAL.entry(0), b"other") == Exists(b"12345")
    store.put_new(JOURNAL.segment("0" * 32), memoryview(b"123"))
    store.replace(JOURNAL.hint, b"1")
    assert store.get(JOURNAL.entry(1)) is None
    assert store.get_ranges(JOURNAL.segment("0" * 32), [ByteRange(1, 1)]) == [b"2"]
    assert len(list(store.list_after(JOURNAL.entries))) == 1
    store.delete(JOURNAL.hint)
    counts = store.snapshot()
    assert counts.calls == {
        ("create", "entry"): 2,
        ("put_new", "segment"): 1,
        ("replace", "hint"): 1,
        ("get", "entry"): 1,
        ("get_ranges", "segment"): 1,
        ("list_after", "entry"): 1,
        ("delete", "hint"): 1,
    }
    assert (counts.puts, counts.gets, counts.lists, counts.of("delete")) == (4, 2, 1, 1)
    assert counts.of("create", "entry") == 2
    assert counts.of("create", "segment") == 0
    assert counts.bytes_written == 14


def test_reset_returns_the_counts_and_starts_from_zero(store: CountingStore) -> None:
    store.get("a")
    assert store.reset().gets == 1
    assert store.snapshot().gets == 0
