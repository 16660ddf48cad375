"""A log in memory whose small records ride in entries, with topics `a` (2 partitions) and `b`."""

from tests.logs.memory_log import MemoryLog
from txlog.client.consumer.consumer import Consumer
from txlog.engine.connection import Connection
from txlog.settings import LogSettings
from txlog.topic.topic_log import TopicLog
from txlog.verify.log_audit import audit_log, stored_objects

WINDOW = 8


def log_with(limit: int = 1 << 16) -> MemoryLog:
    log = MemoryLog(LogSettings(journal_snapshot_entries=WINDOW, entry_records_max_bytes=limit))
    log.admin.create_topic("a", 2)
    log.admin.create_topic("b", 1)
    return log


def topic_of(connection: Connection, name: str = "a") -> TopicLog:
    topic = connection.cluster.topic(name)
    topic.catch_up(linearizable=True)
    return topic


def read(connection: Connection, *names: str) -> list[bytes]:
    found: list[bytes] = []
    consumer = Consumer(*(names or "a"), root=connection, auto_offset_reset="earliest")
    while polled := consumer.poll():
        found += [record.value for records in polled.values() for record in records]
    return sorted(found)


def flush(log: MemoryLog, *values: bytes) -> None:
    producer = log.producer()
    for value in values:
        producer.send("a", value)
        producer.flush()


def findings(connection: Connection) -> list[object]:
    return list(audit_log(connection, (), stored_objects(connection)).findings)
