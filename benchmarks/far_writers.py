"""Many writers on a far store: threads and processes, on one topic and on a topic each."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.far_store import FarStore, far_store
from benchmarks.figures import Figure, at_least
from benchmarks.writing_processes import SECONDS, Place, compared, rate_of, within
from txlog.client.admin import Admin
from txlog.client.producer.producer import Producer

THREADS = 8
PROCESSES = 16
TOPIC = "shared"


def run(folder: Path) -> Sequence[Figure]:
    """Transactions a second of all writers together."""
    with far_store() as store:
        root = store.server.url("writers")
        admin = Admin(root, create=True, storage_options=store.storage_options)
        own = [f"own-{number}" for number in range(THREADS)]
        for name in (TOPIC, *own):
            admin.create_topic(name, 1)
        store.far()
        place = Place(root, TOPIC, folder, store.storage_options)
        return [
            rate_of("1 thread", _by_threads(store, root, [TOPIC])),
            rate_of(
                f"{THREADS} threads, one topic",
                _by_threads(store, root, [TOPIC] * THREADS),
                at_least(50.0),
            ),
            rate_of(
                f"{THREADS} threads, a topic each", _by_threads(store, root, own), at_least(52.0)
            ),
            *compared(place, 1, PROCESSES, times=4.0),
        ]


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
    return within(moments, begun, begun + SECONDS) / SECONDS
