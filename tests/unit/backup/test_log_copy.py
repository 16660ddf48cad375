"""A copy of a log is its state at one moment, whatever writers do between any two of its reads."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.faulty_stores import DyingStore, ProcessDied
from tests.stores.scripted_store import Call
from txlog.backup.log_copy import copy_log
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import Connection, open_connection
from txlog.errors import NotATxlog, UsageError
from txlog.fan_out import SerialFanOut
from txlog.maintenance.maintenance import Maintenance
from txlog.model import TopicPartition
from txlog.settings import LogSettings
from txlog.storage.memory import MemoryStore
from txlog.testing.clock import ManualClock, SeededEntropy, StillBackground, manual_runtime
from txlog.verify.invariants import check_log

COPIERS = ("one", "two", "three")
OUTPUTS = ("left", "right")
IN0 = TopicPartition("in", 0)
SMALL = LogSettings(transaction_state_log_num_partitions=4, journal_snapshot_entries=8)


class Copier:
    """Copies numbers from `in`, where each is at its own offset, to two topics, some at a time,
    with its group's offsets."""

    def __init__(self, log: MemoryLog, name: str, choices: random.Random, records: str) -> None:
        self.log, self.name, self.choices, self.records = log, name, choices, records
        self.process = log.process()
        self.at = 0
        self.start()

    def start(self) -> None:
        """A new instance, which finishes or aborts what an earlier one left."""
        self.producer = Producer(
            self.process, transactional_id=self.name, transaction_records=self.records
        )
        self.producer.init_transactions()
        committed = self.process.offsets.resolve_and_fetch(self.name, [IN0])[IN0]
        self.at = 0 if committed is None else committed.offset

    def run(self, sent: int) -> None:
        """Copy a few numbers, abort them, or leave them for the next instance."""
        end = min(self.at + self.choices.randint(1, 4), sent)
        if end == self.at:
            return
        self.producer.begin_transaction()
        for number in range(self.at, end):
            for topic in OUTPUTS:
                self.producer.send(f"{topic}-{self.name}", b"%d" % number)
        self.producer.send_offsets_to_transaction({IN0: end}, self.name)
        match self.choices.randrange(8):
            case 0:
                self.start()
            case 1:
                self.producer.abort_transaction()
            case _:
                self.producer.commit_transaction()
                self.at = end


class Writers:
    """Processes that write to a log, a step at a time."""

    def __init__(self, seed: int, records: str) -> None:
        self.choices = random.Random(seed)
        self.log = MemoryLog(SMALL, transaction_records=records)
        self.log.admin.create_topic("in", 1)
        for name in COPIERS:
            for topic in OUTPUTS:
                self.log.admin.create_topic(f"{topic}-{name}", 2)
        self.source = self.log.elsewhere()
        self.copiers = [Copier(self.log, name, self.choices, records) for name in COPIERS]
        self.admin_process = self.log.process()
        self.sent = 0
        self.others = 0
        self.steps: list[Callable[[], None]] = [
            self.send,
            self.change_topics,
            *[partial(self.copy, copier) for copier in self.copiers] * 3,
        ]

    def send(self) -> None:
        """More numbers."""
        for _ in range(3):
            self.source.send("in", b"%d" % self.sent)
            self.sent += 1
        self.source.flush()

    def copy(self, copier: Copier) -> None:
        """One transaction."""
        copier.run(self.sent)

    def change_topics(self) -> None:
        """A topic is created, gets a record of a new producer, and may be deleted again."""
        name, self.others = f"other-{self.others}", self.others + 1
        admin = Admin(self.admin_process)
        admin.create_topic(name, 1, pa.schema([("n", pa.int64())]))
        with Producer(self.admin_process) as producer:
            producer.send(name, {"n": self.others})
        if self.choices.random() < 0.5:
            admin.delete_topics([name])

    def step(self, _: Call | None = None) -> None:
        """One of the steps."""
        self.choices.choice(self.steps)()


def reading(store: MemoryStore, seed: int = 7) -> Connection:
    """A process that has the copy open."""
    runtime = Runtime(ManualClock(), SeededEntropy(seed), SerialFanOut(), StillBackground())
    return open_connection(store, runtime)


def values(copy: Connection, *topics: str) -> list[bytes]:
    with Consumer(
        *topics, root=copy, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        return [record.value for record in consumer.read_to_end()]


@pytest.mark.parametrize("records", ["staged", "in.log"])
@pytest.mark.parametrize("seed", range(5))
def test_I3_I6_copy_among_writers_has_no_transaction_in_part_and_no_group_ahead(
    seed: int, records: str
) -> None:
    writers = Writers(seed, records)
    for _ in range(20):
        writers.step()

    def meanwhile(call: Call) -> object:
        if writers.choices.random() < 0.1:
            writers.step()
        return call()

    writers.log.store.on("get|get_ranges", "", meanwhile, times=1 << 30)
    target = MemoryStore(manual_runtime())
    copy_log(writers.log.connection, target)
    copy = reading(target)
    Maintenance(copy, copy.cluster.process).run_once(vacuum=False)
    for coordinator in copy.caught_up():
        for name, transaction in list(coordinator.state.open_transactions()):
            coordinator.abort(name, transaction.tx_id)
    assert check_log(copy) == []
    numbers = values(copy, "in")
    assert numbers == [b"%d" % n for n in range(len(numbers))]
    for name in COPIERS:
        committed = copy.offsets.resolve_and_fetch(name, [IN0])[IN0]
        end = 0 if committed is None else committed.offset
        for topic in OUTPUTS:
            copied = sorted(map(int, values(copy, f"{topic}-{name}")))
            assert copied == list(range(end)), (name, topic)


@pytest.mark.parametrize("write", [1, 20, 40, 60])
def test_copy_that_is_cut_off_is_no_log_and_is_not_gone_on_with(write: int) -> None:
    """Its journals have an id that no log will have."""
    writers = Writers(0, "staged")
    target = MemoryStore(manual_runtime())
    store = DyingStore(target)
    store.die_at(write, after=True)
    with pytest.raises(ProcessDied):
        copy_log(writers.log.connection, store)
    with pytest.raises(NotATxlog):
        reading(target)
    with pytest.raises(UsageError, match="is not empty"):
        copy_log(writers.log.connection, target)
    for found in list(target.list_after("")):
        target.delete(found.path)
    copy_log(writers.log.connection, target)
    assert check_log(reading(target)) == []
