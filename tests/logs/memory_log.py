"""A log in memory for tests of the clients, with any number of processes and a manual clock."""

from collections.abc import Mapping
from itertools import count
from typing import Any

from tests.logs.empty_log import objects_of_new_log
from tests.stores.scripted_store import ScriptedStore
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import Connection, open_connection
from txlog.engine.producer_config import STAGED
from txlog.fan_out import SerialFanOut
from txlog.journal.entry import decode_entry
from txlog.layout import parse_number
from txlog.model import TopicPartition
from txlog.settings import LogSettings
from txlog.storage.memory import MemoryStore
from txlog.storage.store import Store
from txlog.testing.clock import ManualClock, SeededEntropy, StillBackground
from txlog.verify.invariants import check_log

SEGMENTS = LogSettings(entry_records_max_bytes=0)
"""Of a log in which each flush writes a segment, and no record rides in an entry."""


class MemoryLog:
    """A log, its store, and a first process that has it open.

    `store` follows a test's script for that first process; `process()` opens the log as another
    process would, without the script.
    """

    def __init__(
        self,
        settings: LogSettings | None = None,
        objects: Mapping[str, bytes] | None = None,
        transaction_records: str = STAGED,
    ) -> None:
        """A new log, or with `objects` a copy of another one. `transaction_records` says where its
        producers keep the records of open transactions by default."""
        self._records = transaction_records
        self.clock = ManualClock()
        self._seeds = count(len(objects or ()))
        self.memory = MemoryStore(Runtime(self.clock))
        stored = objects or objects_of_new_log(settings or LogSettings())
        for path, data in stored.items():
            self.memory.put_new(path, data)
        self.store = ScriptedStore(self.memory)
        self.connection = self.process(self.store)
        self.admin = Admin(self.connection)

    def process(self, store: Store | None = None) -> Connection:
        """Another process that has the log open."""
        entropy = SeededEntropy(next(self._seeds))
        runtime = Runtime(self.clock, entropy, SerialFanOut(), StillBackground())
        return open_connection(store or self.memory, runtime)

    def process_admin(self) -> Admin:
        """The admin client of another process."""
        return Admin(self.process())

    def producer(self, transactional_id: str | None = None, **options: Any) -> Producer:
        """A producer of the first process, with no transaction open yet."""
        options = {"transaction_records": self._records, **options}
        producer = Producer(self.connection, transactional_id=transactional_id, **options)
        if transactional_id is not None:
            producer.init_transactions()
        return producer

    def elsewhere(self, transactional_id: str | None = None, **options: Any) -> Producer:
        """A producer of another process, with no transaction open yet."""
        options = {"transaction_records": self._records, **options}
        producer = Producer(self.process(), transactional_id=transactional_id, **options)
        if transactional_id is not None:
            producer.init_transactions()
        return producer

    def consumer(self, *topics: str, **options: Any) -> Consumer:
        """A consumer of another process that starts at the first record."""
        options = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **options}
        return Consumer(*topics, root=self.process(), **options)

    def values(self, *topics: str, isolation: str = "read_committed") -> list[Any]:
        """The values of all records that a new consumer reads, in order of partition."""
        consumer = self.consumer(*topics, isolation_level=isolation)
        found: dict[TopicPartition, list[Any]] = {}
        while polled := consumer.poll(timeout_ms=30, max_records=10_000):
            for where, records in polled.items():
                found.setdefault(where, []).extend(record.value for record in records)
        return [value for where in sorted(found) for value in found[where]]

    def objects(self) -> dict[str, bytes]:
        """Everything that is stored, by path."""
        stored = {found.path: self.memory.get(found.path) for found in self.memory.list_after("")}
        return {path: data for path, data in stored.items() if data is not None}

    def events_at(self, path: str) -> tuple[Any, ...]:
        """The events of an entry, as JSON."""
        entry, _ = decode_entry(self.memory.get(path) or b"", path, parse_number(path) or 0)
        return entry.events

    def changed_since(self, before: Mapping[str, bytes]) -> list[str]:
        """The paths of objects that were created, removed or changed since."""
        now = self.objects()
        return sorted(path for path in now.keys() | before if now.get(path) != before.get(path))

    def check(self) -> None:
        """Check every invariant from the stored bytes alone."""
        found = check_log(self.process())
        assert found == [], found
