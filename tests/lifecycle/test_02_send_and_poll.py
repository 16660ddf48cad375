"""Stage 2: records are sent, stored once, and read in order."""

import pyarrow as pa

from tests.lifecycle.log_place import LogPlace
from txlog.model import TopicPartition


def test_sent_records_are_polled_in_order(place: LogPlace) -> None:
    topic = place.topic("events", 3)
    with place.producer() as producer:
        for number in range(300):
            producer.send(topic, b"%d" % number, b"key-%d" % (number % 7), [("n", b"%d" % number)])
    consumer = place.consumer(topic)
    seen: dict[TopicPartition, list[int]] = {}
    while polled := consumer.poll():
        for where, records in polled.items():
            for record in records:
                assert record.offset == len(seen.setdefault(where, []))
                assert record.headers == [("n", record.value)]
                seen[where].append(int(record.value))
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert sorted(number for numbers in seen.values() for number in numbers) == list(range(300))


def test_large_table_is_sent_and_read_as_arrow(place: LogPlace) -> None:
    topic = place.topic("tables", 2)
    table = pa.table(
        {
            "key": [b"%d" % number for number in range(50_000)],
            "value": [b"x" * 100] * 50_000,
        }
    )
    assert place.producer().send_batch(topic, table) == 50_000
    consumer = place.consumer(topic)
    keys: list[bytes] = []
    while (found := consumer.poll_arrow()) is not None:
        keys += found["key"].to_pylist()
    assert sorted(keys) == sorted(table["key"].to_pylist())
