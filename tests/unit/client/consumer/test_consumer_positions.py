"""Positions: seek, bounds, times, a group's commits, and where a consumer starts."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import unavailable
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.consumer.consumer_group import pending_offsets
from txlog.errors import (
    CommitFailed,
    IllegalTransition,
    InvalidConfig,
    InvalidName,
    InvalidRecord,
    NoOffsetForPartition,
    OffsetOutOfRange,
    StoreUnavailable,
    TxlogError,
    UnknownPartition,
    UnknownTopic,
)
from txlog.model import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def fill(log: MemoryLog, count: int) -> None:
    """Write records to `u`, ten milliseconds apart, starting at time 1,000."""
    producer = log.producer()
    for number in range(count):
        producer.send("u", b"%d" % number, timestamp_ms=1_000 + 10 * number)
        if number % 3 == 0:
            producer.flush()
    producer.close()


def offsets(consumer: Consumer, where: TopicPartition = U0) -> list[int]:
    return [record.offset for record in consumer.poll().get(where, [])]


# Where a consumer starts.


def test_consumer_without_group_starts_per_auto_offset_reset(log: MemoryLog) -> None:
    fill(log, 3)
    assert offsets(log.consumer("u")) == [0, 1, 2]
    latest = Consumer("u", root=log.process())
    assert latest.config.auto_offset_reset == "latest"
    assert offsets(latest) == []
    log.producer().send("u", b"new").get()
    assert offsets(latest) == [3]


@pytest.mark.in_log
def test_latest_at_read_committed_is_the_last_stable_offset(log: MemoryLog) -> None:
    """Otherwise the consumer would miss records of open transactions that commit later."""
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send("u", b"x").get()
    options = {"auto_offset_reset": "latest"}
    consumer = log.consumer("u", isolation_level="read_committed", **options)
    assert consumer.position(U0) == 0
    assert log.consumer("u", **options).position(U0) == 1
    producer.commit_transaction()
    assert offsets(consumer) == [0]


def test_group_resumes_at_committed_offset(log: MemoryLog) -> None:
    fill(log, 5)
    first = log.consumer("u", group_id="g")
    first.poll(max_records=2)
    first.commit()
    for reset in ("earliest", "latest", "none"):
        consumer = log.consumer("u", group_id="g", auto_offset_reset=reset)
        assert offsets(consumer) == [2, 3, 4]
    assert offsets(log.consumer("u", group_id="other")) == [0, 1, 2, 3, 4]


def test_reset_none_raises_for_group_without_committed_offset(log: MemoryLog) -> None:
    consumer = log.consumer("u", group_id="g", auto_offset_reset="none")
    for call in (consumer.poll, lambda: consumer.position(U0)):
        with pytest.raises(NoOffsetForPartition, match="group 'g' has no committed offset in u-0"):
            call()
    log.consumer("u", group_id="g").commit({U0: 0})
    assert consumer.position(U0) == 0
    consumer.subscribe(["u", "t"])
    assert consumer.assignment() == {U0, T0, T1}
    with pytest.raises(NoOffsetForPartition, match="t-0"):
        consumer.poll()


# Seeking.


def test_seek_moves_position_to_any_offset(log: MemoryLog) -> None:
    fill(log, 10)
    consumer = log.consumer("u")
    for start in (7, 0, 10, 4):
        consumer.seek(U0, start)
        assert consumer.position(U0) == start
        assert offsets(consumer) == list(range(start, 10))
    consumer.seek_to_beginning()
    assert offsets(consumer)[0] == 0
    consumer.seek_to_beginning(U0)
    consumer.seek_to_end(U0)
    assert (consumer.position(U0), offsets(consumer)) == (10, [])


@pytest.mark.parametrize("offset", [-1, -(2**70), 2**63])
def test_seek_refuses_invalid_offset(log: MemoryLog, offset: int) -> None:
    fill(log, 10)
    consumer = log.consumer("u")
    consumer.seek(U0, 5)
    with pytest.raises(OffsetOutOfRange, match=f"u-0 is {offset}; offsets begin at 0"):
        consumer.seek(U0, offset)
    assert consumer.position(U0) == 5


def test_position_and_seek_refuse_unassigned_partition(log: MemoryLog) -> None:
    consumer = log.consumer("u")
    for call in (
        lambda: consumer.position(T0),
        lambda: consumer.seek(T0, 0),
        lambda: consumer.seek_to_end(T0),
    ):
        with pytest.raises(IllegalTransition, match="t-0 is not assigned to this consumer"):
            call()


# Bounds and times.


def test_beginning_and_end_offsets_work_for_unassigned_partitions(log: MemoryLog) -> None:
    fill(log, 4)
    consumer = log.consumer()
    assert consumer.beginning_offsets([U0, T0]) == {U0: 0, T0: 0}
    assert consumer.end_offsets([U0, T1]) == {U0: 4, T1: 0}
    with pytest.raises(UnknownPartition):
        consumer.end_offsets([TopicPartition("u", 1)])
    with pytest.raises(UnknownTopic):
        consumer.beginning_offsets([TopicPartition("nope", 0)])


@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [
        (0, (0, 1_000)),
        (1_000, (0, 1_000)),
        (1_001, (1, 1_010)),
        (1_049, (5, 1_050)),
        (1_050, (5, 1_050)),
        (1_090, (9, 1_090)),
        (1_091, None),
    ],
)
def test_offsets_for_times_finds_first_record_at_or_after_time(
    log: MemoryLog, timestamp_ms: int, expected: tuple[int, int] | None
) -> None:
    fill(log, 10)
    found = log.consumer().offsets_for_times({U0: timestamp_ms, T0: timestamp_ms})
    assert found == {U0: None if expected is None else OffsetAndTimestamp(*expected), T0: None}


def test_offsets_for_times_with_unordered_timestamps_finds_lowest_offset(log: MemoryLog) -> None:
    producer = log.producer()
    for stamp in (50, 10, 90, 20):
        producer.send("u", b"x", timestamp_ms=stamp)
    producer.flush()
    found = log.consumer().offsets_for_times({U0: 60})
    assert found == {U0: OffsetAndTimestamp(2, 90)}


@pytest.mark.in_log
def test_offsets_for_times_respects_isolation_level(log: MemoryLog) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send("u", b"x", timestamp_ms=5).get()
    committed = log.consumer(isolation_level="read_committed")
    assert committed.offsets_for_times({U0: 5}) == {U0: None}
    assert log.consumer().offsets_for_times({U0: 5}) == {U0: OffsetAndTimestamp(0, 5)}
    producer.abort_transaction()
    log.producer().send("u", b"y", timestamp_ms=7).get()
    assert committed.offsets_for_times({U0: 5}) == {U0: OffsetAndTimestamp(1, 7)}


# Commits.


def test_commit_stores_positions_or_given_offsets(log: MemoryLog) -> None:
    fill(log, 5)
    consumer = log.consumer("u", "t", group_id="g")
    assert consumer.committed(U0) is None
    consumer.poll(max_records=3)
    consumer.commit()
    assert (consumer.committed(U0), consumer.committed(T0)) == (3, 0)
    consumer.commit({U0: OffsetAndMetadata(3, "a note")})
    consumer.commit({})
    noted = {each.where: each for each in log.admin.describe_group("g").partitions}[U0]
    assert (noted.current_offset, noted.metadata) == (3, "a note")


def test_initial_position_is_committed_even_if_nothing_was_read(log: MemoryLog) -> None:
    """Otherwise, with auto.offset.reset=latest, the next instance would skip records."""
    fill(log, 3)
    options = {"group_id": "g", "auto_offset_reset": "latest", "enable_auto_commit": True}
    log.consumer("u", **options).close()
    log.producer().send("u", b"while no one looked").get()
    assert offsets(log.consumer("u", **options)) == [3]


def test_commit_of_unchanged_positions_writes_nothing(log: MemoryLog) -> None:
    fill(log, 3)
    consumer = log.consumer("u", group_id="g")
    consumer.poll()
    consumer.commit()
    before = log.objects()
    consumer.commit()
    assert log.changed_since(before) == []


@pytest.mark.both_ways
@pytest.mark.parametrize(
    ("wanted", "error", "message"),
    [
        ({U0: 6}, OffsetOutOfRange, "it has 0 to 5"),
        ({U0: -1}, OffsetOutOfRange, "it has 0 to 5"),
        ({U0: "3"}, InvalidRecord, "must be a whole number"),
        ({U0: 1.0}, InvalidRecord, "must be a whole number"),
        ({TopicPartition("u", 1): 0}, UnknownPartition, "partitions 0 to 0, not 1"),
        ({TopicPartition("nope", 0): 0}, UnknownTopic, "no topic 'nope'"),
        ({U0: 3, T0: 1}, OffsetOutOfRange, "of topic 't'"),
    ],
)
def test_commit_of_invalid_offset_is_refused(
    log: MemoryLog, wanted: dict[TopicPartition, int], error: type[Exception], message: str
) -> None:
    fill(log, 5)
    consumer = log.consumer("u", group_id="g")
    producer = log.producer("a")
    producer.begin_transaction()
    before = log.objects()
    with pytest.raises(error, match=message):
        consumer.commit(wanted)
    with pytest.raises(error, match=message):
        producer.send_offsets_to_transaction(wanted, "g")
    assert log.changed_since(before) == []


def test_group_calls_are_refused_without_group_id(log: MemoryLog) -> None:
    consumer = log.consumer("u")
    calls: dict[str, Callable[[], object]] = {
        "commit": consumer.commit,
        "group_metadata": consumer.group_metadata,
        "committed": lambda: consumer.committed(U0),
    }
    for method, call in calls.items():
        with pytest.raises(InvalidConfig, match=rf"^{method}\(\) needs a consumer group"):
            call()


def test_auto_commit_runs_at_poll_after_interval_and_at_close(
    log: MemoryLog,
) -> None:
    fill(log, 6)
    options = {"enable_auto_commit": True, "auto_commit_interval_ms": 5_000}
    consumer = log.consumer("u", group_id="g", **options)
    consumer.poll(max_records=2)
    log.clock.advance(4_999)
    consumer.poll(max_records=1)
    assert consumer.committed(U0) is None
    log.clock.advance(1)
    consumer.poll(max_records=1)
    assert consumer.committed(U0) == 3, "what this poll gives is not processed yet"
    consumer.close()
    assert log.consumer("u", group_id="g").position(U0) == 4


def test_failed_auto_commit_loses_no_records(log: MemoryLog) -> None:
    fill(log, 4)
    consumer = Consumer(
        "u", root=log.connection, group_id="g", auto_offset_reset="earliest",
        auto_commit_interval_ms=1,
    )  # fmt: skip
    assert len(consumer.poll(max_records=2)[U0]) == 2
    log.clock.advance(5)
    log.store.on("create", "transactions/", unavailable)
    with pytest.raises(StoreUnavailable):
        consumer.poll()
    assert offsets(consumer) == [2, 3]
    consumer.close()
    assert log.consumer("u", group_id="g").position(U0) == 4


def test_close_without_auto_commit_commits_nothing(log: MemoryLog) -> None:
    fill(log, 3)
    with log.consumer("u", group_id="g") as consumer:
        consumer.poll()
    assert offsets(log.consumer("u", group_id="g")) == [0, 1, 2]


# I6: two instances of a group cannot silently overwrite each other's positions.


@pytest.mark.parametrize("has_committed_before", [False, True])
def test_I6_slower_of_two_group_instances_cannot_commit(
    log: MemoryLog, has_committed_before: bool
) -> None:
    fill(log, 6)
    if has_committed_before:
        log.consumer("u", group_id="g").commit({U0: 1})
    first, second = (log.consumer("u", group_id="g") for _ in range(2))
    first.poll()
    second.poll(max_records=2)
    first.commit()
    with pytest.raises(CommitFailed, match="group 'g'"):
        second.commit()
    assert log.consumer("u", group_id="g").committed(U0) == 6
    log.check()


@pytest.mark.both_ways
@pytest.mark.parametrize("has_committed_before", [False, True])
def test_I6_only_one_of_two_transactional_group_instances_commits(
    log: MemoryLog, has_committed_before: bool
) -> None:
    """Both read the same records and write results, which are visible only once."""
    fill(log, 3)
    if has_committed_before:
        log.consumer("u", group_id="g").commit({U0: 1})
    consumers = [log.consumer("u", group_id="g") for _ in range(2)]
    producers = [log.elsewhere(name) for name in ("a", "b")]
    for consumer, producer in zip(consumers, producers, strict=True):
        producer.begin_transaction()
        for record in consumer.poll()[U0]:
            producer.send("t", b"result of " + record.value)
    producers[0].send_offsets_to_transaction({U0: 3}, consumers[0].group_metadata())
    producers[0].commit_transaction()
    with pytest.raises(CommitFailed, match="abort|Abort|read again|again"):
        producers[1].send_offsets_to_transaction({U0: 3}, consumers[1].group_metadata())
    producers[1].abort_transaction()
    expected = [0, 1, 2][1 if has_committed_before else 0 :]
    assert sorted(log.values("t")) == [b"result of %d" % number for number in expected]
    log.check()


@pytest.mark.both_ways
@pytest.mark.parametrize("in_transaction", [True, False])
def test_R11_offsets_of_deleted_topic_are_not_committed_to_recreated_topic(
    log: MemoryLog, in_transaction: bool
) -> None:
    """The simulation found a group that skipped records of the new topic."""
    fill(log, 3)
    consumer, producer = log.consumer("u", group_id="g"), log.producer("a")
    assert len(offsets(consumer)) == 3
    recreate(log, "u")
    fill(log, 5)
    producer.begin_transaction()

    def commit() -> None:
        if in_transaction:
            producer.send_offsets_to_transaction({U0: 3}, consumer.group_metadata())
        else:
            consumer.commit()

    with pytest.raises(CommitFailed, match="deleted after .* at its next poll"):
        commit()
    producer.abort_transaction()
    assert offsets(consumer) == [0, 1, 2, 3, 4]
    consumer.commit()
    assert log.consumer("u", group_id="g").committed(U0) == 5


def test_R11_late_commit_for_old_topic_does_not_overwrite_recreated_topic(
    log: MemoryLog,
) -> None:
    """A commit from before the deletion arrives after the successor's first commit."""
    fill(log, 3)
    slow = log.consumer("u", group_id="g")
    assert len(offsets(slow)) == 3
    late = pending_offsets(slow._connection, {U0: 3}, slow.group_metadata())
    recreate(log, "u")
    fill(log, 2)
    fast = log.consumer("u", group_id="g")
    assert len(offsets(fast)) == 2
    fast.commit()
    with pytest.raises(CommitFailed, match="has committed in a topic 'u'"):
        slow._connection.offsets.commit("g", late)
    assert log.consumer("u", group_id="g").committed(U0) == 2


def recreate(log: MemoryLog, name: str) -> None:
    """Create another topic with the name."""
    admin = Admin(log.process())
    admin.delete_topics([name])
    admin.create_topic(name)


def test_offset_of_deleted_records_can_be_committed(log: MemoryLog) -> None:
    """Retention does not break an exactly-once loop. The simulation found this case."""
    fill(log, 5)
    consumer = log.consumer("u", group_id="g")
    consumer.poll(max_records=2)
    Admin(log.process()).delete_records({U0: 4})
    consumer.commit()
    assert consumer.committed(U0) == 2
    assert offsets(log.consumer("u", group_id="g")) == [4]
    with pytest.raises(OffsetOutOfRange):
        consumer.commit({U0: 6})


@pytest.mark.both_ways
def test_offsets_sent_with_group_id_only_skip_position_check(log: MemoryLog) -> None:
    """With Kafka's old form of the call, the caller is responsible for the position."""
    fill(log, 3)
    producer = log.producer("a")
    for end in (3, 1):
        with producer.transaction():
            producer.send_offsets_to_transaction({U0: OffsetAndMetadata(end, "by name")}, "g")
        assert log.consumer("u", group_id="g").committed(U0) == end


@pytest.mark.both_ways
def test_group_metadata_tracks_offsets_committed_in_transactions(log: MemoryLog) -> None:
    fill(log, 6)
    consumer = log.consumer("u", group_id="g")
    producer = log.producer("a")
    for _ in range(3):
        consumer.poll(max_records=2)
        with producer.transaction():
            producer.send("t", b"x")
            position = {U0: consumer.position(U0)}
            producer.send_offsets_to_transaction(position, consumer.group_metadata())
    assert log.consumer("u", group_id="g").committed(U0) == 6
    producer.begin_transaction()
    producer.send_offsets_to_transaction({U0: 6}, consumer.group_metadata())
    producer.abort_transaction()
    consumer.commit({U0: 6})
    log.check()


@pytest.mark.both_ways
def test_last_offset_sent_in_transaction_is_committed(log: MemoryLog) -> None:
    fill(log, 6)
    consumer = log.consumer("u", group_id="g")
    producer = log.producer("a")
    with producer.transaction():
        for end in (2, 5):
            producer.send_offsets_to_transaction({U0: end}, consumer.group_metadata())
    assert log.consumer("u", group_id="g").committed(U0) == 5
    log.check()


@pytest.mark.both_ways
def test_aborted_offset_is_discarded(log: MemoryLog) -> None:
    fill(log, 6)
    consumer = log.consumer("u", group_id="g")
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send_offsets_to_transaction({U0: 4}, consumer.group_metadata())
    producer.abort_transaction()
    assert consumer.committed(U0) is None
    consumer.commit({U0: 2})
    assert log.consumer("u", group_id="g").position(U0) == 2


def test_consumer_can_commit_after_seeking_back(log: MemoryLog) -> None:
    fill(log, 6)
    consumer = log.consumer("u", group_id="g")
    consumer.poll()
    consumer.commit()
    consumer.seek(U0, 2)
    consumer.commit()
    assert log.consumer("u", group_id="g").committed(U0) == 2
    log.check()


def test_added_partition_is_read_from_committed_offset(log: MemoryLog) -> None:
    consumer = log.consumer("t", group_id="g")
    log.admin.create_partitions("t", 3)
    producer = log.producer()
    for _ in range(4):
        producer.send("t", b"x", partition=2)
    producer.flush()
    added = TopicPartition("t", 2)
    log.consumer("t", group_id="g").commit({added: 3})
    assert offsets(consumer, added) == [3]
    log.check()


@pytest.mark.both_ways
@pytest.mark.parametrize("group", ["", " ", "a\nb", "\ud800", "x" * 513])
def test_invalid_group_id_is_refused(log: MemoryLog, group: str) -> None:
    before = log.objects()
    with pytest.raises((InvalidName, InvalidConfig)):
        log.consumer("u", group_id=group)
    producer = log.producer("a")
    producer.begin_transaction()
    after_init = log.objects()
    with pytest.raises(InvalidName):
        producer.send_offsets_to_transaction({U0: 0}, group)
    assert log.changed_since(after_init) == []
    assert not any(path.startswith("__consumer") for path in set(after_init) - set(before))


def test_commit_that_changes_nothing_writes_nothing(log: MemoryLog) -> None:
    log.producer().send("u", b"x").get()
    consumer = log.consumer("u", group_id="g", enable_auto_commit=False)
    consumer.poll()
    consumer.commit()
    before = log.objects()
    consumer.commit()
    assert log.changed_since(before) == []


def test_consumer_opens_the_log_with_the_options_of_its_store(tmp_path: Path) -> None:
    with pytest.raises(TxlogError, match="no_such_option"):
        Consumer("u", root=str(tmp_path), storage_options={"no_such_option": 1})
