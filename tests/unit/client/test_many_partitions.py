"""Calls over many partitions, topics or producers take time in proportion to their number."""

from collections.abc import Callable

import pytest

from tests.logs.memory_log import MemoryLog
from tests.logs.steps import steps_of
from txlog.client.admin import Admin, NewTopic
from txlog.client.admin.offset_reset import ToEarliest
from txlog.client.consumer.consumer import Consumer
from txlog.errors import UnknownTopic
from txlog.model import TopicPartition
from txlog.topic.events import SealIndex

FEW, MANY = 30, 120
LINEAR = 1.3 * MANY / FEW
"""Quadratic work would take 16 times as many steps, and the parts in proportion 4 times."""


def partitions(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


def many_topics(log: MemoryLog, count: int) -> list[str]:
    """New topics that hold one record each."""
    names = [f"n{count}-{number}" for number in range(count)]
    log.admin.create_topics([NewTopic(name) for name in names])
    producer = log.producer()
    for name in names:
        producer.send(name, b"x")
    producer.flush()
    return names


def growth(steps: Callable[[int], int]) -> float:
    """Steps for many divided by steps for few."""
    few = steps(FEW)
    return steps(MANY) / few


def test_empty_poll_takes_steps_in_proportion_to_topics(log: MemoryLog) -> None:
    def steps(count: int) -> int:
        consumer = Consumer(*many_topics(log, count), root=log.process())
        consumer.poll()
        return steps_of(consumer.poll)

    assert growth(steps) < LINEAR


def test_describing_a_group_takes_steps_in_proportion_to_topics(log: MemoryLog) -> None:
    def steps(count: int) -> int:
        names = many_topics(log, count)
        log.consumer(group_id="g").commit({TopicPartition(name, 0): 1 for name in names})
        admin = log.process_admin()
        admin.describe_group("g")
        found = steps_of(lambda: admin.describe_group("g"))
        log.admin.delete_group("g")
        return found

    assert growth(steps) < LINEAR


@pytest.mark.segments
@pytest.mark.parametrize("is_sealed", [False, True])
def test_batches_of_a_partition_are_found_without_a_look_at_the_others(
    log: MemoryLog, is_sealed: bool
) -> None:
    def steps(count: int) -> int:
        name = f"w{count}"
        log.admin.create_topic(name, count)
        producer = log.producer()
        for number in range(count):
            producer.send(name, b"x", partition=number)
        producer.flush()
        topic = log.connection.cluster.present_topic(name)
        if is_sealed:
            topic.execute(SealIndex())
        state = topic.state
        assert len(list(topic.batches(state, 0, 0, 1))) == 1
        return steps_of(lambda: list(topic.batches(state, 1, 0, 1)))

    assert growth(steps) == 1


def test_last_stable_offset_is_found_without_a_look_at_all_producers(log: MemoryLog) -> None:
    log.admin.create_topic("w", 2)

    def steps(count: int) -> int:
        for _ in range(count):
            log.producer().send("w", b"x", partition=0).get()
        state = log.connection.cluster.present_topic("w").state
        assert state.last_stable_offset(1) == 0
        return steps_of(lambda: state.last_stable_offset(0))

    assert growth(steps) == 1


OFFSETS: dict[str, Callable[[MemoryLog, list[TopicPartition]], Callable[[], object]]] = {
    "beginning_offsets": lambda log, asked: lambda: reader(log).beginning_offsets(asked),
    "end_offsets": lambda log, asked: lambda: reader(log).end_offsets(asked),
    "offsets_for_times": lambda log, asked: (
        lambda: reader(log).offsets_for_times(dict.fromkeys(asked, 0))
    ),
    "seek_to_end": lambda log, asked: reader(log).seek_to_end,
    "read_to_end": lambda log, asked: reader(log).read_to_end,
    "plan_group_reset": lambda log, asked: (
        lambda: Admin(log.connection).plan_group_reset("g", ToEarliest(), asked)
    ),
}


def reader(log: MemoryLog) -> Consumer:
    return Consumer("w", root=log.connection, group_id="g", enable_auto_commit=False)


@pytest.mark.parametrize("name", OFFSETS)
def test_offsets_of_many_partitions_take_one_read_of_their_topic(log: MemoryLog, name: str) -> None:
    """In a bucket each read takes a round trip."""

    log.admin.create_topic("w", MANY)
    rule = log.store.on("get", "", lambda call: call(), times=1 << 30)
    OFFSETS[name](log, partitions("w", MANY))()
    assert rule.met < MANY


def test_error_for_unknown_topic_compares_few_of_many_names(log: MemoryLog) -> None:
    log.admin.create_topics([NewTopic(f"orders-{number}") for number in range(300)])

    def refused() -> None:
        with pytest.raises(UnknownTopic, match="did you mean 'orders-"):
            log.connection.cluster.present_topic("ordrs-15")

    few = steps_of(refused)
    log.admin.create_topics([NewTopic(f"prices-{number}") for number in range(300)])
    assert steps_of(refused) < 1.1 * few
