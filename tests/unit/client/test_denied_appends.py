"""A store that denies a write that may be stored already, as with expired credentials.

The sequence of a stored record is never given to another record (I7, R9).
"""

from collections.abc import Callable
from typing import TypeAlias

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import Call, Effect, answer_lost, failing, full, unavailable
from txlog.errors import OutcomeUnknown, StoreDenied, StoreUnavailable

ENTRY = "topics/t/.*/entries"
DENIED = failing(StoreDenied("403 ExpiredToken; renew the credentials."))

Outage: TypeAlias = Callable[[MemoryLog], None]


def denied_at_the_repeat(log: MemoryLog) -> None:
    """The store carries out the append, loses its answer, and denies the repeat."""
    log.store.on("create", ENTRY, DENIED)
    log.store.on("create", ENTRY, answer_lost)


def denied_behind_the_entry(log: MemoryLog) -> None:
    """The entry is stored, but no request, first or repeated, may read whether its slot counts."""

    def create(call: Call) -> object:
        log.store.on("get", "topics/t/.*/boundar", DENIED, times=100)
        return call()

    log.store.on("create", ENTRY, create)


@pytest.mark.parametrize("outage", [denied_at_the_repeat, denied_behind_the_entry])
def test_I7_record_in_doubt_keeps_its_sequence_after_denial(log: MemoryLog, outage: Outage) -> None:
    producer = log.producer()
    producer.send("t", b"before", partition=0)
    producer.flush()
    outage(log)
    first = producer.send("t", b"first", partition=0)
    with pytest.raises(OutcomeUnknown, match="403 ExpiredToken"):
        producer.flush()
    log.store.heal()
    assert not first.is_done
    second = producer.send("t", b"second", partition=0)
    producer.flush()
    assert (first.get().offset, second.get().offset) == (1, 2)
    assert log.values("t") == [b"before", b"first", b"second"]
    log.check()


def test_record_denied_before_storage_fails_and_is_not_stored(log: MemoryLog) -> None:
    producer = log.producer()
    log.store.on("create", ENTRY, DENIED)
    first = producer.send("t", b"first", partition=0)
    with pytest.raises(StoreDenied):
        producer.flush()
    with pytest.raises(StoreDenied):
        first.get()
    assert producer.send("t", b"second", partition=0).get().offset == 0
    assert log.values("t") == [b"second"]
    log.check()


@pytest.mark.parametrize("earlier", [full, unavailable])
def test_record_denied_after_writes_that_stored_nothing_is_not_in_doubt(
    log: MemoryLog, earlier: Effect
) -> None:
    producer = log.producer()
    first = producer.send("t", b"first", partition=0)
    log.store.on("create", ENTRY, earlier, times=100)
    with pytest.raises(StoreUnavailable):
        producer.flush()
    log.store.on("create", ENTRY, DENIED)
    with pytest.raises(StoreDenied, match="403 ExpiredToken"):
        producer.flush()
    log.store.heal()
    with pytest.raises(StoreDenied):
        first.get()
    assert producer.send("t", b"second", partition=0).get().offset == 0
    assert log.values("t") == [b"second"]
    log.check()


@pytest.mark.both_ways
@pytest.mark.parametrize("outage", [denied_at_the_repeat, denied_behind_the_entry])
def test_R9_commit_is_refused_while_denied_append_is_in_doubt(
    log: MemoryLog, outage: Outage
) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    outage(log)
    producer.send("t", b"first", partition=0)
    with pytest.raises(OutcomeUnknown):
        producer.commit_transaction()
    log.store.heal()
    producer.commit_transaction()
    assert log.values("t") == [b"first"]
    log.check()
