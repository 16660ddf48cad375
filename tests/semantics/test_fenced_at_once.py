"""Two producers with one transactional id: the first is fenced at its next call, whichever it
is."""

from collections.abc import Callable

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.producer.producer import Producer
from txlog.errors import FencedError, ProducerFenced
from txlog.model import TopicPartition

Step = Callable[[Producer], object]

U0 = TopicPartition("u", 0)


def commit_a_record(producer: Producer) -> None:
    producer.send("t", b"old")
    producer.commit_transaction()


IN_TRANSACTION: dict[str, Step] = {
    "flush": lambda p: (p.send("t", b"old"), p.flush()),
    "send_offsets_to_transaction": lambda p: p.send_offsets_to_transaction({U0: 0}, "g"),
    "commit_transaction": commit_a_record,
    "commit_transaction of nothing": lambda p: p.commit_transaction(),
}


@pytest.mark.in_log
def test_begin_transaction_of_a_fenced_producer_raises(log: MemoryLog) -> None:
    first = log.producer("a")
    log.elsewhere("a")
    with pytest.raises(ProducerFenced):
        first.begin_transaction()
    with pytest.raises(ProducerFenced):
        first.begin_transaction()


@pytest.mark.parametrize("step", IN_TRANSACTION.values(), ids=IN_TRANSACTION)
def test_next_call_of_a_producer_fenced_within_a_transaction_raises(
    log: MemoryLog, step: Step
) -> None:
    first = log.producer("a")
    first.begin_transaction()
    log.elsewhere("a")
    with pytest.raises(FencedError):
        step(first)
    assert log.values("t") == []
    log.check()


@pytest.mark.parametrize("step", IN_TRANSACTION.values(), ids=IN_TRANSACTION)
def test_next_call_of_a_producer_fenced_after_a_flush_raises(log: MemoryLog, step: Step) -> None:
    first = log.producer("a")
    first.begin_transaction()
    first.send("t", b"old")
    first.flush()
    second = log.elsewhere("a")
    with pytest.raises(FencedError):
        step(first)
    with second.transaction():
        second.send("t", b"new")
    assert log.values("t") == [b"new"]
    log.check()


SUCCESSORS: dict[str, Step] = {
    "has them pending": lambda p: p.send_offsets_to_transaction({U0: 0}, "g"),
    "has committed them": lambda p: (
        p.send_offsets_to_transaction({U0: 0}, "g"),
        p.commit_transaction(),
    ),
}


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("successor", SUCCESSORS.values(), ids=SUCCESSORS)
def test_offsets_of_a_fenced_producer_raise_fenced_whatever_its_successor_did_with_them(
    log: MemoryLog, successor: Step, flushed: bool
) -> None:
    log.consumer(group_id="g").commit({U0: 0})
    consumer = log.consumer("u", group_id="g")
    first = log.producer("a")
    first.begin_transaction()
    if flushed:
        first.send("t", b"old")
        first.flush()
    second = log.elsewhere("a")
    second.begin_transaction()
    successor(second)
    for group in ("g", consumer.group_metadata()):
        with pytest.raises(FencedError):
            first.send_offsets_to_transaction({U0: 0}, group)
    log.check()
