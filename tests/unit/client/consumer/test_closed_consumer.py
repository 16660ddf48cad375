"""A closed consumer refuses every call: positions, offsets of the log, its assignment."""

from collections.abc import Callable

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.consumer.consumer import Consumer
from txlog.errors import IllegalTransition
from txlog.model import TopicPartition

U0 = TopicPartition("u", 0)

CALLS: dict[str, Callable[[Consumer], object]] = {
    "assign": lambda consumer: consumer.assign([U0]),
    "assignment": lambda consumer: consumer.assignment(),
    "blocked_by": lambda consumer: consumer.blocked_by(),
    "beginning_offsets": lambda consumer: consumer.beginning_offsets([U0]),
    "commit": lambda consumer: consumer.commit(),
    "committed": lambda consumer: consumer.committed(U0),
    "end_offsets": lambda consumer: consumer.end_offsets([U0]),
    "group_metadata": lambda consumer: consumer.group_metadata(),
    "offsets_for_times": lambda consumer: consumer.offsets_for_times({U0: 0}),
    "pause": lambda consumer: consumer.pause(),
    "paused": lambda consumer: consumer.paused(),
    "poll": lambda consumer: consumer.poll(),
    "poll_arrow": lambda consumer: consumer.poll_arrow(),
    "position": lambda consumer: consumer.position(U0),
    "read_to_end": lambda consumer: consumer.read_to_end(),
    "resume": lambda consumer: consumer.resume(),
    "seek": lambda consumer: consumer.seek(U0, 0),
    "seek_to_beginning": lambda consumer: consumer.seek_to_beginning(),
    "seek_to_end": lambda consumer: consumer.seek_to_end(),
    "subscribe": lambda consumer: consumer.subscribe("u"),
    "subscription": lambda consumer: consumer.subscription(),
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
}


def test_loop_over_closed_consumer_is_refused(log: MemoryLog) -> None:
    with log.consumer("u") as consumer:
        records = iter(consumer)
    for begun_before_or_after in (records, iter(consumer)):
        with pytest.raises(IllegalTransition, match="is closed"):
            next(begun_before_or_after)


@pytest.mark.parametrize("method", CALLS)
def test_closed_consumer_refuses_every_method(log: MemoryLog, method: str) -> None:
    consumer = log.consumer("u", group_id="g")
    CALLS[method](consumer)
    consumer.close()
    with pytest.raises(IllegalTransition, match="is closed"):
        CALLS[method](consumer)
