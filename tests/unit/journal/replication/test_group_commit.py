"""Commands that several threads wait for go into one entry, each with its own answer."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from signal import SIGINT, pthread_kill, signal
from threading import Event, Semaphore, get_ident
from types import FrameType
from typing import Any

import pytest

from tests.processes.interruption import Interruption
from tests.stores.faulty_stores import HookedStore
from tests.unit.journal.shelf_journal import LAYOUT, OPTIONS, limits, new_store, process, written
from tests.unit.journal.shelf_machine import Look, Put, Shelf, Take
from txlog.errors import IllegalTransition, InternalError, OutcomeUnknown, StoreUnavailable
from txlog.journal.entry import EVENTS_MAX
from txlog.journal.machine import Together
from txlog.journal.replication.publish_queue import GROUP_DELAY_MS, QueuedCommand
from txlog.journal.replication.replica import Replica
from txlog.storage.store import ENTRY_BYTES_MAX
from txlog.testing.clock import ManualClock, manual_runtime
from txlog.testing.counting_store import CountingStore

Command = Put | Take | Look
PATIENCE_S = 20
REPEAT_S = 0.05


class AnnouncedQueue(deque[Any]):
    """The replica's queue, which announces each command that joins it."""

    def __init__(self) -> None:
        super().__init__()
        self.joined = Semaphore(0)

    def append(self, item: Any) -> None:
        super().append(item)
        self.joined.release()


def while_first_publishes(
    store: HookedStore, replica: Replica[Shelf], first: Command, others: Sequence[Command]
) -> list[Future[Any]]:
    """Run `first`; all `others` are waiting, in order, before it creates its entry."""
    queue = AnnouncedQueue()
    replica._queue.waiting = queue
    futures: list[Future[Any]] = []

    def others_join() -> None:
        assert queue.joined.acquire(timeout=PATIENCE_S)
        for command in others:
            futures.append(pool.submit(replica.execute, command))
            assert queue.joined.acquire(timeout=PATIENCE_S)

    with ThreadPoolExecutor(max_workers=len(others) + 1) as pool:
        store.before("create", LAYOUT.entry(replica.next_slot), others_join)
        own = pool.submit(replica.execute, first)
        own.exception(timeout=PATIENCE_S)
    return [own, *futures]


def outcome(future: Future[Any]) -> object:
    error = future.exception(timeout=PATIENCE_S)
    return future.result() if error is None else type(error)


def test_commands_waiting_at_the_same_time_share_an_entry() -> None:
    store = HookedStore(new_store())
    replica = process(store)
    others = [Put(f"other {number}") for number in range(10)]
    futures = while_first_publishes(store, replica, Put("first"), others)
    assert [outcome(future) for future in futures] == [True] * 11
    assert written(store, 0) == ["first"]
    assert written(store, 1) == [command.name for command in others]
    assert replica.next_slot == 2
    assert process(store).catch_up() == replica.state


def test_published_command_returns_without_waiting_for_the_next_entry() -> None:
    store = HookedStore(new_store())
    replica = process(store)
    queue = replica._queue.waiting = AnnouncedQueue()
    done: list[Future[Any]] = []

    def join(command: Put) -> Future[Any]:
        future = pool.submit(replica.execute, command)
        assert queue.joined.acquire(timeout=PATIENCE_S)
        return future

    def all_are_answered() -> None:
        assert [outcome(future) for future in done] == [True] * 4

    with ThreadPoolExecutor(max_workers=6) as pool:
        store.before("create", LAYOUT.entry(0), lambda: done.extend(map(join, map(Put, "bcd"))))
        last: list[Future[Any]] = []
        store.before("create", LAYOUT.entry(1), lambda: last.append(join(Put("last"))))
        store.before("create", LAYOUT.entry(2), all_are_answered)
        done.append(join(Put("a")))
        all_are_answered()
        assert outcome(last[0]) is True
    assert [written(store, slot) for slot in range(3)] == [["a"], ["b", "c", "d"], ["last"]]


def test_linearizable_read_is_answered_by_a_won_entry_without_reading() -> None:
    store = HookedStore(new_store())
    replica = process(store)
    queue = replica._queue.waiting = AnnouncedQueue()
    counting = CountingStore(store.inner)
    others: list[Future[Any]] = []

    def others_join() -> None:
        store.inner = counting
        for work in (
            partial(replica.catch_up, linearizable=True),
            partial(replica.execute, Put("b")),
        ):
            others.append(pool.submit(work))
            assert queue.joined.acquire(timeout=PATIENCE_S)

    with ThreadPoolExecutor(max_workers=3) as pool:
        store.before("create", LAYOUT.entry(0), others_join)
        assert replica.execute(Put("a")) is True
        assert [outcome(future) for future in others] == [("a", "b"), True]
    counts = counting.snapshot()
    # The reads are those of the entry below the second one, before and after it was made (R62).
    assert (counts.of("create"), counts.of("get", "entry")) == (2, 2)


def test_linearizable_read_succeeds_if_the_command_queued_with_it_fails() -> None:
    store = HookedStore(new_store())
    replica = process(store)
    queue = replica._queue.waiting = AnnouncedQueue()
    others: list[Future[Any]] = []

    def others_join() -> None:
        for work in (
            partial(replica.catch_up, linearizable=True),
            partial(replica.execute, Put("b")),
        ):
            others.append(pool.submit(work))
            assert queue.joined.acquire(timeout=PATIENCE_S)

    def fail() -> None:
        raise StoreUnavailable("no answer; call again.")

    with ThreadPoolExecutor(max_workers=3) as pool:
        store.before("create", LAYOUT.entry(0), others_join)
        store.before("create", LAYOUT.entry(1), fail)
        assert replica.execute(Put("a")) is True
        assert [outcome(future) for future in others] == [("a",), StoreUnavailable]


class ArrivalClock(ManualClock):
    """A clock on which another thread arrives while one sleeps."""

    def __init__(self, come: Callable[[], None]) -> None:
        super().__init__()
        self._come = come

    def sleep_ms(self, duration_ms: float) -> None:
        super().sleep_ms(duration_ms)
        self._come()


@pytest.mark.parametrize(("is_far", "last"), [(True, ["d", "late"]), (False, ["d"])])
def test_command_waits_group_delay_after_a_shared_entry_on_a_far_store_only(
    is_far: bool, last: list[str]
) -> None:
    store = HookedStore(new_store())
    late: list[Future[Any]] = []

    def come() -> None:
        assert queue.joined.acquire(timeout=PATIENCE_S)  # The command of the waiting thread.
        late.append(join(Put("late")))

    clock = ArrivalClock(come)
    replica = process(store, replace(OPTIONS, is_far=is_far), manual_runtime(77, clock))
    queue = replica._queue.waiting = AnnouncedQueue()

    def join(command: Put) -> Future[Any]:
        future = pool.submit(replica.execute, command)
        assert queue.joined.acquire(timeout=PATIENCE_S)
        return future

    with ThreadPoolExecutor(max_workers=6) as pool:
        others: list[Future[Any]] = []
        store.before("create", LAYOUT.entry(0), lambda: others.extend(map(join, map(Put, "bc"))))
        assert outcome(join(Put("a"))) is True
        assert [outcome(future) for future in others] == [True, True]
        assert clock.slept_ms == [], "no other thread came with it"
        assert replica.execute(Put("d")) is True
        assert [outcome(future) for future in late] == [True] * len(late)
    assert written(store, 2) == last
    assert clock.slept_ms == [GROUP_DELAY_MS] * is_far


def test_execute_each_from_one_thread_has_no_group_delay_on_a_far_store() -> None:
    clock = ManualClock()
    replica = process(new_store(), replace(OPTIONS, is_far=True), manual_runtime(78, clock))
    for number in range(4):
        assert replica.execute_each([Put(f"{number}"), Put(f"{number}, too")]) == [True, True]
    assert clock.slept_ms == []


def test_I16_entry_holds_at_most_publish_batch_max_commands() -> None:
    store = HookedStore(new_store())
    replica = process(store, limits(publish_batch_max=4))
    others = [Put(f"other {number}") for number in range(10)]
    futures = while_first_publishes(store, replica, Put("first"), others)
    assert [outcome(future) for future in futures] == [True] * 11
    assert [len(written(store, slot)) for slot in range(replica.next_slot)] == [1, 4, 4, 2]


def test_I16_commands_with_too_many_events_for_one_entry_are_divided() -> None:
    store = new_store()
    replica = process(store)
    count = EVENTS_MAX // 2 + 1
    many = [Together(tuple(Put(f"{of}, {number}") for number in range(count))) for of in "abc"]
    assert replica.execute_each(many) == [[True] * count] * 3
    assert [len(written(store, slot)) for slot in range(replica.next_slot)] == [count] * 3
    with pytest.raises(InternalError, match="at most 1000"):
        replica.execute(Together(tuple(Put(f"{number}") for number in range(EVENTS_MAX + 1))))
    assert replica.next_slot == 3


def test_grouped_commands_are_answered_or_refused_one_by_one() -> None:
    store = HookedStore(new_store())
    replica = process(store)
    others: list[Command] = [Take("first"), Take("first"), Put("x"), Put("x"), Look("x"), Look("y")]
    futures = while_first_publishes(store, replica, Put("first"), others)
    assert [outcome(future) for future in futures] == [
        True,
        1,
        IllegalTransition,
        True,
        False,
        True,
        False,
    ]
    assert process(store).catch_up() == ("x",)


def test_rivals_entry_changes_only_the_grouped_answers_that_depend_on_it() -> None:
    store = HookedStore(new_store())
    replica, rival = process(store), process(store.inner)
    store.before("create", LAYOUT.entry(1), lambda: rival.execute(Take("first")))
    futures = while_first_publishes(store, replica, Put("first"), [Take("first"), Put("x")])
    assert [outcome(future) for future in futures] == [True, IllegalTransition, True]
    assert process(store).catch_up() == ("x",)


def test_commands_too_large_for_one_entry_together_are_split_over_several() -> None:
    """Each command is small enough by itself, so waiting together must not make any fail."""
    store = HookedStore(new_store())
    replica = process(store)
    others = [Put(f"{number}" * (ENTRY_BYTES_MAX // 3)) for number in range(5)]
    futures = while_first_publishes(store, replica, Put("first"), others)
    assert [outcome(future) for future in futures] == [True] * 6
    assert [len(written(store, slot)) for slot in range(1, replica.next_slot)] == [2, 1, 2]


def test_store_error_is_raised_for_every_command_of_the_group() -> None:
    store = HookedStore(new_store())
    replica = process(store)

    def fail() -> None:
        raise StoreUnavailable("no answer; call again.")

    store.before("create", LAYOUT.entry(1), fail)
    futures = while_first_publishes(store, replica, Put("first"), [Put("x"), Put("y")])
    assert [outcome(future) for future in futures] == [True, StoreUnavailable, StoreUnavailable]
    assert replica.execute(Put("x"))


def test_I13_command_published_by_an_interrupted_thread_raises_outcome_unknown() -> None:
    store = HookedStore(new_store())
    replica = process(store)

    def interrupt() -> None:
        raise KeyboardInterrupt

    store.after("create", LAYOUT.entry(1), interrupt)
    futures = while_first_publishes(store, replica, Put("first"), [Put("x"), Put("y")])
    outcomes = [outcome(future) for future in futures]
    assert outcomes[0] is True
    assert sorted(map(repr, outcomes[1:])) == sorted(map(repr, [KeyboardInterrupt, OutcomeUnknown]))
    assert replica.execute(Put("x")) is False, "the entry was created"


def test_I13_queued_command_of_interrupted_publisher_is_answered_or_stays_queued() -> None:
    def interrupted(interruption: Interruption) -> Interruption:
        replica = process(new_store())
        waiting = QueuedCommand(Put("of another thread"))
        replica._queue.waiting.append(waiting)
        with interruption:
            replica.execute(Put("own"))
        left = [queued for queued in replica._queue.waiting if queued is waiting]
        assert waiting.done or left, interruption.places[-1]
        replica.execute(Put("another"))
        assert waiting.done
        return interruption

    modules = ["replica.py", "run.py", "publish_queue.py"]
    whole = interrupted(Interruption([f"journal/replication/{name}" for name in modules]))
    assert all(interrupted(whole.at(number)).has_come for number in range(len(whole.places)))


@contextmanager
def interrupted_once() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt the first time; later ones only wake the main thread."""
    left = [KeyboardInterrupt()]

    def handle(number: int, frame: FrameType | None) -> None:
        if left:
            raise left.pop()

    before = signal(SIGINT, handle)
    try:
        yield
    finally:
        signal(SIGINT, before)


def test_command_interrupted_while_queued_is_never_published() -> None:
    store = HookedStore(new_store())
    replica = process(store)
    queue = replica._queue.waiting = AnnouncedQueue()
    is_over, main = Event(), get_ident()

    def interrupt_waiting_thread() -> None:
        assert queue.joined.acquire(timeout=PATIENCE_S)  # The first thread's command.
        waiting.release()
        assert queue.joined.acquire(timeout=PATIENCE_S)
        # Repeated, as a signal that comes just before the main thread blocks does not wake it.
        for _ in range(round(PATIENCE_S / REPEAT_S)):
            pthread_kill(main, SIGINT)
            if is_over.wait(REPEAT_S):
                return

    waiting = Semaphore(0)
    store.before("create", LAYOUT.entry(0), interrupt_waiting_thread)
    with ThreadPoolExecutor(1) as pool, interrupted_once():
        first = pool.submit(replica.execute, Put("first"))
        assert waiting.acquire(timeout=PATIENCE_S)
        with pytest.raises(KeyboardInterrupt):
            replica.execute(Put("interrupted"))
        is_over.set()
        assert first.result(PATIENCE_S) is True
    assert replica.execute(Put("last")) is True
    assert process(store).catch_up() == ("first", "last")


@pytest.mark.parametrize("threads", [4])
def test_concurrent_threads_lose_no_command(threads: int) -> None:
    store = new_store()
    replica = process(store)
    with ThreadPoolExecutor(threads) as pool:
        done = list(pool.map(lambda number: replica.execute(Put(f"t{number}")), range(200)))
    assert done == [True] * 200
    assert sorted(process(store).catch_up()) == sorted(f"t{number}" for number in range(200))
