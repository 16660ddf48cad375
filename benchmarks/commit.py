"""One transaction of four partitions and a group's offsets, compared with its files alone.

The raw side writes the same files as the transaction (same bytes, same folders, one after the
other), each made durable before the next. The rest of the time is txlog's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pyarrow as pa

from benchmarks import sample
from benchmarks.figures import Figure, at_most, latency, p99, ratio, timed
from benchmarks.raw import durable_file
from txlog.client.admin import Admin
from txlog.client.consumer.consumer_group import ConsumerGroupMetadata
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import Connection, open_connection
from txlog.model import TopicPartition
from txlog.storage.disk.local import LocalStore
from txlog.storage.store import Body, CreateResult, whole
from txlog.testing.counting_store import CountingStore, object_kind

PARTITIONS = 4
ROWS_PER_PARTITION = 1_000
ROUNDS = 300
WARM_UP = 40
GROUP = "readers"
INPUT = TopicPartition("input", 0)
KAFKA_P50_MS = 75.0
"""A Kafka broker without fsync on such a machine (two cores, one broker, confluent-kafka)."""


class RecordingStore(CountingStore):
    """A folder that records the files written since the last query."""

    def __init__(self, folder: Path) -> None:
        super().__init__(LocalStore(folder, Runtime()))
        self.written: list[tuple[str, bytes]] = []

    def create(self, path: str, data: bytes) -> CreateResult:
        self.written.append((path, data))
        return super().create(path, data)

    def put_new(self, path: str, data: Body) -> None:
        self.written.append((path, whole(data)))
        super().put_new(path, data)


class Transactions:
    """A producer that also commits a group's offsets."""

    def __init__(self, connection: Connection) -> None:
        admin = Admin(connection)
        admin.create_topic("input", 1)
        admin.create_topic("output", PARTITIONS)
        with Producer(connection) as producer:
            producer.send_batch("input", sample.keyed_table(2 * (ROUNDS + WARM_UP)), partition=0)
        self._connection = connection
        self._producer = Producer(connection, transactional_id="commits")
        self._producer.init_transactions()
        self._group = ConsumerGroupMetadata(GROUP, {INPUT: 0})
        self._table = _table()
        self.done = 0

    def run(self) -> None:
        """Begin, four partitions of 100 KB, offsets, commit."""
        producer = self._producer
        producer.begin_transaction()
        producer.send_batch("output", self._table, partition="partition")
        producer.send_offsets_to_transaction({INPUT: self.done + 1}, self._group)
        producer.commit_transaction()
        self.done += 1

    def settle(self) -> None:
        """Wait for COMMITTED, which is written after a commit returns (rule R8)."""
        coordinator = self._connection.coordinator_of("commits")
        while any(coordinator.catch_up().open_transactions()):
            pass

    def require_all(self) -> None:
        """Check that the log has every committed record and offset."""
        state = self._connection.cluster.topic("output").catch_up()
        ends = [state.last_stable_offset(partition) for partition in range(PARTITIONS)]
        assert ends == [self.done * ROWS_PER_PARTITION] * PARTITIONS, ends
        committed = self._connection.offsets.group(GROUP).committed[INPUT].offset
        assert committed == self.done, f"{committed} of {self.done}"


def run(folder: Path) -> Sequence[Figure]:
    """Latencies, and their ratio to the raw files."""
    store = RecordingStore(folder / "log")
    transactions = Transactions(open_connection(store, Runtime(), create=True))
    for _ in range(WARM_UP):
        transactions.run()
        transactions.settle()
    files = _files_of_one(transactions, store)
    raw = RawFiles(folder / "raw", files[:-1])
    taken: dict[str, list[float]] = {"commit": [], "raw": []}
    for _ in range(ROUNDS - 1):
        taken["commit"].append(timed(transactions.run))
        transactions.settle()
        taken["raw"].append(timed(raw.write))
    back_to_back = [timed(transactions.run) for _ in range(ROUNDS)]
    transactions.settle()
    transactions.require_all()
    return (
        latency("transaction of 4 x 100 KB and offsets, p50", taken["commit"]),
        p99("the same, p99", taken["commit"]),
        latency(f"raw: the same {len(raw.files)} files, p50", taken["raw"]),
        Figure(
            "p50 / raw p50",
            median(taken["commit"]) / median(taken["raw"]),
            "x",
            at_most(1.5),
        ),
        ratio("median of the ratios of neighbours", taken["commit"], taken["raw"]),
        Figure(
            "Kafka without fsync (75 ms) / p50",
            KAFKA_P50_MS / (1000 * median(taken["commit"])),
            "x",
        ),
        latency("back to back, p50", back_to_back),
    )


class RawFiles:
    """Writes the files of one transaction repeatedly, under new names."""

    def __init__(self, folder: Path, files: Sequence[tuple[str, bytes]]) -> None:
        self.files = files
        self._folder = folder
        self._number = 0
        for path, _ in files:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)

    def write(self) -> None:
        """Write the files one after the other, each durable before the next."""
        self._number += 1
        for path, data in self.files:
            durable_file(f"{self._folder}/{path}-{self._number}", data)


def _files_of_one(transactions: Transactions, store: RecordingStore) -> list[tuple[str, bytes]]:
    """The files of a transaction without a snapshot; its COMMITTED entry is the last."""
    while True:
        store.written.clear()
        transactions.run()
        transactions.settle()
        kinds = {object_kind(path) for path, _ in store.written}
        if kinds == {"entry", "segment"}:
            assert store.written[-1][0].startswith("transactions/"), store.written[-1][0]
            return list(store.written)


def _table() -> pa.Table:
    count = PARTITIONS * ROWS_PER_PARTITION
    partitions = [number % PARTITIONS for number in range(count)]
    return pa.table({"value": sample.values(count), "partition": partitions})
