"""Polls of a far store: parallel reads, and what a waiting poll returns or raises."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.stores.scripted_store import Call, ScriptedStore, failing, preceded_by, unavailable
from tests.unit.client.far_log import FarLog
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.consumer.fetcher import fill_together
from txlog.client.consumer.poller import WAKE_EVERY_MS
from txlog.client.producer.producer import Producer
from txlog.errors import CorruptData, StoreUnavailable, TxlogError, UnknownTopic
from txlog.fan_out import SerialFanOut
from txlog.model import TopicPartition
from txlog.testing.round_trips import ROUND_TRIP_MS

PARTITIONS = 4


@pytest.fixture
def log() -> FarLog:
    found = FarLog(is_inline=False)  # Its readers request what they read.
    found.admin.create_topic("t", PARTITIONS)
    return found


@pytest.fixture
def elsewhere(log: FarLog) -> Producer:
    """A producer of another process."""
    return Producer(log.process())


def consumer_of(log: FarLog, *topics: str, **options: object) -> Consumer:
    found = Consumer(*topics, root=log.connection, **options)  # type: ignore[arg-type]
    found.poll(0)
    return found


def values(polled: dict) -> list[bytes]:  # type: ignore[type-arg]
    return [record.value for where in sorted(polled) for record in polled[where]]


def at_call(
    number: int, action: Callable[[], object], is_after: bool = False
) -> Callable[[Call], object]:
    """Run `action` just before the call with that number, or just after it, and at no other."""
    left = [number]

    def run(call: Call) -> object:
        left[0] -= 1
        if left[0] != 0:
            return call()
        if is_after:
            answer = call()
            action()
            return answer
        action()
        return call()

    return run


def while_poll_waits(log: FarLog, action: Callable[[], object], is_after: bool = False) -> None:
    """Run `action` before the third request for the next entry of `t`, or after its answer."""
    found = log.connection.cluster.topic("t")
    scripted = ScriptedStore(log.memory)
    entry = found.layout.entry(found.next_slot)
    third = at_call(3, lambda: (log.between(log.memory), action()), is_after)
    scripted.on("get", entry, third, times=99)
    log.between(scripted)


def test_partitions_are_read_in_one_round_trip(log: FarLog, elsewhere: Producer) -> None:
    for partition in range(PARTITIONS):
        elsewhere.send("t", b"%d" % partition, partition=partition).get()
    log.connection.cluster.topic("t").catch_up()
    found = []

    def poll() -> None:
        consumer = Consumer("t", root=log.connection, auto_offset_reset="earliest")
        found.append(consumer.poll())

    look, records = 1, 1
    assert log.rounds.waits(poll) == look + records
    assert values(found[0]) == [b"0", b"1", b"2", b"3"]


def test_topics_are_read_in_parallel(log: FarLog, elsewhere: Producer) -> None:
    log.admin.create_topic("u", 1)
    consumer = consumer_of(log, "t", "u")
    for topic in ("t", "u"):
        elsewhere.send(topic, topic.encode(), partition=0).get()
    found = []
    assert log.rounds.waits(lambda: found.append(consumer.poll())) == 3  # For the entry only.
    assert values(found[0]) == [b"t", b"u"]


def test_poll_reads_only_partitions_needed_for_max_records(
    log: FarLog, elsewhere: Producer
) -> None:
    for partition in range(PARTITIONS):
        for _ in range(3):
            elsewhere.send("t", b"x", partition=partition)
    elsewhere.flush()
    consumer = Consumer("t", root=log.connection, auto_offset_reset="earliest")
    read = []
    for limit in (1, 2, 4, 100):
        log.rounds.store.requests.clear()
        consumer.poll(max_records=limit)
        ranges = [r for r in log.rounds.store.requests if r.verb == "get_ranges"]
        read.append(len(ranges))
    assert read == [1, 1, 2, 0], "each partition once, and no sooner than in its turn"


def test_parallel_partition_reads_share_fetch_max_bytes(log: FarLog, elsewhere: Producer) -> None:
    for partition in range(PARTITIONS):
        for _ in range(4):
            elsewhere.send("t", b"x" * 1_000, partition=partition).get()
    topic = log.connection.cluster.topic("t")
    topic.catch_up()
    (length,) = {row.length for row in topic.state.tail}
    consumer = Consumer(
        "t", root=log.connection, auto_offset_reset="earliest", fetch_max_bytes=8 * length
    )
    assert [len(values(consumer.poll())) for _ in range(3)] == [8, 8, 0]


def test_missing_segment_of_paused_partition_does_not_fail_poll(
    log: FarLog, elsewhere: Producer
) -> None:
    for partition in (0, 1):
        elsewhere.send("t", b"%d" % partition, partition=partition).get()
    consumer = Consumer("t", root=log.connection, auto_offset_reset="earliest")
    topic = log.connection.cluster.topic("t")
    segments = [row.segment for row in topic.state.tail]
    log.memory.delete(segments[0])
    consumer.pause(TopicPartition("t", 0))
    assert values(consumer.poll()) == [b"1"]


@pytest.mark.parametrize("error", [CorruptData("damaged."), StoreUnavailable("no answer.")])
@pytest.mark.parametrize("unreadable", [0, 1])
def test_unreadable_partition_does_not_block_records_of_another(
    log: FarLog, elsewhere: Producer, unreadable: int, error: TxlogError
) -> None:
    """One of two parallel reads fails, the first or the second of a poll's turn."""
    for partition in (0, 1):
        elsewhere.send("t", b"%d" % partition, partition=partition).get()
    consumer = Consumer("t", root=log.connection, auto_offset_reset="earliest")
    segment = log.connection.cluster.topic("t").state.tail[unreadable].segment
    scripted = ScriptedStore(log.memory)
    scripted.on("get_ranges", segment, failing(error), times=99)
    log.between(scripted)
    found, failed = [], 0
    for _ in range(2 * PARTITIONS):
        try:
            found += values(consumer.poll())
        except type(error):
            failed += 1
    assert found == [b"%d" % (1 - unreadable)]
    assert failed == 2 * PARTITIONS - 1, "each poll that returns no record"


def test_poll_raises_if_no_partition_can_be_read(log: FarLog, elsewhere: Producer) -> None:
    for partition in (0, 1):
        elsewhere.send("t", b"%d" % partition, partition=partition).get()
    consumer = Consumer("t", root=log.connection, auto_offset_reset="earliest")
    scripted = ScriptedStore(log.memory)
    rule = scripted.on("get_ranges", "segments", unavailable, times=99)
    log.between(scripted)
    with pytest.raises(StoreUnavailable):
        consumer.poll()
    assert rule.met == 2, "each once"
    log.between(log.memory)
    assert values(consumer.poll()) == [b"0", b"1"]


def test_poll_of_single_partition_returns_its_record(log: FarLog, elsewhere: Producer) -> None:
    elsewhere.send("t", b"x", partition=0).get()
    consumer = Consumer("t", root=log.connection, auto_offset_reset="earliest")
    fill_together([], SerialFanOut(), 1, 1)
    assert values(consumer.poll()) == [b"x"]


def test_waiting_poll_returns_new_record(log: FarLog, elsewhere: Producer) -> None:
    consumer = consumer_of(log, "t")
    while_poll_waits(log, lambda: elsewhere.send("t", b"x", partition=0).get())
    assert values(consumer.poll(timeout_ms=5_000)) == [b"x"]


def test_waiting_poll_returns_new_record_within_two_round_trips(
    log: FarLog, elsewhere: Producer
) -> None:
    consumer = consumer_of(log, "t")
    sent_ms = []

    def send() -> None:
        elsewhere.send("t", b"x", partition=0).get()
        sent_ms.append(log.rounds.clock.now_ms)

    while_poll_waits(log, send)
    consumer.poll(timeout_ms=5_000)
    next_entry, records = ROUND_TRIP_MS, ROUND_TRIP_MS
    assert log.rounds.clock.now_ms - sent_ms[0] <= next_entry + records + 10


def test_waiting_poll_returns_at_once_what_another_thread_appends(log: FarLog) -> None:
    """The entry is already part of the process's state, so no request of the poll brings it."""
    producer = Producer(log.connection)
    producer.send("t", b"x", partition=0)
    consumer = consumer_of(log, "t")
    sent_ms = []

    def append() -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(producer.flush).result(20)
        sent_ms.append(log.rounds.clock.now_ms)

    while_poll_waits(log, append, is_after=True)
    assert values(consumer.poll(timeout_ms=5_000)) == [b"x"]
    records = ROUND_TRIP_MS
    assert log.rounds.clock.now_ms - sent_ms[0] <= records + WAKE_EVERY_MS


def test_waiting_poll_returns_records_of_newly_committed_transaction(log: FarLog) -> None:
    producer = Producer(log.process(), transactional_id="id")
    producer.init_transactions()
    consumer = consumer_of(log, "t", isolation_level="read_committed")

    def transact() -> None:
        with producer.transaction():
            producer.send("t", b"x", partition=0)

    while_poll_waits(log, transact)
    assert values(consumer.poll(timeout_ms=5_000)) == [b"x"]


def test_waiting_poll_ends_at_its_timeout(log: FarLog) -> None:
    consumer = consumer_of(log, "t")
    begun_ms = log.rounds.clock.now_ms
    assert consumer.poll(timeout_ms=3_000) == {}
    assert 3_000 <= log.rounds.clock.now_ms - begun_ms <= 3_000 + 2 * ROUND_TRIP_MS


def test_waiting_poll_raises_when_topic_is_deleted(log: FarLog) -> None:
    consumer = consumer_of(log, "t")
    other = Admin(log.process())
    while_poll_waits(log, lambda: other.delete_topics(["t"]))
    with pytest.raises(UnknownTopic):
        consumer.poll(timeout_ms=5_000)


def test_waiting_poll_reads_newly_created_topic(log: FarLog) -> None:
    consumer = consumer_of(log, "t", "late", auto_offset_reset="earliest")
    other = log.process()

    def create() -> None:
        Admin(other).create_topic("late", 1)
        Producer(other).send("late", b"x").get()

    while_poll_waits(log, create)
    assert values(consumer.poll(timeout_ms=5_000)) == [b"x"]


def test_waiting_poll_returns_records_whose_entries_were_pruned(log: FarLog) -> None:
    """R15 applies to the entries that a waiting poll finds as to those that any read finds."""
    consumer = consumer_of(log, "t")
    other = log.process()
    producer = Producer(other)

    def send_and_prune() -> None:
        for number in range(3):
            producer.send("t", b"%d" % number, partition=0).get()
        topic = other.cluster.topic("t")
        topic.journal.prune(1)
        log.rounds.clock.sleep_ms(other.cluster.file.settings.pruning_grace_ms + 1)
        topic.journal.prune(1)

    while_poll_waits(log, send_and_prune)
    assert values(consumer.poll(timeout_ms=5_000)) == [b"0", b"1", b"2"]


def test_waiting_poll_respects_fetch_interval(log: FarLog) -> None:
    consumer = consumer_of(log, "t", fetch_interval_ms=500, fetch_interval_max_ms=500)
    log.rounds.store.requests.clear()
    consumer.poll(timeout_ms=10_000)
    looks, requests = 11, 21
    assert len(log.rounds.store.requests) <= looks + requests


def test_paused_partitions_return_no_records_until_resumed(
    log: FarLog, elsewhere: Producer
) -> None:
    consumer = consumer_of(log, "t")
    consumer.pause(*consumer.assignment())
    elsewhere.send("t", b"x", partition=0).get()
    assert consumer.poll(timeout_ms=1_000) == {}
    consumer.resume(*consumer.assignment())
    assert values(consumer.poll(timeout_ms=1_000)) == [b"x"]


def test_waiting_poll_raises_when_store_does_not_answer(log: FarLog) -> None:
    consumer = consumer_of(log, "t")
    scripted = ScriptedStore(log.memory)
    scripted.on("get", "entries", preceded_by(lambda: None), times=1)
    topic = log.connection.cluster.topic("t")
    scripted.on("get", topic.layout.entry(topic.next_slot), at_call(3, _unanswered), times=99)
    log.between(scripted)
    with pytest.raises(StoreUnavailable):
        consumer.poll(timeout_ms=5_000)
    log.between(log.memory)
    assert consumer.poll(timeout_ms=500) == {}


def _unanswered() -> None:
    raise StoreUnavailable("no answer; call again.")
