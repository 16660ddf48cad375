"""A consumer that two threads use at once."""

import threading
from collections.abc import Callable

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.consumer.consumer import Consumer
from txlog.errors import IllegalTransition
from txlog.model import TopicPartition

U0 = TopicPartition("u", 0)

CALLS: dict[str, Callable[[Consumer], object]] = {
    "assign": lambda consumer: consumer.assign([U0]),
    "commit": lambda consumer: consumer.commit(),
    "next(iterator)": lambda consumer: next(iter(consumer)),
    "poll": lambda consumer: consumer.poll(),
    "poll_arrow": lambda consumer: consumer.poll_arrow(),
    "position": lambda consumer: consumer.position(U0),
    "read_to_end": lambda consumer: consumer.read_to_end(),
    "seek": lambda consumer: consumer.seek(U0, 0),
    "seek_to_beginning": lambda consumer: consumer.seek_to_beginning(),
    "seek_to_end": lambda consumer: consumer.seek_to_end(),
    "subscribe": lambda consumer: consumer.subscribe("t"),
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
}


@pytest.mark.segments
def test_call_during_call_of_another_thread_is_refused_and_changes_nothing(log: MemoryLog) -> None:
    producer = log.elsewhere()
    for number in range(5):
        producer.send("u", b"%d" % number)
    producer.flush()
    consumer = Consumer(
        "u",
        root=log.connection,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    is_reading, may_go_on = threading.Event(), threading.Event()

    def held(call: Callable[[], object]) -> object:
        is_reading.set()
        assert may_go_on.wait(60)
        return call()

    log.store.on("get_ranges", "", held)
    found: list[int] = []

    def poll() -> None:
        found.extend(record.offset for records in consumer.poll().values() for record in records)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        assert is_reading.wait(60)
        for name, call in CALLS.items():
            with pytest.raises(IllegalTransition, match="another thread is using this consumer"):
                call(consumer)
            assert consumer.assignment() == {U0}, name
    finally:
        may_go_on.set()
        thread.join()
    assert found == [0, 1, 2, 3, 4]
    assert consumer.position(U0) == 5


def test_threads_may_use_a_consumer_one_after_the_other(log: MemoryLog) -> None:
    log.elsewhere().send("u", b"x").get()
    consumer = log.consumer("u")
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(len(consumer.poll()))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
        thread.join()
    assert found == [1, 0]
