"""Stage 7: of two instances with one transactional id the older one is fenced."""

import pytest

from tests.lifecycle.log_place import LogPlace
from txlog.engine.producer_config import TRANSACTION_RECORDS
from txlog.errors import FencedError


@pytest.mark.both_ways
@pytest.mark.parametrize("first_step", ["send", "commit"])
def test_older_instance_is_fenced_at_its_next_step(
    place: LogPlace, first_step: str, transaction_records: str
) -> None:
    topic, name = place.topic("events"), place.name("writer")
    older = place.producer(name, transaction_records=transaction_records)
    older.begin_transaction()
    older.send(topic, b"of the older").get()
    newer = place.producer(name)
    newer.begin_transaction()
    newer.send(topic, b"of the newer").get()
    if first_step == "send":
        older.send(topic, b"too late")
    with pytest.raises(FencedError):
        (older.flush if first_step == "send" else older.commit_transaction)()
    with pytest.raises(FencedError):
        older.begin_transaction()
    newer.commit_transaction()
    assert place.values(topic) == [b"of the newer"]


def test_each_new_instance_fences_all_earlier_ones(place: LogPlace) -> None:
    topic, name = place.topic("events"), place.name("writer")
    producers = []
    for number in range(4):
        records = TRANSACTION_RECORDS[number % 2]
        producers.append(place.producer(name, transaction_records=records))
        with producers[-1].transaction():
            producers[-1].send(topic, b"%d" % number)
    for producer in producers[:-1]:
        with pytest.raises(FencedError):
            producer.begin_transaction("a tag")
    assert place.values(topic) == [b"%d" % number for number in range(4)]
