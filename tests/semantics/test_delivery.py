"""Delivery semantics: at most once, at least once, exactly once (docs/guarantees.md, 0.1)."""

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import Effect, answer_lost, never_lands
from txlog.errors import OutcomeUnknown

ENTRY = "topics/t/.*/entries"
AT_LEAST_ONCE = {"enable_idempotence": False}
AT_MOST_ONCE = {"enable_idempotence": False, "retries": 0}


def test_at_least_once_duplicates_a_record_whose_answer_is_lost(log: MemoryLog) -> None:
    producer = log.producer(**AT_LEAST_ONCE)
    producer.send("t", b"x", partition=0)
    log.store.on("create", ENTRY, answer_lost)
    producer.flush()
    assert log.values("t") == [b"x", b"x"]
    log.check()


def test_at_least_once_retries_a_write_that_did_not_land(log: MemoryLog) -> None:
    producer = log.producer(**AT_LEAST_ONCE)
    producer.send("t", b"x", partition=0)
    log.store.on("create", ENTRY, never_lands)
    producer.flush()
    assert log.values("t") == [b"x"]


@pytest.mark.parametrize(("effect", "stored"), [(answer_lost, [b"x"]), (never_lands, [])])
def test_at_most_once_never_stores_a_record_twice(
    log: MemoryLog, effect: Effect, stored: list[bytes]
) -> None:
    producer = log.producer(**AT_MOST_ONCE)
    future = producer.send("t", b"x", partition=0)
    log.store.on("create", ENTRY, effect)
    with pytest.raises(OutcomeUnknown):
        producer.flush()
    with pytest.raises(OutcomeUnknown):
        future.get()
    producer.flush()
    producer.close()
    assert log.values("t") == stored


def test_exactly_once_retry_is_deduplicated_by_the_log(log: MemoryLog) -> None:
    producer = log.producer()
    producer.send("t", b"x", partition=0)
    lost = log.store.on("create", ENTRY, answer_lost)
    producer.flush()
    assert lost.met == 1
    assert log.values("t") == [b"x"]


def test_committed_means_durable_and_acknowledged(log: MemoryLog) -> None:
    producer = log.producer()
    future = producer.send("t", b"x", partition=0)
    assert not future.is_done
    log.store.on("create", ENTRY, answer_lost)
    log.store.on("create", ENTRY, never_lands, times=100)
    with pytest.raises(OutcomeUnknown):
        producer.flush()
    assert not future.is_done
    log.store.heal()
    producer.flush()
    assert future.is_done
    assert log.values("t") == [b"x"]


@pytest.mark.parametrize("idempotent", [True, False])
def test_flush_stops_retrying_after_the_delivery_timeout(log: MemoryLog, idempotent: bool) -> None:
    producer = log.producer(enable_idempotence=idempotent, delivery_timeout_ms=1)
    producer.send("t", b"x", partition=0)
    lost = log.store.on("create", ENTRY, never_lands, times=100)
    with pytest.raises(OutcomeUnknown):
        producer.flush()
    assert lost.met == 2
