"""Many writers on a far store: threads and processes, on one topic and on a topic each."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.far_store import FarStore, far_store
from benchmarks.figures import Figure
from txlog.clients.admin import Admin
from txlog.clients.producer import Producer
from txlog.testing.worker_process import WorkerProcess

THREADS = 8
PROCESSES = 16
SECONDS = 8.0
TOPIC = "shared"


def run(folder: Path) -> Sequence[Figure]:
    """Transactions a second, of all writers together."""
    with far_store() as store:
        root = store.server.url("writers")
        admin = Admin(root, create=True, storage_options=store.storage_options)
        own = [f"own-{number}" for number in range(THREADS)]
        for name in (TOPIC, *own):
            admin.create_topic(name, 1)
        store.far()
        return [
            _rate("1 thread", _by_threads(store, root, [TOPIC])),
            _rate(f"{THREADS} threads, one topic", _by_threads(store, root, [TOPIC] * THREADS)),
            _rate(f"{THREADS} threads, a topic each", _by_threads(store, root, own)),
            *_by_processes(store, root, folder, 1),
            *_by_processes(store, root, folder, PROCESSES),
        ]


def _rate(name: str, commits_a_second: float) -> Figure:
    return Figure(name, commits_a_second, "transactions/s")


def _by_threads(store: FarStore, root: str, topics: Sequence[str]) -> float:
    """A thread for each of the topics."""
    producers = [
        Producer(
            root,
            transactional_id=f"{len(topics)}-{topic}-{number}",
            storage_options=store.storage_options,
        )
        for number, topic in enumerate(topics)
    ]
    for producer in producers:
        producer.init_transactions()
    begun = time.monotonic()
    moments: list[float] = []

    def write(producer: Producer, topic: str) -> None:
        while time.monotonic() < begun + SECONDS:
            with producer.transaction():
                producer.send(topic, b"x" * 100, key=b"k")
            moments.append(time.monotonic())

    pairs = zip(producers, topics, strict=True)
    threads = [threading.Thread(target=write, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _within(moments, begun, begun + SECONDS) / SECONDS


def _by_processes(store: FarStore, root: str, folder: Path, number: int) -> list[Figure]:
    """All on one topic. What counts begins when every process has committed once."""
    processes = [
        WorkerProcess(
            "benchmarks.far_writer",
            {
                "root": root,
                "topic": TOPIC,
                "transactional_id": f"process-{number}-{index}",
                "storage_options": store.storage_options,
            },
            folder / f"writer-{number}-{index}",
            is_endless=True,
        )
        for index in range(number)
    ]
    first = [process.message() for process in processes]
    assert all(first), "a writer ended before its first commit"
    begun = time.monotonic()
    time.sleep(SECONDS)
    for process in processes:
        process.end()
    for process in processes:
        process.require_success()
    done = [_within(_moments(process), begun, begun + SECONDS) for process in processes]
    name = f"{number} process{'es' if number > 1 else ''}, one topic"
    if number == 1:
        return [_rate(name, done[0] / SECONDS)]
    return [
        _rate(name, sum(done) / SECONDS),
        Figure("  the least of them / their mean", min(done) * number / max(1, sum(done)), "x"),
    ]


def _moments(process: WorkerProcess) -> list[float]:
    return [message["at"] for message in process.messages()]


def _within(moments: Sequence[float], begun: float, ended: float) -> int:
    return sum(begun <= moment <= ended for moment in moments)
