"""The place of a log whose whole life is tested: a folder, a name in memory, or a real bucket."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any

from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import Connection, open_connection
from txlog.fan_out import SerialFanOut
from txlog.model import TopicPartition
from txlog.storage import Store, open_store

_numbers = count()


@dataclass
class LogPlace:
    """A log that many tests share; each test takes names of its own."""

    url: str
    options: Mapping[str, object] = field(default_factory=dict)

    def name(self, stem: str) -> str:
        """A name that no other test has."""
        return f"{stem}-{next(_numbers):05d}"

    @cached_property
    def store(self) -> Store:
        """The store. It holds no state of a log, so that several processes may share it."""
        return open_store(self.url, Runtime(), self.options)

    def process(self, store: Store | None = None, *, create: bool = False) -> Connection:
        """The log as another process opens it. With a store of the test's, one step at a time."""
        if store is not None:
            return open_connection(store, Runtime(fan_out=SerialFanOut()), create=create)
        return open_connection(self.store, Runtime(), create=create)

    @cached_property
    def here(self) -> Connection:
        """A process that always has the log open."""
        return self.process()

    def admin(self) -> Admin:
        """The admin client of that process."""
        return Admin(self.here)

    def topic(self, stem: str = "topic", partitions: int = 1, **options: Any) -> str:
        """Create a topic; returns its name."""
        name = self.name(stem)
        self.admin().create_topic(name, partitions, **options)
        return name

    def producer(self, transactional_id: str | None = None, **options: Any) -> Producer:
        """A producer, with no transaction open yet; a transactional one gets a process of its
        own."""
        if transactional_id is None:
            return Producer(self.here, **options)
        producer = Producer(self.process(), transactional_id=transactional_id, **options)
        producer.init_transactions()
        return producer

    def consumer(self, *topics: str, **options: Any) -> Consumer:
        """A consumer of the permanent process, which reads committed records from the start."""
        defaults = {
            "isolation_level": "read_committed",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
        }
        return Consumer(*topics, root=self.here, **{**defaults, **options})

    def values(self, *topics: str, **options: Any) -> list[Any]:
        """The values of all records that a new consumer reads, in order of partition."""
        consumer = self.consumer(*topics, **options)
        found: dict[TopicPartition, list[Any]] = {}
        while polled := consumer.poll(timeout_ms=1, max_records=10_000):
            for where, records in polled.items():
                found.setdefault(where, []).extend(record.value for record in records)
        return [value for where in sorted(found) for value in found[where]]
