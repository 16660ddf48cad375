"""Turns on a disk: one writer writes after another, and no writer waits forever."""

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.open_files import open_below
from txlog.clock import Runtime, ThreadBackground
from txlog.storage import LocalStore, MemoryStore
from txlog.storage.disk.folder_lock import STUCK_MS, TURN_WAIT_MS_MAX
from txlog.storage.store import turn
from txlog.testing.clock import ManualClock, manual_runtime
from txlog.testing.counting_store import CountingStore

FOLDER_ABOVE = "journal"
FOLDER = f"{FOLDER_ABOVE}/entries"
LONG_MS = 3_600_000


def nothing() -> None:
    """Nothing to prepare."""


class PassingTime:
    """An event that is never set: each wait advances the clock and calls `meanwhile`."""

    def __init__(self, clock: ManualClock, meanwhile: Callable[[], None]) -> None:
        self._clock = clock
        self._meanwhile = meanwhile

    def wait_ms(self, timeout_ms: float) -> bool:
        self._clock.advance(timeout_ms)
        self._meanwhile()
        return False

    def set(self) -> None:
        raise AssertionError("the turn was not released")


class Writers:
    """A writer in the folder while another one waits for a turn."""

    def __init__(self, folder: Path) -> None:
        self.are_at_work = False
        self._folder = folder
        self._written = 0

    def write(self) -> None:
        if self.are_at_work:
            self._written += 1
            os.utime(self._folder, ns=(0, self._written))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def writers(tmp_path: Path) -> Writers:
    return Writers(tmp_path / FOLDER)


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock, writers: Writers) -> LocalStore:
    runtime = replace(
        manual_runtime(clock=clock),
        new_event=lambda: PassingTime(clock, writers.write),
        background=SilentBackground(),
    )
    return _with_folders(LocalStore(tmp_path, runtime))


class SilentBackground(ThreadBackground):
    """A background in which no thread waits."""

    def begin(self, call: Callable[[], object]) -> None:
        """Never make the call."""


def _with_folders(store: LocalStore) -> LocalStore:
    store.create(f"{FOLDER}/0", b"x")
    return store


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the folder as another process would."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def locked_within_s(folder: Path, timeout_s: float) -> Iterator[None]:
    """The same once another thread has released it."""
    taken = threading.Event()

    def wait() -> None:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            taken.set()

    descriptor = os.open(folder, os.O_RDONLY)
    threading.Thread(target=wait, daemon=True).start()
    assert taken.wait(timeout_s), f"{folder} stays locked"
    yield
    os.close(descriptor)


def test_turn_holds_folder_lock_until_it_ends(store: LocalStore, tmp_path: Path) -> None:
    with (
        turn(store, FOLDER, nothing),
        pytest.raises(BlockingIOError),
        locked(tmp_path / FOLDER),
    ):
        pass
    with locked(tmp_path / FOLDER):
        pass


def test_I16_wait_for_stalled_lock_holder_is_short_and_not_repeated(
    store: LocalStore, tmp_path: Path, clock: ManualClock
) -> None:
    begun_ms = clock.monotonic_ms()
    with locked(tmp_path / FOLDER):
        with turn(store, FOLDER, nothing) as others_had_it:
            assert others_had_it
        assert clock.monotonic_ms() - begun_ms == STUCK_MS
        clock.sleep_ms(LONG_MS)
        with turn(store, FOLDER, nothing) as others_had_it:
            assert others_had_it
        assert clock.monotonic_ms() - begun_ms == STUCK_MS + LONG_MS, "it still stalls"


def test_I16_wait_is_longer_while_others_write_and_not_repeated(
    store: LocalStore, tmp_path: Path, clock: ManualClock, writers: Writers
) -> None:
    """The process that holds the lock may be suspended while others write without their turns."""
    writers.are_at_work = True
    with locked(tmp_path / FOLDER):
        begun_ms = clock.monotonic_ms()
        with turn(store, FOLDER, nothing):
            waited_ms = clock.monotonic_ms() - begun_ms
        assert TURN_WAIT_MS_MAX <= waited_ms <= TURN_WAIT_MS_MAX + STUCK_MS
        with turn(store, FOLDER, nothing):
            assert clock.monotonic_ms() - begun_ms == waited_ms


def test_lock_acquired_after_the_turn_ended_is_released_at_once(
    tmp_path: Path, clock: ManualClock, writers: Writers
) -> None:
    waiting: list[Callable[[], object]] = []
    background = SilentBackground()
    background.begin = waiting.append  # type: ignore[method-assign]
    told: list[bool] = []

    class Late(PassingTime):
        def set(self) -> None:
            told.append(True)

    runtime = replace(
        manual_runtime(clock=clock),
        new_event=lambda: Late(clock, writers.write),
        background=background,
    )
    store = _with_folders(LocalStore(tmp_path, runtime))
    with locked(tmp_path / FOLDER), turn(store, FOLDER, nothing):
        pass
    waiting[0]()
    assert told == [True, True], "that it is the next, and that it has the lock"
    with locked(tmp_path / FOLDER):
        with turn(store, FOLDER, nothing):
            assert len(waiting) == 2, "after the stall the next writer waits again"
        with turn(store, FOLDER, nothing):
            assert len(waiting) == 2


def test_turn_that_was_waited_for_holds_the_lock_until_it_ends(
    tmp_path: Path, clock: ManualClock
) -> None:
    waiting: list[Callable[[], object]] = []
    background = SilentBackground()
    background.begin = waiting.append  # type: ignore[method-assign]
    holder = ExitStack()

    class UntilTheHolderIsGone:
        is_set = False

        def wait_ms(self, timeout_ms: float) -> bool:
            holder.close()
            waiting[0]()
            return self.is_set

        def set(self) -> None:
            self.is_set = True

    runtime = replace(
        manual_runtime(clock=clock), new_event=UntilTheHolderIsGone, background=background
    )
    store = _with_folders(LocalStore(tmp_path, runtime))
    open_files = open_below(tmp_path)
    holder.enter_context(locked(tmp_path / FOLDER))
    with (
        turn(store, FOLDER, nothing) as others_had_it,
        pytest.raises(BlockingIOError),
        locked(tmp_path / FOLDER),
    ):
        pass
    assert others_had_it
    with locked(tmp_path / FOLDER):
        pass
    assert open_below(tmp_path) == open_files


def test_waiting_writer_prepares_once_it_is_the_next_while_another_writes(tmp_path: Path) -> None:
    store = _with_folders(LocalStore(tmp_path, Runtime()))
    open_files = open_below(tmp_path)
    prepared: list[bool] = []
    with ExitStack() as holder:

        def prepare() -> None:
            for folder in (tmp_path / FOLDER, tmp_path / FOLDER_ABOVE):
                with pytest.raises(BlockingIOError), locked(folder):
                    pass
            prepared.append(True)
            holder.close()

        holder.enter_context(locked(tmp_path / FOLDER))
        with turn(store, FOLDER, prepare) as others_had_it:
            assert (prepared, others_had_it) == ([True], True)
            with pytest.raises(BlockingIOError), locked(tmp_path / FOLDER):
                pass
            with locked(tmp_path / FOLDER_ABOVE):  # Another writer is the next.
                pass
    assert open_below(tmp_path) == open_files


def test_waiting_writer_prepares_nothing_while_another_is_the_next(tmp_path: Path) -> None:
    store = _with_folders(LocalStore(tmp_path, Runtime()))
    prepared: list[bool] = []
    with locked(tmp_path / FOLDER):
        with (
            locked(tmp_path / FOLDER_ABOVE),
            turn(store, FOLDER, lambda: prepared.append(True)) as others_had_it,
        ):
            assert (prepared, others_had_it) == ([], True)
        # The thread that still waits leaves the queue at once: its writer waits no more.
        with locked_within_s(tmp_path / FOLDER_ABOVE, 10):
            pass


def test_I16_stalled_lock_holder_costs_one_thread_and_one_open_file(tmp_path: Path) -> None:
    clock = ManualClock()
    store = _with_folders(LocalStore(tmp_path, replace(Runtime(), clock=clock)))
    with locked(tmp_path / FOLDER):
        with turn(store, FOLDER, nothing):  # Finds that the holder stalls.
            open_files, threads = open_below(tmp_path), threading.active_count()
        for _ in range(20):
            clock.sleep_ms(LONG_MS)
            with turn(store, FOLDER, nothing) as others_had_it:
                assert others_had_it
        assert open_below(tmp_path) <= open_files
        assert threading.active_count() <= threads


class NoThreadLeft(ThreadBackground):
    """A background in a process that may start no more threads (RLIMIT_NPROC, a cgroup's limit)."""

    def begin(self, call: Callable[[], object]) -> None:
        """What Python raises then."""
        raise RuntimeError("can't start new thread")


def test_child_that_was_forked_within_a_turn_does_not_keep_the_lock(
    store: LocalStore, tmp_path: Path
) -> None:
    """It has the descriptor, too, and lives on, as a worker of a process pool does."""
    until_ends, ends = os.pipe()
    with turn(store, FOLDER, nothing):
        child = os.fork()
        if child == 0:
            os.close(ends)
            os.read(until_ends, 1)
            os._exit(0)
    try:
        with locked(tmp_path / FOLDER):
            pass
    finally:
        os.close(ends)
        os.close(until_ends)
        os.waitpid(child, 0)


def test_writer_proceeds_without_its_turn_if_no_thread_is_left_to_wait_for_it(
    tmp_path: Path, clock: ManualClock
) -> None:
    runtime = replace(
        manual_runtime(clock=clock),
        background=NoThreadLeft(),
        new_event=lambda: PassingTime(clock, lambda: None),
    )
    store = _with_folders(LocalStore(tmp_path, runtime))
    open_files, begun_ms = open_below(tmp_path), clock.monotonic_ms()
    with locked(tmp_path / FOLDER):
        for _ in range(2):
            with turn(store, FOLDER, nothing) as others_had_it:
                assert others_had_it
    assert clock.monotonic_ms() == begun_ms, "nothing would end a wait"
    assert open_below(tmp_path) == open_files
    with turn(store, FOLDER, nothing) as others_had_it:
        assert not others_had_it


def test_threads_of_two_connections_take_turns(tmp_path: Path) -> None:
    stores = [_with_folders(LocalStore(tmp_path, Runtime())) for _ in range(2)]
    inside: list[int] = []
    most: list[int] = []

    def write(store: LocalStore) -> None:
        for _ in range(50):
            with turn(store, FOLDER, nothing):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=write, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(most), max(most)) == (100, 1)


def test_turn_creates_no_object_in_the_log(store: LocalStore) -> None:
    with turn(store, FOLDER, nothing):
        assert [found.path for found in store.list_after("")] == [f"{FOLDER}/0"]


def test_create_in_missing_folder_proceeds_without_a_lock(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "nothing", Runtime())
    with turn(store, FOLDER, nothing):
        assert store.create(f"{FOLDER}/0", b"x")


def test_error_within_turn_releases_the_lock(store: LocalStore, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="within"), turn(store, FOLDER, nothing):
        raise ValueError("within")
    with locked(tmp_path / FOLDER):
        pass


def test_turn_on_store_without_locks_starts_at_once() -> None:
    store = MemoryStore(Runtime())
    with (
        turn(store, FOLDER, nothing) as first,
        turn(CountingStore(store), FOLDER, nothing) as second,
    ):
        assert (first, second) == (False, False)


def test_store_wrapper_locks_folder_of_wrapped_store(store: LocalStore, tmp_path: Path) -> None:
    with (
        turn(CountingStore(store), FOLDER, nothing),
        pytest.raises(BlockingIOError),
        locked(tmp_path / FOLDER),
    ):
        pass
