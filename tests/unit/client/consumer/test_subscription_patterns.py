"""Subscriptions by pattern: which topics match, and what happens when topics come and go."""

from typing import Any

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import unavailable
from txlog.client.consumer.assignment import subscription_to
from txlog.client.consumer.consumer import Consumer
from txlog.errors import (
    IllegalTransition,
    NoOffsetForPartition,
    StoreUnavailable,
    UnknownTopic,
    UsageError,
)
from txlog.model import TopicPartition

MAX_AGE_MS = 300_000


@pytest.fixture
def orders(log: MemoryLog) -> MemoryLog:
    """A log with three more topics of a record each; the names of two begin with `orders`."""
    for name in ("orders-a", "orders-b", "old-orders-a"):
        log.admin.create_topic(name)
        put(log, name, "first")
    return log


def put(log: MemoryLog, topic: str, text: str) -> None:
    log.producer().send(topic, f"{topic} {text}".encode()).get()


def matched(log: MemoryLog, pattern: str, **options: Any) -> Consumer:
    consumer = log.consumer(**options)
    consumer.subscribe(pattern=pattern)
    return consumer


def values(consumer: Consumer) -> list[str]:
    polled = consumer.poll(max_records=100)
    return sorted(record.value.decode() for found in polled.values() for record in found)


def test_pattern_matches_whole_topic_names(orders: MemoryLog) -> None:
    consumer = matched(orders, "orders-.*")
    assert consumer.subscription() == {"orders-a", "orders-b"}
    assert values(consumer) == ["orders-a first", "orders-b first"]
    assert matched(orders, "orders").subscription() == set()
    assert matched(orders, "orders-a|u").assignment() == {
        TopicPartition("orders-a", 0),
        TopicPartition("u", 0),
    }


def test_internal_topics_match_no_pattern() -> None:
    names = ["__consumer_offsets", "a", "_b"]
    assert subscription_to((), ".*").matching(names).topics == ("_b", "a")


@pytest.mark.parametrize("pattern", ["orders-(", "*", "a{2,1}", b"orders", 7])
def test_invalid_pattern_is_refused_and_subscription_is_kept(
    orders: MemoryLog, pattern: Any
) -> None:
    consumer = matched(orders, "orders-a")
    with pytest.raises(UsageError, match="is not a regular expression .* 'orders-"):
        consumer.subscribe(pattern=pattern)
    assert consumer.subscription() == {"orders-a"}


def test_subscribe_refuses_topics_together_with_pattern(orders: MemoryLog) -> None:
    with pytest.raises(UsageError, match="topics or a pattern, not both"):
        orders.consumer().subscribe(["t"], pattern="orders-.*")


def test_new_matching_topic_is_read_from_start_after_metadata_max_age(
    orders: MemoryLog,
) -> None:
    consumer = matched(orders, "orders-.*", auto_offset_reset="latest")
    assert values(consumer) == []
    orders.admin.create_topic("orders-c", 2)
    put(orders, "orders-c", "new")
    orders.clock.advance(MAX_AGE_MS - 1)
    assert values(consumer) == []
    orders.clock.advance(1)
    assert values(consumer) == ["orders-c new"]
    assert consumer.subscription() == {"orders-a", "orders-b", "orders-c"}


def test_zero_metadata_max_age_finds_new_topic_at_next_poll(orders: MemoryLog) -> None:
    consumer = matched(orders, "late-.*", metadata_max_age_ms=0)
    assert values(consumer) == []
    orders.admin.create_topic("late-a")
    put(orders, "late-a", "x")
    assert values(consumer) == ["late-a x"]


def test_poll_without_matching_topic_is_empty_but_without_subscription_raises(
    orders: MemoryLog,
) -> None:
    consumer = matched(orders, "nope")
    assert consumer.poll(timeout_ms=50) == {}
    assert consumer.poll_arrow() is None
    consumer.unsubscribe()
    with pytest.raises(IllegalTransition):
        consumer.poll()


def test_deleted_topic_leaves_pattern_subscription_and_others_are_read(orders: MemoryLog) -> None:
    consumer = matched(orders, "orders-.*")
    consumer.pause(TopicPartition("orders-a", 0))
    assert values(consumer) == ["orders-b first"]
    orders.admin.delete_topics(["orders-a"])
    put(orders, "orders-b", "second")
    assert values(consumer) == ["orders-b second"]
    assert values(consumer) == []
    assert (consumer.subscription(), consumer.paused()) == ({"orders-b"}, set())


def test_deletion_of_topic_subscribed_by_name_raises(orders: MemoryLog) -> None:
    consumer = orders.consumer("orders-a", "orders-b")
    values(consumer)
    orders.admin.delete_topics(["orders-a"])
    with pytest.raises(UnknownTopic):
        consumer.poll()


def test_recreated_topic_is_read_from_its_start(orders: MemoryLog) -> None:
    consumer = matched(orders, "orders-a")
    assert values(consumer) == ["orders-a first"]
    orders.admin.delete_topics(["orders-a"])
    orders.admin.create_topic("orders-a")
    put(orders, "orders-a", "again")
    assert values(consumer) == ["orders-a again"]


def test_added_partitions_of_matching_topic_are_read(orders: MemoryLog) -> None:
    consumer = matched(orders, "orders-a")
    values(consumer)
    orders.admin.create_partitions("orders-a", 2)
    orders.producer().send("orders-a", b"there", partition=1).get()
    assert values(consumer) == ["there"]


def test_group_commits_remaining_topics_after_topic_deletion(orders: MemoryLog) -> None:
    consumer = matched(orders, "orders-.*", group_id="g")
    values(consumer)
    orders.admin.delete_topics(["orders-a"])
    consumer.commit()
    assert consumer.committed(TopicPartition("orders-b", 0)) == 1
    assert matched(orders, "orders-.*", group_id="g").poll() == {}


def test_topic_found_later_is_read_from_committed_offset(orders: MemoryLog) -> None:
    consumer = matched(orders, "orders-c", group_id="g", auto_offset_reset="none")
    orders.admin.create_topic("orders-c")
    put(orders, "orders-c", "1")
    put(orders, "orders-c", "2")
    other = orders.consumer(group_id="g")
    other.assign([TopicPartition("orders-c", 0)])
    other.commit({TopicPartition("orders-c", 0): 1})
    orders.clock.advance(MAX_AGE_MS)
    assert values(consumer) == ["orders-c 2"]


def test_reset_none_raises_for_matching_topics_without_committed_offset(orders: MemoryLog) -> None:
    consumer = matched(orders, "orders-.*", group_id="g", auto_offset_reset="none")
    with pytest.raises(NoOffsetForPartition):
        consumer.poll()


def test_idle_poll_reads_topic_list_only_after_metadata_max_age(orders: MemoryLog) -> None:
    connection = orders.process(orders.store)
    consumer = Consumer(root=connection)
    consumer.subscribe(pattern="orders-.*")
    consumer.poll()
    rule = orders.store.on("get", "^cluster/", unavailable, times=100)
    assert consumer.poll(timeout_ms=1_000) == {}
    assert rule.met == 0
    orders.clock.advance(MAX_AGE_MS)
    with pytest.raises(StoreUnavailable):
        consumer.poll()
