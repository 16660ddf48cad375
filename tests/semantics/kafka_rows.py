"""The rows of docs/kafka-users.md that have a check of their own, and the code that checks
share."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.model import TopicPartition

U0, T0 = TopicPartition("u", 0), TopicPartition("t", 0)
LATE0 = TopicPartition("late", 0)
DAY_MS = 86_400_000

Check = Callable[[MemoryLog], object]


def shows_in(checks: dict[str, Check]) -> Callable[[str], Callable[[Check], Check]]:
    """Registers a function as the check of a row, by the row's first cell."""

    def shows(row: str) -> Callable[[Check], Check]:
        def kept(check: Check) -> Check:
            assert row not in checks
            checks[row] = check
            return check

        return kept

    return shows


def put(log: MemoryLog, where: TopicPartition, count: int = 2) -> None:
    """Send records `0`, `1` and so on, each in an append of its own."""
    producer = log.elsewhere()
    for number in range(count):
        producer.send(where.topic, b"%d" % number, partition=where.partition).get()


def pending(log: MemoryLog, offset: int, name: str = "p") -> Producer:
    """A producer whose open transaction has that offset of `u` pending for group `g`."""
    producer = log.producer(name)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({U0: offset}, "g")
    return producer


def values(consumer: Consumer) -> list[bytes]:
    """The values of one `poll`, in order of partition."""
    polled = consumer.poll(timeout_ms=50, max_records=100)
    return [record.value for where in sorted(polled) for record in polled[where]]


def refuses(error: type[Exception], *calls: Callable[[], Any]) -> None:
    """Check that each of these calls raises the error."""
    for call in calls:
        with pytest.raises(error):
            call()
