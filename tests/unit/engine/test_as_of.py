"""Cuts of earlier moments: what a reader ended at then, whatever was written and merged since."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from tests.examples import examples
from tests.logs.memory_log import MemoryLog
from tests.unit.spark_plugin.spark_query import ONE_JOURNAL
from tests.unit.topic.cut_model import TOPICS, ZERO, World, histories
from txlog.engine.as_of import Moment, as_of_ends, journal_history, parse_moment
from txlog.engine.producer_config import IN_LOG
from txlog.errors import OffsetOutOfRange, UnknownTransaction, UsageError
from txlog.fan_out import SerialFanOut
from txlog.model import TopicPartition, TxId
from txlog.testing.counting_store import CountingStore
from txlog.topic.events import SealIndex
from txlog.topic.read.cut import Ends, stable_ends, view_of
from txlog.topic.topic_log import TopicLog
from txlog.topic.upkeep.merging import merge_segments

LATER_MS = 1 << 50


def cut_of(world: World, moment: Moment) -> Ends:
    return as_of_ends(world.logs, world.views(), moment, LATER_MS, SerialFanOut())


@given(histories(40))
@settings(max_examples=examples(150), deadline=None, derandomize=True)
def test_I11_cut_of_a_time_is_the_cut_that_readers_had_then(
    history: list[tuple[object, ...]],
) -> None:
    world = World()
    had: dict[int, Ends] = {}
    for name, *arguments in history:
        getattr(world, str(name))(*arguments)
        had[world.runtime.clock.wall_ms()] = stable_ends(world.views(), ZERO)
        world.runtime.clock.sleep_ms(10)
    for time_ms, ends in had.items():
        for moment in (time_ms, time_ms + 9):
            assert cut_of(world, moment) == ends


@given(histories(40))
@settings(max_examples=examples(150), deadline=None, derandomize=True)
def test_I11_cut_after_a_transaction_contains_it_and_divides_none(
    history: list[tuple[object, ...]],
) -> None:
    world = World()
    for name, *arguments in history:
        getattr(world, str(name))(*arguments)
    world.apply_all()
    highs = stable_ends(world.views(), ZERO)
    for tx_id in world.committed:
        pieces = world.pieces[tx_id]
        if any(end > highs[where] for where, _, end in pieces):
            with pytest.raises(UnknownTransaction, match="one before it is open"):
                cut_of(world, tx_id)
            continue
        ends = cut_of(world, tx_id)
        assert world.is_whole(ends)
        assert all(end <= ends[where] for where, _, end in pieces)
        assert all(end <= highs[where] for where, end in ends.items())


def test_I11_cut_after_a_transaction_contains_no_later_one() -> None:
    world = World()
    for pid in (1, 2, 3):
        for topic in TOPICS:
            world.write(pid, topic, 0, pid, staged=pid != 2)
        world.decide(pid, commit=True)
        world.apply_all()
    found = [[cut_of(world, TxId(pid, 0, 0))[where] for where in ZERO] for pid in (1, 2, 3)]
    assert found == [[1, 0, 1, 0], [3, 0, 3, 0], [6, 0, 6, 0]]


# A real log, which is merged and cleaned.


@pytest.fixture
def log() -> MemoryLog:
    """A log with a topic of two partitions."""
    log = MemoryLog(replace(ONE_JOURNAL, entry_records_max_bytes=0))
    log.admin.create_topic("t", 2)
    return log


def put(log: MemoryLog, *partitions: int) -> int:
    """Append a record to each, in an entry of its own. Returns the time of the last one."""
    producer = log.producer()
    for partition in partitions:
        log.clock.advance(10)
        producer.send("t", b"x", partition=partition).get()
    return log.clock.wall_ms()


def topic_of(log: MemoryLog) -> TopicLog:
    return log.process().cluster.present_topic("t")


def ends_of(log: MemoryLog, moment: Moment, *, may_miss: bool = False) -> list[int]:
    topic = topic_of(log)
    ends = as_of_ends(
        {"t": topic},
        [view_of(topic)],
        moment,
        log.clock.wall_ms(),
        SerialFanOut(),
        may_miss=may_miss,
    )
    return [ends[TopicPartition("t", partition)] for partition in range(2)]


def test_cut_is_exact_within_batches_that_merging_made_of_many(log: MemoryLog) -> None:
    times = [put(log, number % 2, 1) for number in range(30)]
    before = [ends_of(log, time_ms) for time_ms in times]
    topic = topic_of(log)
    topic.execute(SealIndex())
    assert merge_segments(topic, 1_000_000).segments_after == 1
    put(log, 0)
    state = topic_of(log).state
    assert len(list(topic_of(log).batches(state, 1, 0, 1_000))) < 10, "merged"
    assert [ends_of(log, time_ms) for time_ms in times] == before
    assert before[0] == [1, 1]
    assert before[-1] == [15, 45]


def merged(log: MemoryLog) -> None:
    topic = topic_of(log)
    topic.execute(SealIndex())
    assert merge_segments(topic, 1_000_000, 1).segments_after == 1


@pytest.mark.parametrize("others", range(5))
def test_end_within_a_merged_batch_is_found_in_the_last_entry_before_the_next_one(
    log: MemoryLog, others: int
) -> None:
    """The entries between the two are of another partition."""
    first_ms = put(log, 0)
    put(log, *[1] * others, 0)
    merged(log)
    put(log, 0)
    assert ends_of(log, first_ms) == [1, 0]


def test_each_entry_is_read_once_for_the_ends_within_merged_batches(log: MemoryLog) -> None:
    first_ms = put(log, 0, 0)
    merged(log)
    put(log, *[1] * 100)
    store = CountingStore(log.memory)
    topic = log.process(store).cluster.present_topic("t")
    before = store.snapshot().of("get", "entry")
    ends = as_of_ends({"t": topic}, [view_of(topic)], first_ms, LATER_MS, SerialFanOut())
    assert ends[TopicPartition("t", 0)] == 2
    # One for each entry above the moment, and a few to find the moment.
    assert store.snapshot().of("get", "entry") - before <= 103 + 8


def test_moment_before_the_topic_was_created_is_an_empty_cut(log: MemoryLog) -> None:
    early_ms = log.clock.wall_ms() - 1
    put(log, 0, 1)
    assert ends_of(log, early_ms) == [0, 0]
    log.admin.delete_records({TopicPartition("t", 0): 1})
    put(log, 0)
    assert ends_of(log, early_ms) == [1, 0], "the log start: nothing is read"


def test_moment_whose_entries_are_pruned_is_refused(log: MemoryLog) -> None:
    early_ms = put(log, *[0] * 5)
    late_ms = put(log, *[0] * 5)
    log.clock.advance(1_000)
    topic = log.connection.cluster.present_topic("t")
    topic.journal.prune(3, 1)
    with pytest.raises(OffsetOutOfRange, match="'t' does not reach back to .* were pruned"):
        ends_of(log, early_ms)
    assert ends_of(log, late_ms) == [10, 0]


def test_partition_of_which_nothing_is_left_is_refused_or_empty(log: MemoryLog) -> None:
    early_ms = put(log, 0, 0, 1)
    put(log, 0)
    log.admin.delete_records({TopicPartition("t", 0): 1})
    assert ends_of(log, early_ms) == [2, 1], "one record is left"
    log.admin.delete_records({TopicPartition("t", 0): 2})
    with pytest.raises(OffsetOutOfRange, match="t-0 had at that moment none is left.*offset 2"):
        ends_of(log, early_ms)
    topic, now_ms = topic_of(log), log.clock.wall_ms()
    with pytest.raises(OffsetOutOfRange, match="none is left") as refused:
        as_of_ends({"t": topic}, [view_of(topic)], early_ms, now_ms, SerialFanOut())
    assert refused.value.facts == {"topic": "t", "partition": 0, "log_start": 2}
    assert ends_of(log, early_ms, may_miss=True) == [2, 1]


def test_transaction_that_is_open_aborted_or_unknown_is_refused(log: MemoryLog) -> None:
    producer = log.producer("p", transaction_records=IN_LOG)
    producer.begin_transaction()
    producer.send("t", b"x", partition=0)
    producer.flush()
    (tx_id,) = dict(topic_of(log).state.open_transactions())
    with pytest.raises(UnknownTransaction, match="no committed records in the topics"):
        ends_of(log, tx_id)
    producer.abort_transaction()
    for wanted in (tx_id, TxId(77, 0, 0)):
        with pytest.raises(UnknownTransaction, match=f"{wanted} has no committed records"):
            ends_of(log, wanted)


def test_moment_in_the_future_is_refused(log: MemoryLog) -> None:
    with pytest.raises(UsageError, match="is in the future"):
        ends_of(log, log.clock.wall_ms() + 1)


def test_time_is_found_by_few_entries_of_a_long_journal(log: MemoryLog) -> None:
    times = [put(log, 0) for _ in range(100)]
    store = CountingStore(log.memory)
    topic = log.process(store).cluster.present_topic("t")
    before = store.snapshot().of("get", "entry")
    assert journal_history(topic).slot_at(times[40]) == 42, "the topic's first entry creates it"
    assert store.snapshot().of("get", "entry") - before <= 7


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1359633600000", 1359633600000),
        ("2013-01-31T12:00:00Z", 1359633600000),
        ("2013-01-31T13:00:00+01:00", 1359633600000),
        ("2013-01-31 12:00", 1359633600000),
        (" 7-0-12 ", TxId(7, 0, 12)),
        ("02013-01-31", TxId(2013, 1, 31)),
    ],
)
def test_moment_is_a_time_or_a_transaction(text: str, moment: Moment) -> None:
    assert parse_moment(text) == moment


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2013-01-31", "may be a day or a transaction; write 2013-01-31T00:00Z"),
        ("yesterday", "is no moment; write it as"),
        ("", "is no moment"),
        ("-5", "is before 1970"),
        ("7-0", "is no moment"),
        ("7-0-" + "9" * 40, "is no moment"),
        ("9" * 30, "is no moment"),
        ("1960-01-01T00:00Z", "is before 1970"),
    ],
)
def test_text_that_is_no_moment_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_moment(text)
