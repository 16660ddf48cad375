"""Stage 6: read, process, write: the group's offsets are part of the transaction."""

import pytest

from tests.lifecycle.log_place import LogPlace
from txlog.errors import CommitFailed
from txlog.model import TopicPartition


@pytest.mark.both_ways
def test_results_and_offsets_are_committed_together(
    place: LogPlace, transaction_records: str
) -> None:
    source, results, group = place.topic("source", 2), place.topic("results"), place.name("group")
    with place.producer() as filler:
        for number in range(20):
            filler.send(source, b"%d" % number, partition=number % 2)
    producer = place.producer(place.name("processor"), transaction_records=transaction_records)
    consumer = place.consumer(source, group_id=group)
    rounds = 0
    while polled := consumer.poll(max_records=6):
        producer.begin_transaction()
        for records in polled.values():
            for record in records:
                producer.send(results, b"result " + record.value)
        offsets = {where: consumer.position(where) for where in polled}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        rounds += 1
        if rounds == 2:
            producer.abort_transaction()
            for where in polled:
                consumer.seek(where, consumer.committed(where) or 0)
        else:
            producer.commit_transaction()
    producer.close()  # The offsets of its last transaction are applied by then.
    found = sorted(place.values(results), key=lambda value: int(value.split()[1]))
    assert found == [b"result %d" % number for number in range(20)]
    assert place.admin().describe_group(group).lag == 0


def test_offsets_that_another_producer_committed_are_refused(place: LogPlace) -> None:
    source, group = place.topic("source"), place.name("group")
    place.producer().send(source, b"x").get()
    where = TopicPartition(source, 0)
    consumers = [place.consumer(source, group_id=group) for _ in range(2)]
    producers = [place.producer(place.name("processor")) for _ in range(2)]
    for consumer, producer in zip(consumers, producers, strict=True):
        assert list(consumer.poll()) == [where]
        producer.begin_transaction()
    producers[1].send_offsets_to_transaction({where: 1}, consumers[1].group_metadata())
    producers[1].commit_transaction()
    with pytest.raises(CommitFailed):
        producers[0].send_offsets_to_transaction({where: 1}, consumers[0].group_metadata())
    producers[0].abort_transaction()
