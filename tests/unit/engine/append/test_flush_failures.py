"""A flush in which one write fails: stored records are not sent again, and the rest is written."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from txlog.engine.append.producer_batch import BatchMetadata
from txlog.errors import IllegalTransition, TxlogError, UnknownTopic

TABLE = pa.table({"value": [b"a", b"b"]})


def fails(error: TxlogError | None, found: Sequence[BatchMetadata]) -> None:
    raise ValueError("a mistake of the callback's")


def test_raising_delivery_callback_does_not_duplicate_its_table(log: MemoryLog) -> None:
    producer = log.producer()
    with pytest.raises(ValueError, match="a mistake"):
        producer.send_batch("u", TABLE, on_delivery=fails)
    producer.flush()
    assert log.values("u") == [b"a", b"b"]
    log.check()


@pytest.mark.in_log
def test_raising_delivery_callback_does_not_duplicate_records_of_transaction(
    log: MemoryLog,
) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    with pytest.raises(ValueError, match="a mistake"):
        producer.send_batch("u", TABLE, on_delivery=fails)
    producer.commit_transaction()
    assert log.values("u") == [b"a", b"b"]
    log.check()


def test_a_callback_may_send_and_flush(log: MemoryLog) -> None:
    producer = log.producer()

    def report(error: TxlogError | None, found: Sequence[BatchMetadata]) -> None:
        producer.send("t", b"%d stored" % found[0].records, partition=0)
        producer.flush()

    assert producer.send_batch("u", TABLE, on_delivery=report) == 2
    assert (log.values("u"), log.values("t")) == ([b"a", b"b"], [b"2 stored"])


def test_send_batch_raises_error_of_earlier_record_before_writing_its_table(
    log: MemoryLog,
) -> None:
    log.admin.create_topic("gone", 1)
    producer = log.producer()
    producer.send("gone", b"lost")
    log.process().cluster.delete_topics(["gone"])
    with pytest.raises(UnknownTopic, match="gone"):
        producer.send_batch("u", TABLE)
    assert log.values("u") == []
    assert producer.send_batch("u", TABLE) == 2
    assert log.values("u") == [b"a", b"b"]


@pytest.mark.parametrize("how", ["flush", "close"])
def test_deleted_topic_does_not_block_records_of_other_topics(log: MemoryLog, how: str) -> None:
    log.admin.create_topic("gone", 1)
    producer = log.producer()
    lost = producer.send("gone", b"lost")
    kept = [producer.send(topic, b"kept", partition=0) for topic in ("t", "u")]
    log.process().cluster.delete_topics(["gone"])
    with pytest.raises(UnknownTopic, match="gone"):
        getattr(producer, how)()
    assert [future.get().offset for future in kept] == [0, 0]
    with pytest.raises(UnknownTopic):
        lost.get()
    assert (log.values("t"), log.values("u")) == ([b"kept"], [b"kept"])


def test_error_of_a_lost_record_is_raised_only_once(log: MemoryLog) -> None:
    log.admin.create_topic("gone", 1)
    producer = log.producer()
    producer.send("gone", b"lost")
    log.process().cluster.delete_topics(["gone"])
    with pytest.raises(UnknownTopic):
        producer.flush()
    producer.flush()
    producer.close()
    with pytest.raises(IllegalTransition):
        producer.send("t", b"late")


@pytest.mark.both_ways
def test_transaction_that_lost_a_record_cannot_commit_and_writes_nothing_more(
    log: MemoryLog,
) -> None:
    log.admin.create_topic("gone", 1)
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send("gone", b"lost")
    producer.send("u", b"of the same")
    log.process().cluster.delete_topics(["gone"])
    with pytest.raises(UnknownTopic):
        producer.commit_transaction()
    assert log.values("u", isolation="read_uncommitted") == []
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send("u", b"of the next")
    producer.commit_transaction()
    assert log.values("u") == [b"of the next"]
    log.check()
