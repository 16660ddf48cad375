"""Entries of a journal by number and by time: all of them, none twice, and none that are pruned."""

from dataclasses import replace

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.engine.journal_history import ENTRIES_AT_ONCE, JournalHistory
from txlog.errors import CorruptData, OffsetOutOfRange
from txlog.fan_out import OnError, SerialFanOut
from txlog.testing.counting_store import CountingStore
from txlog.topic.machine import TopicMachine
from txlog.topic.topic_log import TopicLog

COUNT = ENTRIES_AT_ONCE * 2 + 5


@pytest.fixture
def topic(log: MemoryLog) -> TopicLog:
    """A topic whose entries are 10 ms apart; the first one creates it."""
    log.admin.create_topic("h", 1)
    topic = log.connection.cluster.present_topic("h")
    producer = log.producer(enable_idempotence=False)
    for _ in range(COUNT - 1):
        log.clock.advance(10)
        producer.send("h", b"x").get()
    topic.catch_up()
    return topic


def history_of(
    log: MemoryLog,
    topic: TopicLog,
    next_slot: int = COUNT,
    on_error: OnError | None = None,
) -> JournalHistory:
    return JournalHistory(
        "topic",
        "h",
        CountingStore(log.memory),
        topic.layout,
        TopicMachine(),
        next_slot,
        SerialFanOut(),
        on_error,
    )


def reads(history: JournalHistory) -> int:
    store = history.store
    assert isinstance(store, CountingStore)
    return store.snapshot().of("get", "entry")


@pytest.mark.parametrize(
    ("first", "end"),
    [
        (0, COUNT),
        (0, 0),
        (0, 1),
        (3, 3),
        (5, 4),
        (0, ENTRIES_AT_ONCE),
        (0, ENTRIES_AT_ONCE + 1),
        (COUNT - 1, COUNT + 9),
        (COUNT, COUNT + 1),
    ],
)
def test_entries_are_read_once_and_in_order(
    log: MemoryLog, topic: TopicLog, first: int, end: int
) -> None:
    history = history_of(log, topic)
    found = [entry.slot for entry in history.entries(first, end) if entry is not None]
    assert found == list(range(first, min(end, COUNT)))
    assert reads(history) == len(found)


def test_entries_are_read_in_parts(log: MemoryLog, topic: TopicLog) -> None:
    history = history_of(log, topic)
    entries = history.entries(0, COUNT)
    next(entries)
    assert reads(history) == ENTRIES_AT_ONCE


def test_damaged_entry_is_told_of_and_counts_as_pruned(log: MemoryLog, topic: TopicLog) -> None:
    path = topic.layout.entry(5)
    log.memory.delete(path)
    log.memory.put_new(path, b"not JSON")
    with pytest.raises(CorruptData, match=path):
        history_of(log, topic).entry(5)
    told: list[tuple[str, str, str]] = []
    history = history_of(log, topic, on_error=lambda *each: told.append((*each[:2], str(each[2]))))
    assert [entry is None for entry in history.entries(3, 8)] == [0, 0, 1, 0, 0]
    assert [(kind, name, path in text) for kind, name, text in told] == [("topic", "h", True)]
    assert history.unread == [5]


def test_entry_with_an_event_of_another_journal_has_none_that_can_be_read(
    log: MemoryLog, topic: TopicLog
) -> None:
    entry = history_of(log, topic).entry(1)
    assert entry is not None
    forged = replace(entry, events=({"type": "group_deleted", "group": "g"},))
    with pytest.raises(CorruptData, match="cannot read: .group_deleted. is not an event"):
        history_of(log, topic).events(forged)
    history = history_of(log, topic, on_error=lambda *_: None)
    assert (history.events(forged), history.unread) == (None, [1])
    assert [type(event).__name__ for event in history.events(entry) or ()] == ["BatchesAppended"]


@pytest.mark.segments
def test_count_at_a_time_includes_the_entry_of_that_time(log: MemoryLog, topic: TopicLog) -> None:
    last_ms = log.clock.wall_ms()
    first_ms = last_ms - 10 * (COUNT - 1)
    history = history_of(log, topic)
    assert history.count_at(first_ms - 1) == 0
    assert history.slot_at(first_ms - 1) == 0
    for number in range(COUNT):
        for late_ms in (0, 9):
            assert history.count_at(first_ms + 10 * number + late_ms) == number + 1
    assert history.slot_at(last_ms + 1_000) == COUNT
    assert reads(history) <= COUNT, "an entry is read once, however many moments are asked for"
    short = history_of(log, topic, 3)
    assert (short.count_at(last_ms), short.count_at(first_ms)) == (3, 1)
    assert history_of(log, topic, 0).count_at(last_ms) == 0


def test_moment_of_a_pruned_entry_is_refused_with_what_is_kept(
    log: MemoryLog, topic: TopicLog
) -> None:
    last_ms = log.clock.wall_ms()
    assert history_of(log, topic).first_kept() == history_of(log, topic).entry(0)
    for slot in range(7):
        log.memory.delete(topic.layout.entry(slot))
    history = history_of(log, topic)
    kept = history.first_kept()
    assert kept is not None
    assert (kept.slot, history.entry(6)) == (7, None)
    assert [entry is None for entry in history.entries(5, 9)] == [True, True, False, False]
    assert history.count_at(kept.written_at_ms) == 8
    assert history.count_at(kept.written_at_ms - 1) is None
    words = (
        rf"topic 'h' does not reach back to {kept.written_at_ms - 1} ms: its entries were pruned "
        rf"up to number 6, and the next one is of {kept.written_at_ms} ms\. Name a later moment"
    )
    with pytest.raises(OffsetOutOfRange, match=words) as refused:
        history.slot_at(kept.written_at_ms - 1)
    assert refused.value.facts["time_ms"] == kept.written_at_ms - 1
    for slot in range(7, COUNT):
        log.memory.delete(topic.layout.entry(slot))
    empty = history_of(log, topic)
    assert empty.first_kept() is None
    with pytest.raises(OffsetOutOfRange, match="its entries were pruned. Name a later moment"):
        empty.slot_at(last_ms)
