"""Stage 4: a transaction aborts, and no read_committed reader sees it."""

import pytest

from tests.lifecycle.log_place import LogPlace
from txlog.client.producer.producer import Producer
from txlog.model import TopicPartition, TransactionOutcome


def test_aborted_records_are_visible_only_at_read_uncommitted(place: LogPlace) -> None:
    """The records are in the log, and keep their offsets."""
    topic = place.topic("payments")
    producer = place.producer(place.name("payer"), transaction_records="in.log")
    with pytest.raises(RuntimeError, match="out of money"):
        _fail_on_the_way(producer, topic)
    with producer.transaction():
        producer.send(topic, b"committed")
    consumer = place.consumer(topic)
    (found,) = consumer.poll().values()
    assert [(record.offset, record.value) for record in found] == [(1, b"committed")]
    assert consumer.position(TopicPartition(topic, 0)) == 2
    assert place.values(topic, isolation_level="read_uncommitted") == [b"aborted", b"committed"]


def _fail_on_the_way(producer: Producer, topic: str) -> None:
    with producer.transaction():
        producer.send(topic, b"aborted").get()
        raise RuntimeError("out of money")


def test_aborted_staged_records_leave_nothing_in_the_topic(place: LogPlace) -> None:
    topic = place.topic("payments")
    producer = place.producer(place.name("payer"))
    with pytest.raises(RuntimeError, match="out of money"):
        _fail_on_the_way(producer, topic)
    with producer.transaction():
        producer.send(topic, b"committed")
    (found,) = place.consumer(topic).poll().values()
    assert [(record.offset, record.value) for record in found] == [(0, b"committed")]
    assert place.values(topic, isolation_level="read_uncommitted") == [b"committed"]


def test_abort_discards_records_that_were_never_flushed(place: LogPlace) -> None:
    topic = place.topic("payments")
    producer = place.producer(place.name("payer"))
    tx_id = producer.begin_transaction()
    producer.send(topic, b"only in the buffer")
    producer.abort_transaction()
    assert place.values(topic, isolation_level="read_uncommitted") == []
    assert place.admin().outcome(tx_id) is TransactionOutcome.OPEN, "nothing of it is written"
    place.producer(producer.config.transactional_id)
    assert place.admin().outcome(tx_id) is TransactionOutcome.ABORTED, "another instance has begun"
