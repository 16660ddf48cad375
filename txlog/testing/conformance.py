"""The requirements on every store, as tests that a store's own test file inherits.

They check the contract of `txlog/storage/store.py`: I1 above all. To test a store, subclass
StoreConformance and give it a `store` fixture. RacedStoreConformance adds what several processes
may expect, SharedStoreConformance also what they may expect if one of them is killed,
LostAnswerConformance what must hold when answers are lost, FullStoreConformance what must hold when
the store is full. It needs pytest (the `test` extra) and depends on no particular store.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Mapping
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

import pytest

from txlog.clock import Runtime
from txlog.errors import InternalError, OutcomeUnknown, StoreFull
from txlog.storage import (
    ENTRY_BYTES_MAX,
    ByteRange,
    Created,
    Exists,
    Store,
    open_store,
    probe,
)

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

_PROCESSES = multiprocessing.get_context("forkserver")
"""New processes that share no threads or locks with this one, and that start quickly: they are
forked from a server process that has imported the modules and done nothing else."""

_PROCESSES.set_forkserver_preload([__name__, "s3fs"])

RACERS = 4
"""How many processes race for each key."""

RACED_KEYS = 50
"""How many fresh keys they race for."""

THREADS = 8
"""How many calls race within one process."""

KILLS = 5
"""How many writers are killed in the middle of a write."""

LARGE_BYTES = 3_000_000
"""The size of a body that takes many packets or pages."""

PAGED_OBJECTS = 1_005
"""More objects than fit into one page of any store's listing."""

WAIT_S = 60
"""How long to wait for another process; only a failed test waits that long."""

ODD_NAMES = (
    "with space/and  two",
    "percent%20/plus+amp&",
    "hash#question?equals=",
    "quote'tilde~/(round)[square]{curly}",
    "umlaut-äöü/漢字/🦀",
    "dots..inside/a.b.c/...",
    "-starts-with-dash/_/@",
    "deep/" + "/".join("abcdefghij"),
    "long-" + "n" * 240,
)

BAD_NAMES = ("", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../../b", "a/./b", "a\x00b", "a\nb")


class StoreConformance:
    """The contract of one store in one process."""

    @pytest.fixture
    def store(self) -> Store:
        """An empty store of the kind under test."""
        raise NotImplementedError("a subclass gives the store")

    def test_what_was_created_is_read_back_whole(self, store: Store) -> None:
        assert store.create("a/b", b"content") == Created()
        assert store.get("a/b") == b"content"

    def test_I1_create_over_existing_changes_nothing_and_returns_it(self, store: Store) -> None:
        store.create("a", b"first")
        assert store.create("a", b"second") == Exists(b"first")
        assert store.get("a") == b"first"

    def test_the_same_create_again_is_the_same_creation(self, store: Store) -> None:
        store.create("a", b"mine")
        assert store.create("a", b"mine") == Created()

    def test_a_deleted_name_can_be_created_again(self, store: Store) -> None:
        store.create("a", b"first")
        store.delete("a")
        assert store.get("a") is None
        assert store.create("a", b"second") == Created()

    def test_create_takes_one_byte_and_the_largest_entry(self, store: Store) -> None:
        largest = os.urandom(ENTRY_BYTES_MAX)
        assert store.create("small", b"x") == Created()
        assert store.create("large", largest) == Created()
        assert store.get("large") == largest

    @pytest.mark.parametrize("size_bytes", [0, ENTRY_BYTES_MAX + 1])
    def test_create_refuses_other_sizes_before_it_writes(
        self, store: Store, size_bytes: int
    ) -> None:
        with pytest.raises(InternalError):
            store.create("a", b"x" * size_bytes)
        assert store.get("a") is None

    @pytest.mark.parametrize("path", BAD_NAMES)
    def test_names_that_could_leave_the_root_are_refused(self, store: Store, path: str) -> None:
        for call in (store.get, store.delete, partial(store.create, data=b"x")):
            with pytest.raises(InternalError):
                call(path)

    @pytest.mark.parametrize("path", ODD_NAMES)
    def test_odd_names_are_names(self, store: Store, path: str) -> None:
        assert store.create(path, path.encode()) == Created()
        assert store.get(path) == path.encode()
        assert [found.path for found in store.list_after("")] == [path]
        store.delete(path)
        assert list(store.list_after("")) == []

    def test_reading_and_deleting_what_is_absent_is_no_error(self, store: Store) -> None:
        assert store.get("a/b/c") is None
        assert store.get_ranges("a/b/c", [ByteRange(0, 1)]) is None
        store.delete("a/b/c")

    def test_ranges_come_in_the_order_asked_for(self, store: Store) -> None:
        body = os.urandom(LARGE_BYTES)
        store.put_new("a", body)
        wanted = [ByteRange(2_000_000, 900_000), ByteRange(0, 5), ByteRange(3, 4), ByteRange(9, 0)]
        parts = store.get_ranges("a", wanted)
        assert parts is not None
        assert [bytes(part) for part in parts] == [
            body[part.start : part.start + part.length] for part in wanted
        ]

    def test_ranges_beyond_the_end_come_short(self, store: Store) -> None:
        store.put_new("a", b"0123456789")
        parts = store.get_ranges(
            "a", [ByteRange(8, 10), ByteRange(10, 5), ByteRange(900_000, 5), ByteRange(0, 300_000)]
        )
        assert parts is not None
        assert [bytes(part) for part in parts] == [b"89", b"", b"", b"0123456789"]

    def test_put_new_takes_any_buffer_of_any_size(self, store: Store) -> None:
        for name, size_bytes in (("empty", 0), ("small", 1), ("large", LARGE_BYTES)):
            body = os.urandom(size_bytes)
            signed = memoryview(body).cast("b")  # The form in which pyarrow passes buffers.
            store.put_new(name, signed)
            assert store.get(name) == body

    def test_put_new_again_is_fine_but_never_overwrites(self, store: Store) -> None:
        signed = memoryview(b"\xff-first").cast("b")
        store.put_new("a", signed)
        store.put_new("a", signed)
        with pytest.raises(InternalError, match="unique"):
            store.put_new("a", b"second")
        assert store.get("a") == b"\xff-first"

    def test_replace_overwrites(self, store: Store) -> None:
        for body in (b"first", b"a longer second", b"3"):
            store.replace("hints/a", body)
            assert store.get("hints/a") == body

    def test_listing_is_in_order_of_path(self, store: Store) -> None:
        paths = ["a-b/x", "a/b/1", "a/b/2", "a/c", "a0", "b/z", "b/zz/1", "b/ä"]
        for path in reversed(paths):
            store.create(path, path.encode())
        assert [found.path for found in store.list_after("")] == sorted(paths)
        assert [found.path for found in store.list_after("a/")] == ["a/b/1", "a/b/2", "a/c"]
        assert [found.path for found in store.list_after("a/b/", "a/b/1")] == ["a/b/2"]
        assert [found.path for found in store.list_after("", "a/c")] == [
            "a0",
            "b/z",
            "b/zz/1",
            "b/ä",
        ]
        assert [found.path for found in store.list_after("b/z")] == ["b/z", "b/zz/1"]
        assert list(store.list_after("nothing/")) == []

    def test_listing_tells_size_and_age(self, store: Store) -> None:
        before_ms = Runtime().clock.wall_ms()
        store.create("a/b", b"12345")
        (found,) = store.list_after("a/")
        assert (found.path, found.size_bytes) == ("a/b", 5)
        assert abs(found.modified_ms - before_ms) < 10_000

    def test_listing_goes_on_after_the_first_page(self, store: Store) -> None:
        paths = [f"many/{number:05d}" for number in range(PAGED_OBJECTS)]
        Runtime().fan_out.run_all([partial(store.create, path, b"x") for path in paths])
        assert [found.path for found in store.list_after("many/")] == paths
        assert [found.path for found in store.list_after("many/", paths[2])] == paths[3:]

    def test_I1_threads_that_race_have_one_winner(self, store: Store) -> None:
        for number in range(20):
            bodies = [f"{racer} ".encode() * 2_000 for racer in range(THREADS)]
            race = [partial(store.create, f"race/{number}", body) for body in bodies]
            answers = Runtime().fan_out.run_all(race)
            winner = store.get(f"race/{number}")
            assert answers.count(Created()) == 1
            assert answers.count(Exists(winner or b"")) == THREADS - 1
            assert bodies[answers.index(Created())] == winner

    def test_the_probe_passes_and_cleans_up(self, store: Store) -> None:
        result = probe(store, Runtime())
        assert result.conflicts == result.keys * (result.writers - 1)
        assert result.objects_removed
        assert list(store.list_after("")) == []


class RacedStoreConformance(StoreConformance):
    """Further tests, for a store that other processes can open by its URL."""

    @pytest.fixture
    def store_url(self) -> str:
        """The URL of an empty store."""
        raise NotImplementedError("a subclass gives the URL")

    @pytest.fixture
    def storage_options(self) -> Mapping[str, object]:
        """The options that `open_store` needs in addition to the URL."""
        return {}

    @pytest.fixture
    def store(self, store_url: str, storage_options: Mapping[str, object]) -> Store:
        return open_store(store_url, Runtime(), storage_options)

    def test_its_url_opens_the_same_store(
        self, store: Store, storage_options: Mapping[str, object]
    ) -> None:
        store.create("a", b"content")
        assert open_store(store.url, Runtime(), storage_options).get("a") == b"content"

    def test_I1_processes_that_race_have_one_winner(
        self, store: Store, store_url: str, storage_options: Mapping[str, object]
    ) -> None:
        barrier = _PROCESSES.Barrier(RACERS)
        results = [_PROCESSES.Pipe(duplex=False) for _ in range(RACERS)]
        racers = [
            _PROCESSES.Process(
                target=_race, args=(store_url, storage_options, racer, barrier, sender)
            )
            for racer, (_, sender) in enumerate(results)
        ]
        for process in racers:
            process.start()
        claims = [_receive(receiver) for receiver, _ in results]
        for process in racers:
            process.join(WAIT_S)
        assert [process.exitcode for process in racers] == [0] * RACERS
        for number, claimed in enumerate(zip(*claims, strict=True)):
            body = store.get(f"race/{number}")
            assert body is not None
            assert set(claimed) == {_racer_of(body)}, f"key {number}: {claimed}"


class SharedStoreConformance(RacedStoreConformance):
    """One more test: a store keeps no part of an object whose writer is killed."""

    def test_a_writer_killed_in_the_middle_leaves_no_part_of_an_object(
        self, store: Store, store_url: str, storage_options: Mapping[str, object]
    ) -> None:
        for kill in range(KILLS):
            receiver, sender = _PROCESSES.Pipe(duplex=False)
            writer = _PROCESSES.Process(
                target=_write_on, args=(store_url, storage_options, f"torn/{kill}", sender)
            )
            writer.start()
            for _ in range(kill + 1):
                _receive(receiver)
            os.kill(writer.pid or 0, signal.SIGKILL)
            writer.join(WAIT_S)
        found = list(store.list_after("torn/"))
        assert len(found) > KILLS
        for stored in found:
            body = store.get(stored.path)
            assert body is not None
            assert len(body) == stored.size_bytes in (LARGE_BYTES, ENTRY_BYTES_MAX)
            assert body == body[:1] * len(body)


class LostAnswerConformance:
    """For stores whose answers can be lost on the network."""

    @pytest.fixture
    def losing_store(self) -> Store:
        """A store whose first create takes effect, but whose answer is lost."""
        raise NotImplementedError("a subclass gives the store")

    @pytest.fixture
    def cut_off_store(self) -> Store:
        """Like `losing_store`, and every later read fails."""
        raise NotImplementedError("a subclass gives the store")

    def test_I13_a_lost_answer_is_found_by_reading_back(self, losing_store: Store) -> None:
        assert losing_store.create("a", b"mine") == Created()
        assert losing_store.get("a") == b"mine"

    def test_I13_a_lost_answer_that_cannot_be_read_back_is_unknown(
        self, cut_off_store: Store
    ) -> None:
        with pytest.raises(OutcomeUnknown, match=r"outcome unknown|may be lost"):
            cut_off_store.create("a", b"mine")


class FullStoreConformance:
    """For stores that can run out of space."""

    @pytest.fixture
    def full_store(self) -> Store:
        """A store with space for bodies below 100 kB only."""
        raise NotImplementedError("a subclass gives the store")

    def test_a_full_store_writes_nothing_in_part_and_goes_on_afterwards(
        self, full_store: Store
    ) -> None:
        full_store.replace("hint", b"old")
        for write in (full_store.create, full_store.put_new, full_store.replace):
            with pytest.raises(StoreFull, match="no room"):
                write("large", b"x" * ENTRY_BYTES_MAX)
            assert full_store.get("large") is None
        with pytest.raises(StoreFull):
            full_store.replace("hint", b"x" * ENTRY_BYTES_MAX)
        assert full_store.get("hint") == b"old"
        assert full_store.create("small", b"fits") == Created()


def _receive(receiver: Connection) -> list[int]:
    if not receiver.poll(WAIT_S):
        raise AssertionError("the other process did not answer")
    received: list[int] = receiver.recv()
    return received


def _race(
    url: str,
    options: Mapping[str, object],
    racer: int,
    barrier: Barrier,
    sender: Connection,
) -> None:
    """A racing process: it reports, for each key, which process won according to the store."""
    store = open_store(url, Runtime(), options)
    claims = []
    for number in range(RACED_KEYS):
        body = bytes([racer]) * 10_000
        barrier.wait(WAIT_S)
        answer = store.create(f"race/{number}", body)
        claims.append(_racer_of(answer.data) if isinstance(answer, Exists) else racer)
    sender.send(claims)


def _racer_of(body: bytes) -> int:
    """The process that wrote that body; -1 for an incomplete body."""
    return body[0] if body == body[:1] * 10_000 else -1


def _write_on(url: str, options: Mapping[str, object], prefix: str, sender: Connection) -> None:
    """A process that writes large objects until it is killed, and reports each one."""
    store = open_store(url, Runtime(), options)
    number = 0
    while True:
        store.put_new(f"{prefix}/{number}-segment", bytes([number % 256]) * LARGE_BYTES)
        sender.send([number])
        store.create(f"{prefix}/{number}-entry", bytes([number % 256]) * ENTRY_BYTES_MAX)
        number += 1
