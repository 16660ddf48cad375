"""`message.timestamp.type=LogAppendTime`: a record has the time of its append. That of a staged
record is the time of the marker that appends it, whichever process writes the marker, and however
long before its bytes were written."""

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import ScriptedStore, preceded_by, unavailable
from txlog.client.half_messages.half_message import LocalTransactionState, Message
from txlog.client.half_messages.transaction_mq_producer import TransactionMQProducer
from txlog.client.producer.producer import Producer
from txlog.engine.producer_config import IN_LOG, STAGED
from txlog.maintenance.maintenance import Maintenance
from txlog.model import TopicPartition
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.events import SealIndex
from txlog.topic.upkeep.compaction import CompactionLimits, compact
from txlog.topic.upkeep.merging import merge_segments

W0 = TopicPartition("w", 0)
NOW_MS = 1_700_000_000_000
LATER_MS, DAY_MS = 30_000, 86_400_000
BATCH_BYTES = 2_000
TABLE = pa.table({"value": [b"1", b"2"], "at": pa.array([5, 7], pa.timestamp("ms", "UTC"))})


@pytest.fixture
def timed(log: MemoryLog) -> MemoryLog:
    """A log whose clock is in 2023, with a topic with LogAppendTime."""
    log.clock.now_ms = NOW_MS
    log.admin.create_topic("w", 1, config={"message.timestamp.type": "LogAppendTime"})
    return log


def stamps(log: MemoryLog) -> list[int]:
    """The times of all records, in order of offsets, minus the time at the start."""
    polled = log.consumer("w", isolation_level="read_committed").poll(max_records=100)
    return [record.timestamp - NOW_MS for records in polled.values() for record in records]


def rows(log: MemoryLog) -> list[IndexedBatch]:
    topic = log.process().cluster.topic("w")
    return list(topic.batches(topic.catch_up(), 0, 0, topic.state.end_offset(0)))


def test_times_of_staged_records_are_the_markers_and_do_not_fall(timed: MemoryLog) -> None:
    producer = timed.producer("a", transaction_records=STAGED)
    producer.begin_transaction()
    future = producer.send("w", b"0", timestamp_ms=3)
    producer.send_batch("w", TABLE, timestamp="at")
    producer.flush()
    timed.clock.advance(1_000)
    between = timed.elsewhere().send("w", b"between")
    assert between.get().timestamp == NOW_MS + 1_000
    timed.clock.advance(LATER_MS)
    producer.commit_transaction()
    assert stamps(timed) == [1_000, *[LATER_MS + 1_000] * 3]
    assert future.get().timestamp == NOW_MS + LATER_MS + 1_000
    timed.check()


@pytest.mark.in_log
def test_times_of_records_in_the_log_are_those_of_their_append(timed: MemoryLog) -> None:
    producer = timed.producer("a", transaction_records=IN_LOG)
    producer.begin_transaction()
    future = producer.send("w", b"0", timestamp_ms=3)
    timed.clock.advance(1_000)
    producer.flush()
    timed.clock.advance(LATER_MS)
    producer.commit_transaction()
    assert (stamps(timed), future.get().timestamp) == ([1_000], NOW_MS + 1_000)


@pytest.mark.segments
def test_time_is_that_of_the_append_after_a_slow_upload(timed: MemoryLog) -> None:
    """Another producer appends during the upload: times must not fall as offsets rise."""
    timed.store.on(
        "put_new",
        "topics/w/",
        preceded_by(lambda: (timed.elsewhere().send("w", b"x").get(), timed.clock.advance(10))),
    )
    future = timed.producer().send("w", b"slow")
    future.get()
    assert (stamps(timed), future.get().timestamp) == ([0, 10], NOW_MS + 10)


def test_marker_of_another_process_has_its_own_time(timed: MemoryLog) -> None:
    store = ScriptedStore(timed.memory)
    producer = Producer(timed.process(store), transactional_id="a", commit_returns="decided")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_batch("w", TABLE, timestamp="at")
    store.on("create", "topics/w/", unavailable, times=99)
    producer.commit_transaction()
    timed.clock.advance(LATER_MS)
    Maintenance(timed.process()).run_once()
    assert stamps(timed) == [LATER_MS] * 2


def test_time_of_a_half_message_is_that_of_its_decision(timed: MemoryLog) -> None:
    class Slow:
        def execute_local_transaction(self, half: object, arg: object) -> LocalTransactionState:
            timed.clock.advance(LATER_MS)
            return LocalTransactionState.COMMIT_MESSAGE

        def check_local_transaction(self, half: object) -> None: ...

    producer = TransactionMQProducer("g", timed.connection, listener=Slow())
    producer.start(check_in_background=False)
    producer.send_message_in_transaction(Message("w", b"x", timestamp_ms=3))
    assert stamps(timed) == [LATER_MS]


def test_retention_and_searches_count_from_the_commit(timed: MemoryLog) -> None:
    timed.admin.alter_topic_config("w", {"retention.ms": DAY_MS})
    producer = timed.producer("a", transaction_records=STAGED)
    producer.begin_transaction()
    producer.send_batch("w", TABLE, timestamp="at")
    producer.flush()
    timed.clock.advance(LATER_MS)
    producer.commit_transaction()
    consumer = timed.consumer()
    for at_ms, found in ((0, (0, NOW_MS + LATER_MS)), (LATER_MS, (0, NOW_MS + LATER_MS))):
        assert consumer.offsets_for_times({W0: NOW_MS + at_ms}) == {W0: found}
    assert consumer.offsets_for_times({W0: NOW_MS + LATER_MS + 1}) == {W0: None}
    timed.clock.advance(DAY_MS - LATER_MS)
    Maintenance(timed.process()).run_once()
    assert len(stamps(timed)) == 2, "a day after the flush, not after the commit"
    timed.clock.advance(LATER_MS + 1)
    Maintenance(timed.process()).run_once()
    assert stamps(timed) == []


@pytest.mark.segments
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_times_stay_after_rewriting_and_after_the_type_has_changed(
    timed: MemoryLog, policy: str
) -> None:
    timed.admin.alter_topic_config("w", {"cleanup.policy": policy})
    producer = timed.producer("a", transaction_records=STAGED)
    for number in range(6):
        producer.begin_transaction()
        producer.send("w", b"%d" % number, key=b"%d" % (number % 4), timestamp_ms=3)
        producer.flush()
        timed.clock.advance(1_000)
        producer.commit_transaction()
    plain = timed.producer()
    for number in range(3):
        plain.send("w", b"x", key=b"p%d" % number)
        timed.clock.advance(1_000)
        plain.flush()
    timed.admin.alter_topic_config("w", {"message.timestamp.type": "CreateTime"})
    before, segments = stamps(timed), {row.segment for row in rows(timed)}
    assert before == [*range(1_000, 10_000, 1_000)]
    topic = timed.process().cluster.topic("w")
    topic.execute(SealIndex())
    if policy == "delete":
        merge_segments(topic, BATCH_BYTES)
    else:
        compact(topic, timed.clock.wall_ms(), CompactionLimits(1_000, BATCH_BYTES), force=True)
    assert {row.segment for row in rows(timed)} != segments, "nothing was rewritten"
    kept = before if policy == "delete" else [3_000, 4_000, 5_000, 6_000, *before[6:]]
    assert stamps(timed) == kept
    timed.check()


def test_create_times_are_kept_with_any_number_of_equal_ones(log: MemoryLog) -> None:
    log.clock.now_ms = NOW_MS
    log.admin.create_topic("w", 1)
    producer = log.producer("a")
    with producer.transaction():
        for time_ms in (5, 5, 7):
            producer.send("w", b"x", timestamp_ms=NOW_MS + time_ms)
        producer.send_batch("w", TABLE, timestamp="at")
    assert stamps(log) == [5, 5, 7, 5 - NOW_MS, 7 - NOW_MS]
