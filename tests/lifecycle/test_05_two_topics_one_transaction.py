"""Stage 5: several topics and partitions change in one transaction, or none does."""

import pytest

from tests.lifecycle.log_place import LogPlace


@pytest.mark.both_ways
@pytest.mark.parametrize("ending", ["commit_transaction", "abort_transaction"])
def test_transaction_over_two_topics_is_all_or_nothing(
    place: LogPlace, ending: str, transaction_records: str
) -> None:
    orders, stock = place.topic("orders", 2), place.topic("stock")
    producer = place.producer(place.name("shop"), transaction_records=transaction_records)
    producer.begin_transaction()
    for number in range(6):
        producer.send(orders, b"order %d" % number, partition=number % 2)
        producer.send(stock, b"taken %d" % number)
    producer.flush()
    assert place.values(orders, stock) == []
    getattr(producer, ending)()
    expected = 12 if ending == "commit_transaction" else 0
    assert len(place.values(orders, stock)) == expected
