"""Stage 9: the owner of a transaction is gone, and the reader that it blocks ends the
transaction."""

import pytest

from tests.lifecycle.log_place import LogPlace
from txlog.errors import TransactionAborted
from txlog.model import TransactionOutcome

WAIT_MS = 20_000


def test_blocked_reader_aborts_a_timed_out_transaction(place: LogPlace) -> None:
    topic = place.topic("events")
    vanished = place.producer(
        place.name("vanished"), transaction_timeout_ms=1, transaction_records="in.log"
    )
    tx_id = vanished.begin_transaction()
    vanished.send(topic, b"hanging").get()
    place.producer().send(topic, b"behind").get()
    consumer = place.consumer(topic)
    (found,) = consumer.poll(timeout_ms=WAIT_MS).values()
    assert [record.value for record in found] == [b"behind"]
    assert place.admin().outcome(tx_id) is TransactionOutcome.ABORTED
    vanished.send(topic, b"too late")
    with pytest.raises(TransactionAborted):
        vanished.flush()
    vanished.abort_transaction()
    with vanished.transaction():
        vanished.send(topic, b"back again")
    assert place.values(topic) == [b"behind", b"back again"]


def test_staged_records_do_not_block_readers(place: LogPlace) -> None:
    """Readers pass over staged records, and the producer may not commit after its timeout."""
    topic = place.topic("events")
    slow = place.producer(place.name("slow"), transaction_timeout_ms=1)
    slow.begin_transaction()
    slow.send(topic, b"staged")
    place.producer().send(topic, b"behind").get()
    assert place.values(topic) == [b"behind"]
    with pytest.raises(TransactionAborted, match="longer timeout"):
        slow.commit_transaction()
    slow.abort_transaction()
    assert place.values(topic) == [b"behind"]


def test_reader_waits_for_a_transaction_within_its_timeout(place: LogPlace) -> None:
    topic = place.topic("events")
    slow = place.producer(place.name("slow"), transaction_records="in.log")
    slow.begin_transaction()
    slow.send(topic, b"in time").get()
    consumer = place.consumer(topic)
    assert consumer.poll(timeout_ms=30) == {}
    slow.commit_transaction()
    assert [record.value for found in consumer.poll().values() for record in found] == [b"in time"]
