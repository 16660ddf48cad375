"""Many threads of one process on one connection: they share replicas, entries and workers."""

from concurrent.futures import ThreadPoolExecutor

from tests.protocol.steps import TIMEOUT_MS, append, coordinator, finish, participant, prepare
from tests.protocol.world import PROCESS, Process, World, visible
from tests.stores.faulty_stores import DyingStore
from txlog.clock import Runtime
from txlog.coordinator.events import InitProducer
from txlog.engine.connection import open_connection
from txlog.fan_out import ThreadFanOut
from txlog.model import TxId
from txlog.verify.invariants import check_log

THREADS = 8
TRANSACTIONS = 12


def threaded_process(world: World) -> Process:
    """Fewer workers than threads, so that calls wait for each other."""
    store = DyingStore(world.store)
    runtime = Runtime(fan_out=ThreadFanOut(3))
    return Process(open_connection(store, runtime, process=PROCESS), store)


def produce(process: Process, thread: int) -> list[int]:
    """Commit transactions over both topics, abort one in three; returns the committed records."""
    name = f"thread {thread}"
    registration = coordinator(process).init_producer(InitProducer(name, "i", TIMEOUT_MS))
    kept = []
    for number in range(TRANSACTIONS):
        tx = TxId(registration.pid, registration.epoch, number)
        declared = tuple(participant(process, topic, logged=True) for topic in ("a", "b"))
        coordinator(process).begin(name, tx, TIMEOUT_MS, declared)
        value = thread * TRANSACTIONS + number
        for topic in ("a", "b"):
            append(process, topic, tx, value, number)
        if number % 3:
            prepare(process, tx, name=name, groups=())
            kept.append(value)
        else:
            coordinator(process).prepare_abort(name, tx)
        finish(process, tx, name)
    return kept


def test_threads_that_share_a_connection_lose_nothing_and_do_not_deadlock() -> None:
    world = World()
    world.create_topics("a", "b")
    processes = [threaded_process(world) for _ in range(2)]
    with ThreadPoolExecutor(THREADS) as pool:
        done = list(pool.map(lambda n: produce(processes[n % 2], n), range(THREADS)))
    expected = sorted(value for kept in done for value in kept)
    for topic in ("a", "b"):
        assert sorted(visible(world.process(), topic).values()) == expected
    assert check_log(world.store) == []
