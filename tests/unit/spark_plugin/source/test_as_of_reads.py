"""`asOf`: a batch read of an earlier moment, the same in all topics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.logs.memory_log import MemoryLog
from tests.unit.spark_plugin.batch_read import ranges_of
from tests.unit.spark_plugin.spark_query import ONE_JOURNAL
from txlog.errors import OffsetOutOfRange, UnknownTransaction, UsageError
from txlog.model import TopicPartition

BOTH = {"subscribe": "orders,payments"}


@pytest.fixture
def log() -> MemoryLog:
    """Two topics."""
    log = MemoryLog(replace(ONE_JOURNAL, entry_records_max_bytes=0))
    for topic in ("orders", "payments"):
        log.admin.create_topic(topic, 1)
    return log


def transaction(log: MemoryLog, number: int) -> str:
    """Commit a transaction with records in both topics. Returns its id."""
    log.clock.advance(1_000)
    producer = log.producer(f"p{number}")
    producer.begin_transaction()
    for topic, count in (("orders", 1), ("payments", 2)):
        for _ in range(count):
            producer.send(topic, b"x", partition=0)
    producer.commit_transaction()
    (listed,) = [t for t in log.admin.list_transactions() if t.transactional_id == f"p{number}"]
    return str(listed.last_tx_id)


def test_I11_read_as_of_a_time_or_a_transaction_ends_at_its_cut_in_all_topics(
    log: MemoryLog,
) -> None:
    names, times = [], []
    for number in range(3):
        names.append(transaction(log, number))
        times.append(log.clock.wall_ms())
    for count, (name, time_ms) in enumerate(zip(names, times, strict=True), 1):
        wanted = {"orders-0": (0, count), "payments-0": (0, 2 * count)}
        for moment in (name, str(time_ms), str(time_ms + 999 * (count < 3))):
            assert ranges_of(log, {**BOTH, "asOf": moment}) == wanted
    later = {
        **BOTH,
        "asOf": names[1],
        "startingOffsets": '{"orders": {"0": 1}, "payments": {"0": 3}}',
    }
    assert ranges_of(log, later) == {"orders-0": (1, 2), "payments-0": (3, 4)}
    assigned = {"assign": '{"payments": [0]}', "asOf": names[0]}
    assert ranges_of(log, assigned) == {"payments-0": (0, 2)}


def test_transaction_of_one_topic_is_a_moment_in_the_others_by_its_time(log: MemoryLog) -> None:
    transaction(log, 0)
    log.clock.advance(1_000)
    alone = log.producer("alone")
    with alone.transaction():
        alone.send("orders", b"x", partition=0)
    (listed,) = [t for t in log.admin.list_transactions() if t.transactional_id == "alone"]
    transaction(log, 1)
    found = ranges_of(log, {**BOTH, "asOf": str(listed.last_tx_id)})
    assert found == {"orders-0": (0, 2), "payments-0": (0, 2)}


def test_moment_that_the_log_cannot_show_is_refused(log: MemoryLog) -> None:
    name = transaction(log, 0)
    future = str(log.clock.wall_ms() + 60_000)
    with pytest.raises(UsageError, match="is in the future"):
        ranges_of(log, {**BOTH, "asOf": future})
    with pytest.raises(UnknownTransaction, match="99-0-0 has no committed records"):
        ranges_of(log, {**BOTH, "asOf": "99-0-0"})
    early = log.clock.wall_ms()
    transaction(log, 1)
    log.connection.cluster.present_topic("orders").journal.prune(1, 1)
    with pytest.raises(OffsetOutOfRange, match="'orders' does not reach back"):
        ranges_of(log, {**BOTH, "asOf": str(early)})
    assert ranges_of(log, {**BOTH, "asOf": name})["payments-0"] == (0, 2), "no time is needed"


def test_moment_of_which_a_topic_has_nothing_left_is_refused_or_read_without_it(
    log: MemoryLog,
) -> None:
    transaction(log, 0)
    moment = {**BOTH, "asOf": str(log.clock.wall_ms())}
    transaction(log, 1)
    log.admin.delete_records({TopicPartition("orders", 0): 1})
    with pytest.raises(OffsetOutOfRange, match="orders"):
        ranges_of(log, moment)
    assert ranges_of(log, {**moment, "failOnDataLoss": "false"}) == {"payments-0": (0, 2)}
