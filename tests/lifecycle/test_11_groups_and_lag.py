"""Stage 11: groups remember their positions, and their lag is a number of records."""

from tests.lifecycle.log_place import LogPlace
from txlog.model import TopicPartition


def test_group_resumes_at_its_committed_offset_and_lag_reaches_zero(place: LogPlace) -> None:
    topic, group = place.topic("events", 2), place.name("group")
    producer = place.producer(place.name("writer"), transaction_records="in.log")
    with producer.transaction():
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=number % 2)
    producer.begin_transaction()
    producer.send(topic, b"aborted", partition=0).get()
    producer.abort_transaction()
    first = place.consumer(topic, group_id=group)
    assert sum(map(len, first.poll(max_records=4).values())) == 4
    first.commit()
    assert place.admin().describe_group(group).lag == 6
    second = place.consumer(topic, group_id=group)
    assert sum(map(len, second.poll().values())) == 6
    second.poll()
    second.commit()
    described = place.admin().describe_group(group)
    assert described.lag == 0
    assert [each.current_offset for each in described.partitions] == [6, 5]
    assert group in place.admin().list_groups()


def test_group_can_be_reset_by_timestamp(place: LogPlace) -> None:
    topic, group = place.topic("events"), place.name("group")
    with place.producer() as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, timestamp_ms=1_000 * number)
    where = TopicPartition(topic, 0)
    consumer = place.consumer(topic, group_id=group)
    consumer.poll()
    consumer.commit()
    found = consumer.offsets_for_times({where: 6_500})[where]
    assert found == (7, 7_000)
    consumer.seek(where, found.offset)
    consumer.commit()
    assert place.values(topic, group_id=group) == [b"7", b"8", b"9"]
