"""Stage 3: a transaction commits, and its records show together."""

import pytest

from tests.lifecycle.log_place import LogPlace
from txlog.engine.producer_config import IN_LOG
from txlog.model import TransactionOutcome


@pytest.mark.both_ways
def test_records_of_a_transaction_become_visible_at_commit(
    place: LogPlace, transaction_records: str
) -> None:
    topic = place.topic("payments", 2)
    producer = place.producer(place.name("payer"), transaction_records=transaction_records)
    consumer = place.consumer(topic)
    tx_id = producer.begin_transaction()
    for number in range(10):
        producer.send(topic, b"%d" % number, partition=number % 2)
    producer.flush()
    assert consumer.poll() == {}
    in_the_topic = place.values(topic, isolation_level="read_uncommitted")
    assert len(in_the_topic) == (10 if transaction_records == IN_LOG else 0)
    assert place.admin().outcome(tx_id) is TransactionOutcome.OPEN
    producer.commit_transaction()
    assert place.admin().outcome(tx_id) is TransactionOutcome.COMMITTED
    assert sum(map(len, consumer.poll().values())) == 10


def test_consecutive_transactions_are_read_in_order(place: LogPlace) -> None:
    topic = place.topic("payments")
    producer = place.producer(place.name("payer"))
    for number in range(20):
        with producer.transaction():
            producer.send(topic, b"%d" % number)
    assert place.values(topic) == [b"%d" % number for number in range(20)]
