"""A log for one test, with a producer and a consumer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.logs.empty_log import empty_log
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import Connection, open_connection
from txlog.settings import LogSettings
from txlog.storage.disk.local import LocalStore

Row = dict[str, Any]


@dataclass
class SmallLog:
    """One log, with a producer of numbers and a reader that shares nothing with Spark."""

    root: Path | str
    connection: Connection
    admin: Admin
    producer: Producer
    next_number: int = 0

    @property
    def url(self) -> str:
        """The value of Spark's option `root`."""
        return str(self.root)

    def put(self, topic: str, count: int, *, key: bytes | None = None) -> range:
        """Send the next `count` numbers, as texts, in one transaction over all partitions."""
        numbers = range(self.next_number, self.next_number + count)
        self.next_number = numbers.stop
        partitions = len(self.admin.describe_topic(topic).partitions)
        with self.producer.transaction():
            for number in numbers:
                where = None if key is not None else number % partitions
                self.producer.send(topic, b"%d" % number, key=key, partition=where)
        return numbers

    def rows(self, topic: str) -> list[Row]:
        """Every committed record, with `_partition` and `_offset`."""
        consumer = Consumer(
            topic,
            root=self.connection,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        found: list[Row] = []
        while (table := consumer.poll_arrow()) is not None:
            found += table.to_pylist()
        return found

    def column(self, topic: str, name: str) -> list[Any]:
        """The values of one column, in order."""
        return sorted(row[name] for row in self.rows(topic))

    def lag(self, group: str) -> int:
        """Number of records above the group's committed offsets, or of all records."""
        return sum(end - at for at, end in self.positions(group).values())

    def positions(self, group: str, *, is_decided: bool = False) -> dict[str, tuple[int, int]]:
        """Partition -> the group's committed offset, and the last stable offset. `is_decided`: as
        tools show it, with what is decided and not completed."""
        offsets = self.connection.offsets
        found = offsets.shown(group) if is_decided else offsets.group(group)
        ends = {
            f"{topic.name}-{part.partition}": (topic.name, part)
            for topic in self.admin.describe_topics()
            for part in topic.partitions
        }
        return {
            str(where): (committed.offset, ends[str(where)][1].last_stable_offset)
            for where, committed in found.committed.items()
        }


def small_log(
    root: Path,
    topics: Mapping[str, int | pa.Schema] | None = None,
    settings: LogSettings | None = None,
) -> SmallLog:
    """A new log on the local disk with these topics: a number of partitions, or a schema and two
    partitions."""
    empty_log(root, settings)
    return filled_log(root, open_connection(LocalStore(root, Runtime()), Runtime()), topics)


def filled_log(
    root: Path | str,
    connection: Connection,
    topics: Mapping[str, int | pa.Schema] | None = None,
) -> SmallLog:
    """The log with these topics, as in `small_log`."""
    admin = Admin(connection)
    for name, kind in (topics or {}).items():
        if isinstance(kind, int):
            admin.create_topic(name, kind)
        else:
            admin.create_topic(name, 2, kind)
    # In the log, so that readers meet open and aborted records; the sinks stage theirs.
    producer = Producer(connection, transactional_id="input", transaction_records="in.log")
    producer.init_transactions()
    return SmallLog(root, connection, admin, producer)
