"""The body of a loop over a consumer pauses or unassigns partitions."""

from tests.logs.memory_log import MemoryLog
from txlog.model import TopicPartition

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)


def fill(log: MemoryLog) -> None:
    producer = log.elsewhere()
    for where in (T0, U0):
        for number in range(3):
            producer.send(where.topic, b"%d" % number, partition=where.partition)
    producer.flush()


def test_records_of_a_partition_paused_in_loop_are_returned_after_resume(log: MemoryLog) -> None:
    fill(log)
    consumer = log.consumer()
    consumer.assign([T0, U0])
    found = []
    for record in consumer:
        where = TopicPartition(record.topic, record.partition)
        found.append((where, record.offset))
        consumer.pause(where)
        if len(consumer.paused()) == 2:
            break
    assert sorted(found) == [(T0, 0), (U0, 0)]
    consumer.resume(T0, U0)
    again = consumer.poll()
    assert {where: [r.offset for r in records] for where, records in again.items()} == {
        T0: [1, 2],
        U0: [1, 2],
    }


def test_partition_unassigned_in_loop_is_not_returned(log: MemoryLog) -> None:
    fill(log)
    consumer = log.consumer()
    consumer.assign([T0])
    found = []
    for record in consumer:
        found.append((record.topic, record.offset))
        consumer.assign([U0])
        if len(found) == 4:
            break
    assert found == [("t", 0), ("u", 0), ("u", 1), ("u", 2)]
