"""A tag is a user's idempotency key: only one transaction commits with it, however often it is
retried."""

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import unavailable
from txlog.errors import DuplicateTransaction, InvalidName, StoreUnavailable
from txlog.model import TransactionOutcome

ORDER = "order 17"


def test_begin_with_a_committed_tag_raises_duplicate_transaction(log: MemoryLog) -> None:
    producer = log.producer("shop")
    with producer.transaction(tag=ORDER) as tx_id:
        producer.send("t", b"x")
    with pytest.raises(DuplicateTransaction) as refused:
        producer.begin_transaction(tag=ORDER)
    assert refused.value.facts["committed"] == str(tx_id)
    with producer.transaction(tag="order 18"):
        producer.send("t", b"y")
    assert sorted(log.values("t")) == [b"x", b"y"]


def test_empty_text_is_no_tag(log: MemoryLog) -> None:
    """It is not the tag of every transaction that has none."""
    with log.producer("shop").transaction():
        pass
    with pytest.raises(InvalidName, match="tag must be a string"):
        log.admin.outcome("")


def test_committed_tag_is_refused_after_a_crash_of_its_producer(log: MemoryLog) -> None:
    first = log.producer("shop")
    with first.transaction(tag=ORDER):
        first.send("t", b"x")
    second = log.elsewhere("shop")
    with pytest.raises(DuplicateTransaction):
        second.begin_transaction(tag=ORDER)
    assert log.admin.outcome(ORDER) is TransactionOutcome.COMMITTED


def test_tag_is_committed_from_the_decision_before_any_marker_is_written(log: MemoryLog) -> None:
    """A producer dies in the middle of the commit, and another one retries the tag."""
    dead = log.producer("a", transaction_group="shop")
    dead.begin_transaction(tag=ORDER)
    dead.send("t", b"x")
    log.store.on("create", "topics/t", unavailable, holding="marker_written", times=100)
    with pytest.raises(StoreUnavailable):
        dead.commit_transaction()
    heir = log.elsewhere("b", transaction_group="shop")
    assert log.admin.outcome(ORDER) is TransactionOutcome.COMMITTED
    with pytest.raises(DuplicateTransaction):
        heir.begin_transaction(tag=ORDER)


@pytest.mark.in_log
def test_a_tag_whose_transaction_was_aborted_may_be_used_again(log: MemoryLog) -> None:
    producer = log.producer("shop")
    producer.begin_transaction(tag=ORDER)
    producer.send("t", b"lost")
    producer.flush()
    assert log.admin.outcome(ORDER) is TransactionOutcome.OPEN
    producer.abort_transaction()
    assert log.admin.outcome(ORDER) is TransactionOutcome.ABORTED
    with producer.transaction(tag=ORDER):
        producer.send("t", b"x")
    assert log.admin.outcome(ORDER) is TransactionOutcome.COMMITTED
    assert log.values("t") == [b"x"]


def test_only_one_of_two_producers_with_the_same_tag_commits(log: MemoryLog) -> None:
    one = log.producer("a", transaction_group="shop")
    other = log.elsewhere("b", transaction_group="shop")
    for producer, value in ((one, b"one"), (other, b"other")):
        producer.begin_transaction(tag=ORDER)
        producer.send("t", value)
        producer.flush()
    one.commit_transaction()
    with pytest.raises(DuplicateTransaction):
        other.commit_transaction()
    other.abort_transaction()
    assert log.values("t") == [b"one"]
    log.check()


def test_empty_transaction_with_a_tag_records_its_outcome(log: MemoryLog) -> None:
    producer = log.producer("shop")
    with producer.transaction(tag=ORDER):
        pass
    assert log.admin.outcome(ORDER) is TransactionOutcome.COMMITTED


def test_tags_are_still_refused_after_hundreds_of_transactions(log: MemoryLog) -> None:
    producer = log.producer("shop")
    for number in range(300):
        with producer.transaction(tag=f"order {number}"):
            pass
    late = log.elsewhere("shop")
    for number in (0, 150, 299):
        with pytest.raises(DuplicateTransaction):
            late.begin_transaction(tag=f"order {number}")


@pytest.mark.parametrize("tag", ["x" * 513, "line\nbreak"])
def test_tag_that_is_too_long_or_has_a_line_break_is_refused(log: MemoryLog, tag: str) -> None:
    producer = log.producer("shop")
    with pytest.raises(InvalidName, match="tag"):
        producer.begin_transaction(tag=tag)
    producer.begin_transaction()
