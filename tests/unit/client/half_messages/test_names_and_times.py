"""Names of half transactions, tags, and times before the first check: none is ignored silently."""

from typing import Any

import numpy as np
import pytest

from tests.logs.memory_log import MemoryLog
from tests.unit.client.half_messages.undecided_listener import Undecided
from txlog.client.half_messages.half_message import CHECK_MAX, Message
from txlog.client.half_messages.transaction_mq_producer import TransactionMQProducer
from txlog.errors import InvalidConfig, InvalidName
from txlog.model import OFFSET_MAX


def started(log: MemoryLog, **options: Any) -> TransactionMQProducer:
    producer = TransactionMQProducer("g", log.process(), listener=Undecided(), **options)
    producer.start(check_in_background=False)
    return producer


@pytest.mark.parametrize("name", ["", 0, b""])
def test_empty_transaction_id_is_refused_and_nothing_is_stored(log: MemoryLog, name: Any) -> None:
    """With a random name instead, a repeat of the call would send the message twice."""
    producer = started(log)
    before = log.objects()
    for call in (producer.send_half, producer.send_message_in_transaction):
        with pytest.raises(InvalidName, match="a transaction's tag must be a string"):
            call(Message("u", b"x"), transaction_id=name)
    assert log.changed_since(before) == []


@pytest.mark.both_ways
@pytest.mark.parametrize("tag", [0, False, b"", None])
def test_tag_that_is_no_text_is_refused_also_if_it_is_false(log: MemoryLog, tag: Any) -> None:
    producer = log.producer("a")
    with pytest.raises(InvalidName, match="a transaction's tag must be a string"):
        producer.begin_transaction(tag)
    producer.begin_transaction()
    producer.abort_transaction()


@pytest.mark.parametrize("value", [OFFSET_MAX + 1, (1 << 63) - 1])
def test_time_that_a_journal_cannot_store_is_refused_by_name(log: MemoryLog, value: int) -> None:
    producer = started(log)
    before = log.objects()
    with pytest.raises(InvalidConfig, match=f"check_immunity_ms .* 0 and {OFFSET_MAX}"):
        producer.send_half(Message("u", b"x"), check_immunity_ms=value)
    for name in ("transaction_timeout_ms", "transaction_check_interval_ms"):
        with pytest.raises(InvalidConfig, match=f"{name.replace('_', '.')}.* and {OFFSET_MAX}"):
            started(log, **{name: value})
    assert log.changed_since(before) == []


def test_number_of_checks_has_bounds(log: MemoryLog) -> None:
    for refused in (0, CHECK_MAX + 1):
        with pytest.raises(InvalidConfig, match=rf"transaction\.check\.max.* 1 and {CHECK_MAX}"):
            started(log, transaction_check_max=refused)
    for accepted in (1, CHECK_MAX):
        started(log, transaction_check_max=accepted).shutdown()


def test_longest_times_are_stored(log: MemoryLog) -> None:
    producer = started(log, transaction_check_interval_ms=OFFSET_MAX)
    producer.send_half(Message("u", b"x"), check_immunity_ms=OFFSET_MAX)
    log.clock.now_ms += 10**12
    assert producer.check() == 0


def test_time_before_first_check_may_be_a_number_of_numpy(log: MemoryLog) -> None:
    producer = started(log)
    producer.send_half(Message("u", b"x"), check_immunity_ms=np.int64(5))  # type: ignore[arg-type]
    log.clock.now_ms += 5
    assert producer.check() == 1
