"""Clients of a far store, one at a time, compared with other clients on the same line."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from statistics import median

import pyarrow as pa

from benchmarks.far_peers import peers
from benchmarks.far_store import ROUND_TRIP_MS, FarStore, far_store, round_trips
from benchmarks.figures import Figure, Side, at_most, in_turn, quartiles, timed
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.engine.connection import Connection, connect
from txlog.engine.producer_config import IN_LOG
from txlog.fan_out import ThreadFanOut
from txlog.model import TopicPartition
from txlog.settings import ProcessSettings
from txlog.testing.request_log import chain
from txlog.testing.worker_process import WorkerProcess

PARTITIONS = 4
ROUNDS = 12
WARM_UP = 2
OPENINGS = 5
TARGETS = {
    "transaction: 1 topic x 4 partitions, 400 KB": at_most(4.0),
    "the same, a round trip after another one": at_most(4.0),
    "transaction: 2 topics and a group's offsets": at_most(4.4),
    "transaction of 10 records, 4 KB": at_most(2.4),
    "transaction of 10 records, 4 KB, until it is decided": at_most(1.3),
    "until it is decided, each of ten without a pause": at_most(2.4),
    "transaction of 4 KB: 2 topics and a group's offsets": at_most(2.5),
    "idempotent send and flush of a record": at_most(1.3),
    "begin, send, commit until a waiting consumer has it": at_most(3.5),
    "create log": at_most(20),
    "create topic": at_most(6),
    "new producer and init_transactions": at_most(4.6),
    "new consumer to first records, in this process": at_most(4.6),
}
S3FS_SHARE = at_most(1.25)
BEFORE_THE_BEGIN_S = 0.2
"""After this time a consumer is waiting."""


def run(folder: Path) -> Sequence[Figure]:
    """Round trips of each operation, and the processor time of a transaction."""
    with far_store() as store:
        clients = FarClients(store)
        others = peers(store, clients.table)
        by_s3fs = FarClients(store, "by-s3fs", client="s3fs")
        store.far()
        openings = in_turn(clients.openings(), OPENINGS)
        taken = in_turn({**clients.sides(), **by_s3fs.first_sides(), **others}, ROUNDS, WARM_UP)
        return [
            *(round_trips(name, s, TARGETS.get(name)) for name, s in {**taken, **openings}.items()),
            *_shares_of_s3fs(taken),
            _chain_of_a_new_log(clients),
            *_new_processes(clients, folder),
            round_trips("the line: a bare HEAD", [store.bare_request_s() for _ in range(ROUNDS)]),
            _processor_time(clients),
        ]


class FarClients:
    """One client of each kind on a log of its own, and its operations."""

    def __init__(self, store: FarStore, place: str = "clients", **options: object) -> None:
        """`options` are further storage options."""
        self.store = store
        self.root = store.server.url(place)
        self.table = pa.table(
            {
                "key": [os.urandom(8) for _ in range(1_000)],
                "value": [os.urandom(400) for _ in range(1_000)],
            }
        )
        self._numbers = count(1)
        self._options = {**store.storage_options, **options}
        self._admin = Admin(self.root, create=True, storage_options=self._options)
        for name in ("a", "b", "c", "d", "in"):
            self._admin.create_topic(name, PARTITIONS)
        self.producer = self._new_producer("transactions")
        self._decided = self._new_producer("decided", commit_returns="decided")
        self._in_log = self._new_producer("in the log", transaction_records=IN_LOG)
        self._idempotent = Producer(self.root, storage_options=self._options)
        for name in ("a", "in"):
            self._idempotent.send_batch(name, self.table, key="key")
        self._idempotent.flush()
        self._fan_out = ThreadFanOut(1)
        self._waiting = self._new_consumer("latest", "a", self._elsewhere())
        self._idle = self._new_consumer("latest", "in")

    def sides(self) -> dict[str, Side]:
        """Row -> operation of an open client."""
        return {
            "transaction: 1 topic x 4 partitions, 400 KB": lambda: timed(self.transaction),
            "the same, a round trip after another one": self.after_a_round_trip,
            "transaction: 2 topics and a group's offsets": lambda: timed(self.transaction_of_two),
            "transaction of 10 records, 4 KB": lambda: self.small(self.producer, "a"),
            "transaction of 10 records, 4 KB, until it is decided": lambda: self.small(
                self._decided, "c"
            ),
            "until it is decided, each of ten without a pause": self.ten_decided,
            "transaction of 4 KB: 2 topics and a group's offsets": lambda: self.small(
                self.producer, "a", "b", group="transactions"
            ),
            "with records in the log: 1 topic": lambda: timed(self.in_log),
            "with records in the log: 2 topics and a group's offsets": lambda: timed(
                self.in_log_of_two
            ),
            "idempotent send and flush of a record": lambda: timed(self.send_and_flush),
            "begin, send, commit until a waiting consumer has it": self.end_to_end,
            "idle poll": lambda: timed(lambda: self._idle.poll(0)),
        }

    def first_sides(self) -> dict[str, Side]:
        """Some of these operations, as sides for another store client."""
        names = (
            "transaction: 1 topic x 4 partitions, 400 KB",
            "transaction: 2 topics and a group's offsets",
            "idempotent send and flush of a record",
            "begin, send, commit until a waiting consumer has it",
        )
        return {f"s3fs: {name}": self.sides()[name] for name in names}

    def openings(self) -> dict[str, Side]:
        """Row -> operation that creates or opens something."""
        return {
            "create log": lambda: timed(self.create_log),
            "create topic": lambda: timed(self.create_topic),
            "new producer and init_transactions": lambda: timed(
                lambda: self._new_producer(f"new-{next(self._numbers)}")
            ),
            "new consumer to first records, in this process": lambda: timed(self.first_records),
        }

    def transaction(self) -> None:
        """Commit to one topic with four partitions."""
        self._transaction(self.producer, "a")

    def transaction_of_two(self) -> None:
        """Two topics, and a position of the group."""
        self._transaction_of_two(self.producer, "a", "b", group="group")

    def in_log(self) -> None:
        """Commit to one topic, with records in the log before the decision."""
        self._transaction(self._in_log, "c")

    def in_log_of_two(self) -> None:
        """Two topics, and a position of the group."""
        self._transaction_of_two(self._in_log, "c", "d", group="in the log")

    def _transaction(self, producer: Producer, topic: str) -> None:
        with producer.transaction():
            producer.send_batch(topic, self.table, key="key")

    def _transaction_of_two(self, producer: Producer, *topics: str, group: str) -> None:
        moved = {TopicPartition("in", 0): next(self._numbers)}
        producer.begin_transaction()
        for topic in topics:
            producer.send_batch(topic, self.table, key="key")
        producer.send_offsets_to_transaction(moved, group)
        producer.commit_transaction()

    def small(self, producer: Producer, *topics: str, group: str = "") -> float:
        """Seconds of a transaction of ten records of 400 bytes, and a position of the group. The
        producer's last one is complete."""
        time.sleep(BEFORE_THE_BEGIN_S)
        return timed(lambda: self._small(producer, *topics, group=group))

    def ten_decided(self) -> float:
        """Seconds of each of ten such transactions: all but the first wait for the markers of the
        one before (R45)."""
        time.sleep(BEFORE_THE_BEGIN_S)
        begun_s = time.perf_counter()
        for _ in range(10):
            self._small(self._decided, "c", group="")
        return (time.perf_counter() - begun_s) / 10

    def after_a_round_trip(self) -> float:
        """Seconds of a transaction that begins while the one before is being completed."""
        self.transaction()
        time.sleep(ROUND_TRIP_MS / 1_000)
        return timed(self.transaction)

    def _small(self, producer: Producer, *topics: str, group: str) -> None:
        with producer.transaction():
            for number in range(10):
                producer.send(topics[number % len(topics)], b"x" * 400, key=b"%d" % number)
            if group:
                moved = {TopicPartition("in", 0): next(self._numbers)}
                producer.send_offsets_to_transaction(moved, group)

    def send_and_flush(self) -> None:
        """Send one record of 100 bytes and flush it."""
        self._idempotent.send("a", b"x" * 100, key=b"k")
        self._idempotent.flush()

    def end_to_end(self) -> float:
        """Seconds until a waiting consumer, with a connection of its own, has a transaction's
        record."""
        while self._waiting.poll(0, max_records=100_000):
            pass  # Skip the records of the other sides.
        received = self._fan_out.start(self._received_s)
        time.sleep(BEFORE_THE_BEGIN_S)
        begun_s = time.perf_counter()
        with self.producer.transaction():
            self.producer.send("a", b"x", key=b"k")
        return received() - begun_s

    def _received_s(self) -> float:
        """The time at which records arrived."""
        assert self._waiting.poll(60_000)
        return time.perf_counter()

    def create_log(self) -> None:
        """Create a log under a new prefix."""
        place = self.store.server.url(f"log-{next(self._numbers)}")
        Admin(place, create=True, storage_options=self._options)

    def create_topic(self) -> None:
        """Create a topic of four partitions."""
        self._admin.create_topic(f"new-{next(self._numbers)}", PARTITIONS)

    def first_records(self) -> None:
        """First records of a new consumer in a process that has opened the log."""
        consumer = self._new_consumer("earliest")
        while not consumer.poll():
            pass
        consumer.close()

    def _new_producer(self, transactional_id: str, **config: str) -> Producer:
        producer = Producer(
            self.root,
            transactional_id=transactional_id,
            storage_options=self._options,
            **config,
        )
        producer.init_transactions()
        return producer

    def _elsewhere(self) -> Connection:
        """A connection like that of another process."""
        return connect(self.root, storage_options=self._options, process=ProcessSettings())

    def _new_consumer(
        self, reset: str, topic: str = "a", root: Connection | None = None
    ) -> Consumer:
        consumer = Consumer(
            topic,
            root=root or self.root,
            storage_options=self._options,
            isolation_level="read_committed",
            auto_offset_reset=reset,
        )
        if reset == "latest":
            consumer.poll(0)
        return consumer


def _shares_of_s3fs(taken: Mapping[str, Sequence[float]]) -> Iterator[Figure]:
    """A side's time with s3fs, divided by its time with obstore."""
    for name, seconds in taken.items():
        if name.startswith("s3fs: "):
            pairs = zip(seconds, taken[name.removeprefix("s3fs: ")], strict=True)
            shares = [by_s3fs / by_obstore for by_s3fs, by_obstore in pairs]
            yield Figure(f"{name} / obstore", median(shares), "x", S3FS_SHARE, quartiles(shares))


def _chain_of_a_new_log(clients: FarClients) -> Figure:
    """The number of requests that wait for each other, which does not depend on the server."""
    clients.store.line.logged()
    clients.create_log()
    waits = len(chain(clients.store.line.logged()))
    return Figure("create log: requests that wait for each other", waits, "", at_most(20))


def _new_processes(clients: FarClients, folder: Path) -> list[Figure]:
    """Time and waiting requests from a process's imports to a topic's first records."""
    options = {
        "root": clients.root,
        "topic": "in",
        "storage_options": clients.store.storage_options,
    }
    seconds: list[float] = []
    chains: list[float] = []
    for number in range(OPENINGS):
        clients.store.line.logged()
        process = WorkerProcess("benchmarks.far_reader", options, folder / f"reader-{number}")
        message = process.message()
        process.require_success()
        assert message is not None
        seconds.append(message["seconds"])
        chains.append(len(chain(clients.store.line.logged())))
    name = "new process to first records"
    return [
        round_trips(f"{name}, after its imports", seconds),
        Figure(f"{name}: requests that wait for each other", median(chains), "", at_most(6)),
    ]


def _processor_time(clients: FarClients) -> Figure:
    """Processor time of all threads of this process, on a line without delay."""
    clients.store.near()
    clients.transaction()
    taken = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        clients.transaction()
        taken.append(1000 * (time.process_time() - begun))
    return Figure("processor time of the client, a transaction of 400 KB", median(taken), "ms")
