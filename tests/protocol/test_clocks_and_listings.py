"""Clocks and listings decide nothing: wrong ones cost attempts, but never a record (I14)."""

from collections.abc import Iterator

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import Connection, open_connection
from txlog.engine.producer_config import TRANSACTION_RECORDS
from txlog.errors import StoreDenied, StoreUnavailable, TxlogError
from txlog.fan_out import SerialFanOut
from txlog.model import TopicPartition
from txlog.storage.memory import MemoryStore
from txlog.storage.store import StoredObject
from txlog.testing.clock import ManualClock, SeededEntropy, manual_runtime

YEAR_MS = 365 * 24 * 3600 * 1000.0


@pytest.fixture
def log(transaction_records: str) -> MemoryLog:
    log = MemoryLog(transaction_records=transaction_records)
    for name in ("a", "b"):
        log.admin.create_topic(name)
    return log


def at(log: MemoryLog, now_ms: float, seed: int = 99) -> Connection:
    """A process whose clock shows another time."""
    runtime = Runtime(ManualClock(now_ms), SeededEntropy(seed), SerialFanOut())
    return open_connection(log.memory, runtime)


def maintain(connection: Connection) -> None:
    for coordinator in connection.coordinators():
        coordinator.maintain()


@pytest.mark.both_ways
def test_I14_clock_a_year_ahead_does_not_abort_a_decided_transaction(log: MemoryLog) -> None:
    producer = log.producer("id")
    producer.begin_transaction()
    for name in ("a", "b"):
        producer.send(name, b"kept")
    producer.flush()

    def refuse(_: object) -> None:
        raise StoreUnavailable("no answer. Try again.")

    log.store.on("create", "^topics/", refuse, times=1000)
    with pytest.raises(StoreUnavailable):
        producer.commit_transaction()
    maintain(at(log, log.clock.now_ms + YEAR_MS))
    assert log.values("a", "b") == [b"kept", b"kept"]
    log.store.heal()
    producer.commit_transaction()
    log.check()


@pytest.mark.in_log
def test_I14_clock_a_year_ahead_aborts_only_the_open_transaction(
    log: MemoryLog,
) -> None:
    producer = log.producer("id")
    producer.begin_transaction()
    producer.send("a", b"too late")
    producer.flush()
    maintain(at(log, log.clock.now_ms + YEAR_MS))
    with pytest.raises(TxlogError):
        producer.commit_transaction()
    following = log.producer("id")
    with following.transaction():
        following.send("a", b"again")
    assert log.values("a") == [b"again"]
    log.check()


def test_I14_writers_with_disagreeing_clocks_are_ordered_by_the_journal(log: MemoryLog) -> None:
    clocks = (log.clock.now_ms, log.clock.now_ms + YEAR_MS, 0.0, log.clock.now_ms)
    for number, now_ms in enumerate(clocks):
        producer = Producer(at(log, now_ms, 100 + number), transactional_id=f"id-{number}")
        producer.init_transactions()
        with producer.transaction():
            producer.send("a", b"%d" % number)
    assert log.values("a") == [b"0", b"1", b"2", b"3"]
    log.check()


class UnlistedStore(MemoryStore):
    """A store whose process has no permission to list."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self.asked: list[str] = []
        """The prefixes of the refused listings."""

    def list_after(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        self.asked.append(prefix)
        raise StoreDenied(f"s3:ListBucket of {prefix} is not allowed. Allow it.")


def test_I14_log_works_without_list_permission() -> None:
    store = UnlistedStore(manual_runtime())
    processes = [open_connection(store, manual_runtime(seed), create=True) for seed in (1, 2)]
    admin = Admin(processes[0])
    admin.create_topic("a", 2)
    created = ["cluster/", "cluster/"]
    assert store.asked == created, "each process that may create the log"
    for connection, way in zip(processes, TRANSACTION_RECORDS, strict=True):
        producer = Producer(connection, transactional_id="id", transaction_records=way)
        producer.init_transactions()
        for number in range(70):
            with producer.transaction():
                producer.send("a", b"%d" % number, partition=number % 2)
                producer.send_offsets_to_transaction({TopicPartition("a", 0): 0}, "g")
        producer.begin_transaction()
        producer.send("a", b"left open", partition=0)
        producer.flush()
    late = open_connection(store, manual_runtime(3))
    producer = Producer(late, transactional_id="id")
    producer.init_transactions()
    reading = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    consumer = Consumer("a", root=late, group_id="reader", **reading)
    assert sum(map(len, consumer.poll(max_records=1000).values())) == 140
    consumer.commit()
    assert Admin(late).describe_group("reader").lag == 0
    assert Admin(late).list_topics() == ["a"]
    admin.delete_topics(["a"])
    assert store.asked == created
