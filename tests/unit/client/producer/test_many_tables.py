"""A transaction of many small tables takes time in proportion to their number."""

import sys

import pyarrow as pa

from tests.logs.memory_log import MemoryLog
from txlog.client.producer.producer import Producer

TABLE = pa.table({"value": [b"a"]})


def calls_of(producer: Producer, tables: int) -> int:
    """Function calls, and steps of generators, that sending so many tables takes."""
    count = 0

    def counted(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(counted)
    try:
        for _ in range(tables):
            producer.send_batch("u", TABLE)
    finally:
        sys.setprofile(None)
    return count


def test_later_tables_of_a_transaction_take_no_longer(log: MemoryLog) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    calls_of(producer, 10)  # The first reads the topic.
    early = calls_of(producer, 130)
    calls_of(producer, 200)
    assert calls_of(producer, 130) < 1.2 * early
    producer.commit_transaction()
    assert len(log.values("u")) == 470
