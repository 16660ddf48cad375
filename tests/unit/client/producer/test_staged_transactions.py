"""`transaction.records=staged`: a topic holds no records of an open transaction."""

import threading
from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa
import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import (
    Call,
    Effect,
    answer_lost,
    never_lands,
    unavailable,
)
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.append import appender
from txlog.engine.append.producer_batch import BatchMetadata, RecordFuture
from txlog.engine.connection import open_connection
from txlog.errors import (
    DuplicateTransaction,
    InvalidConfig,
    OutcomeUnknown,
    StoreUnavailable,
    TransactionAborted,
    UnstableOffsetCommit,
)
from txlog.layout import is_segment
from txlog.model import TopicPartition, TransactionOutcome
from txlog.settings import LogSettings, ProcessSettings

U0 = TopicPartition("u", 0)
TABLE = pa.table({"key": pa.array([b"k"] * 3), "value": pa.array([b"a", b"b", b"c"])})


@pytest.fixture
def log() -> MemoryLog:
    """A log with topics `t` (2 partitions) and `u` (1)."""
    log = MemoryLog(transaction_records="staged")
    log.admin.create_topic("t", 2)
    log.admin.create_topic("u", 1)
    return log


def committed(log: MemoryLog, group: str = "g") -> int | None:
    found = log.process().offsets.resolve_and_fetch(group, [U0])[U0]
    return None if found is None else found.offset


def test_open_staged_transaction_is_invisible_and_blocks_no_reader(log: MemoryLog) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send("u", b"open")
    producer.flush()
    log.elsewhere().send("u", b"later").get()
    assert log.values("u", isolation="read_uncommitted") == [b"later"]
    assert log.values("u") == [b"later"]
    producer.commit_transaction()
    assert log.values("u") == [b"later", b"open"]
    log.check()


def test_single_topic_transaction_makes_three_writes(log: MemoryLog) -> None:
    producer = log.producer("a")
    with producer.transaction():
        producer.send("u", b"first")
    log.store.writes.clear()
    with producer.transaction():
        producer.send("u", b"x")
    producer.close()
    folders = [path.split("/")[0] for _, path in log.store.writes]
    assert folders == ["transactions", "topics", "transactions"]


def segments(log: MemoryLog) -> list[str]:
    return [path for _, path in log.store.writes if "/segments/" in path]


def test_small_tables_ride_in_the_entry_of_the_decision(log: MemoryLog) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    for topic in ("u", "t", "u"):
        producer.send_batch(topic, TABLE)
        producer.send(topic, b"d")
    producer.commit_transaction()
    assert segments(log) == []
    assert log.values("u") == [b"a", b"b", b"c", b"d"] * 2
    log.check()


def test_flush_makes_small_tables_durable_before_the_decision(log: MemoryLog) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send_batch("u", TABLE)
    producer.send_batch("u", TABLE)
    assert segments(log) == []
    producer.flush()
    assert len(segments(log)) == 2
    producer.send_batch("u", TABLE)
    producer.commit_transaction()
    assert len(segments(log)) == 2
    assert log.values("u") == [b"a", b"b", b"c"] * 3
    log.check()


def test_tables_that_an_entry_cannot_hold_are_uploaded_at_once(log: MemoryLog) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send_batch("u", TABLE)
    producer.send_batch("u", pa.table({"value": [bytes(70_000)]}))
    assert len(segments(log)) == 2
    for _ in range(100):
        producer.send_batch("u", TABLE)
    before = len(segments(log))
    assert 2 < before < 102
    producer.commit_transaction()
    assert len(segments(log)) == before
    assert len(log.values("u")) == 3 + 1 + 300
    log.check()


def test_staged_records_get_offsets_at_commit(log: MemoryLog) -> None:
    log.elsewhere().send("t", b"before", partition=1).get()
    producer = log.producer("a")
    producer.begin_transaction()
    futures = []
    for number in range(3):
        for partition in (1, 0, 1):
            futures.append(producer.send("t", b"%d" % number, partition=partition))
        producer.flush()
    open_ones = [future.get() for future in futures]
    assert {found.offset for found in open_ones} == {-1}
    assert not any(found.has_offset for found in open_ones)
    producer.commit_transaction()
    found = [(future.get().partition, future.get().offset) for future in futures]
    assert found == [(1, 1), (0, 0), (1, 2), (1, 3), (0, 1), (1, 4), (1, 5), (0, 2), (1, 6)]
    assert all(future.get().has_offset for future in futures)


def test_future_has_offset_if_another_process_wrote_the_marker(log: MemoryLog) -> None:
    log.elsewhere().send("u", b"before").get()
    producer = log.producer("a")
    tx_id = producer.begin_transaction()
    future = producer.send("u", b"x")

    def finished_elsewhere(call: Call) -> object:
        log.process().coordinator_of("a").finish("a", tx_id)
        return call()

    log.store.on("create", "topics/u", finished_elsewhere, holding="marker")
    producer.commit_transaction()
    assert future.get().offset == 1
    assert log.values("u") == [b"before", b"x"]


def test_offset_of_a_record_counts_earlier_ones_whose_futures_were_dropped(log: MemoryLog) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    for value in (b"0", b"1", b"2"):
        producer.send("u", value)
        producer.flush()
    kept = producer.send("u", b"3")
    producer.commit_transaction()
    assert kept.get().offset == 3


def test_future_of_aborted_record_raises(log: MemoryLog) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    future = producer.send("u", b"x")
    producer.flush()
    producer.abort_transaction()
    with pytest.raises(TransactionAborted):
        future.get()
    assert log.values("u", isolation="read_uncommitted") == []


def test_delivery_callbacks_run_at_the_end_of_the_transaction(log: MemoryLog) -> None:
    told: list[tuple[type, list[BatchMetadata]]] = []
    producer = log.producer("a")
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.send_batch("u", TABLE, on_delivery=lambda e, b: told.append((type(e), list(b))))
        producer.flush()
        before = len(told)
        end()
        assert len(told) == before + 1
    assert told == [(TransactionAborted, []), (type(None), [BatchMetadata("u", 0, 0, 3)])]


def test_raising_callback_does_not_undo_commit(log: MemoryLog) -> None:
    def fails(*_: object) -> None:
        raise ValueError("a mistake")

    producer = log.producer("a")
    producer.begin_transaction()
    producer.send_batch("u", TABLE, on_delivery=fails)
    with pytest.raises(ValueError, match="a mistake"):
        producer.commit_transaction()
    with producer.transaction():
        producer.send("u", b"next")
    assert log.values("u") == [b"a", b"b", b"c", b"next"]


def test_callbacks_after_a_raising_one_are_called(log: MemoryLog) -> None:
    told: list[Sequence[BatchMetadata]] = []
    failed: list[ValueError] = []

    def fails(*_: object) -> None:
        failed.append(ValueError(f"mistake {len(failed)}"))
        raise failed[-1]

    producer = log.producer("a")
    producer.begin_transaction()
    for callback in (fails, lambda _, found: told.append(found)) * 2:
        producer.send_batch("u", TABLE, on_delivery=callback)
    with pytest.raises(ValueError, match="mistake 0"):
        producer.commit_transaction()
    assert told == [[BatchMetadata("u", 0, 3, 3)], [BatchMetadata("u", 0, 9, 3)]]


def test_staged_uploads_run_concurrently_in_background(log: MemoryLog) -> None:
    """Each of two uploads waits for the other one, so both must run at the same time."""
    both = threading.Barrier(2)

    def meet(call: Call) -> object:
        both.wait(20)
        return call()

    producer = Producer(
        open_connection(log.store, Runtime()), transactional_id="a", transaction_records="staged"
    )
    producer.init_transactions()
    log.store.on("put_new", "segments/", meet, times=2)
    with producer.transaction():
        for _ in range(2):
            assert producer.send_batch("u", TABLE) == 3
    assert log.values("u") == [b"a", b"b", b"c"] * 2


def test_pending_uploads_are_bounded_by_buffer_memory(log: MemoryLog) -> None:
    """A producer whose buffer is full waits for its oldest upload."""
    producer = log.producer("a", buffer_memory=1_000)
    producer.begin_transaction()
    for _ in range(50):
        producer.send("u", b"x" * 100)
    assert (
        producer._sender._unwritten == []
        or sum(flush.batch.nbytes for flush in producer._sender._unwritten) <= 1_000
    )
    producer.commit_transaction()
    assert len(log.values("u")) == 50


def test_only_what_is_not_written_yet_counts_as_pending(log: MemoryLog) -> None:
    producer = log.producer("a", buffer_memory=100_000)
    producer.begin_transaction()
    producer.send("u", b"x" * 60_000)
    producer.flush()
    producer.send_batch("u", TABLE)
    assert len(producer._sender._unwritten) == 1, "its upload is not waited for"
    producer.commit_transaction()
    assert len(log.values("u")) == 4


def test_failed_upload_is_retried_by_commit(log: MemoryLog) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send("u", b"x")
    log.store.on("put_new", "segments/", unavailable)
    with pytest.raises(StoreUnavailable):
        producer.flush()
    producer.send("u", b"y")
    producer.commit_transaction()
    assert log.values("u") == [b"x", b"y"]


def test_a_topic_check_that_failed_is_made_again_by_the_next_flush(log: MemoryLog) -> None:
    """Both tables are uploaded before either waits for the check of their topic."""
    producer = log.producer("a")
    producer.begin_transaction()
    log.store.on("get", "topics/", unavailable, times=1_000)
    producer.send_batch("u", TABLE)
    producer.send_batch("u", TABLE)
    producer.flush()
    log.store.heal()
    producer.commit_transaction()
    assert log.values("u") == [b"a", b"b", b"c"] * 2


def test_transaction_too_large_for_one_entry_has_a_manifest(log: MemoryLog) -> None:
    """Each flush is a segment; nothing of them is in the topic before the decision."""
    producer = log.producer("a")
    count = appender.ENTRY_BATCHES_MAX // 3 + 10
    with producer.transaction():
        futures = [_flushed(producer, number) for number in range(count)]
        log.elsewhere().send("u", b"beside").get()
        assert log.values("u", isolation="read_uncommitted") == [b"beside"]
    assert log.values("u") == [b"beside", *(b"%d" % number for number in range(count))]
    assert [future.get().offset for future in futures] == list(range(1, count + 1))
    with producer.transaction():
        producer.send("u", b"small again")
    assert log.values("u")[-1] == b"small again"
    log.check()


def test_commit_that_was_interrupted_between_two_manifests_decides_nothing(log: MemoryLog) -> None:
    log.connection.entry_batches_max = 0
    producer = log.producer("a", retries=1)
    tx_id = producer.begin_transaction()
    for name in ("t", "u"):
        producer.send(name, name.encode())
    producer.flush()
    log.store.on("put_new", "topics/u", unavailable, times=20)
    with pytest.raises(StoreUnavailable):
        producer.commit_transaction()
    assert log.admin.outcome(tx_id) is TransactionOutcome.OPEN
    assert log.values("t", isolation="read_uncommitted") == []
    log.store.heal()
    producer.commit_transaction()
    assert log.values("t", "u") == [b"t", b"u"]
    log.check()


def test_small_records_ride_in_the_decision_up_to_the_limit_of_all_of_them() -> None:
    log = MemoryLog(LogSettings(entry_records_max_bytes=4_000), transaction_records="staged")
    for name in "abc":
        log.admin.create_topic(name)
    producer = log.producer("a")
    with producer.transaction():
        for name in "abc":
            producer.send(name, b"x" * 1_000)
    segments = [path for path in log.objects() if is_segment(path)]
    assert [path.split("/")[1] for path in segments] == ["c"], "two of three have room"
    assert log.values("a", "b", "c") == [b"x" * 1_000] * 3
    producer.begin_transaction()
    producer.send("a", b"y")
    producer.flush()
    assert sum(map(is_segment, log.objects())) == 2, "what a program flushes is durable at once"
    producer.commit_transaction()
    log.check()


def test_offsets_of_a_table_are_unknown_if_its_marker_does_not_tell_them(log: MemoryLog) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    told: list[Sequence[BatchMetadata]] = []
    producer.send_batch("u", TABLE, on_delivery=lambda _, batches: told.append(batches))
    producer.flush()
    (result,) = producer._staged.complete({})
    result.fire_callbacks()
    assert [batch.base_offset for batches in told for batch in batches] == [-1]


def _flushed(producer: Producer, number: int) -> RecordFuture:
    future = producer.send("u", b"%d" % number)
    producer.flush()
    return future


def test_R36_a_transaction_is_complete_after_its_offsets_are_applied(log: MemoryLog) -> None:
    """Both run in the background; COMMITTED must not overtake offsets that take long to apply."""
    is_complete = threading.Event()
    was_complete = []

    def complete(call: Call) -> object:
        is_complete.set()
        return call()

    def apply(call: Call) -> object:
        was_complete.append(is_complete.wait(0.5))
        return call()

    producer = Producer(
        open_connection(log.store, Runtime()), transactional_id="a", transaction_records="staged"
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("u", b"x")
    producer.send_offsets_to_transaction({U0: 0}, "g")
    log.store.on("create", "transactions/", apply, holding="pending_applied")
    log.store.on("create", "transactions/", complete, holding="transaction_completed")
    producer.commit_transaction()
    producer.close()
    assert (was_complete, is_complete.is_set(), committed(log)) == ([False], True, 0)


@pytest.mark.parametrize("effect", [answer_lost, never_lands, unavailable])
@pytest.mark.parametrize(
    ("path", "event"),
    [("transactions", "pending_applied"), ("transactions", "transaction_completed")],
)
def test_I4_failed_background_completion_is_repaired_by_next_commit(
    log: MemoryLog, path: str, event: str, effect: Effect
) -> None:
    producer = log.producer("a")
    for offset, value in enumerate((b"x", b"y")):
        producer.begin_transaction()
        producer.send("t", value, partition=0)
        producer.send("u", value)
        with suppress(OutcomeUnknown, StoreUnavailable):  # The commit retries it.
            producer.send_offsets_to_transaction({U0: offset}, "g")
        rule = log.store.on("create", path, effect, holding=event) if not offset else None
        for _ in range(2):
            with suppress(OutcomeUnknown, StoreUnavailable):
                producer.commit_transaction()
                break
        assert rule is None or rule.met == 1
        assert log.values("t", "u") == [b"x", b"y"][: offset + 1] * 2
    producer.close()
    assert committed(log) == 1
    log.check()


def test_R37_a_pend_of_unknown_outcome_stops_the_commit(log: MemoryLog) -> None:
    """The commit checks again whether the offsets are pending; otherwise it does not commit."""
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send("t", b"x")
    log.store.on("create", "transactions/", never_lands, holding="offsets_pended", times=10)
    with pytest.raises(OutcomeUnknown):
        producer.send_offsets_to_transaction({U0: 0}, "g")
    with pytest.raises(OutcomeUnknown):
        producer.commit_transaction()
    assert log.values("t") == []
    log.store.heal()
    producer.commit_transaction()
    assert (log.values("t"), committed(log)) == ([b"x"], 0)


def test_R38_an_abort_before_a_prepare_writes_nothing(log: MemoryLog) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send("u", b"x")
    producer.flush()
    before = log.objects()
    producer.abort_transaction()
    assert log.changed_since(before) == []
    with producer.transaction():
        producer.send("u", b"y")
    assert log.values("u") == [b"y"]
    log.check()


def test_R41_pend_lives_for_transaction_timeout(log: MemoryLog) -> None:
    """Uploads may take longer than the ten seconds that a micro-batch's pend lives."""
    producer = log.producer("a", transaction_timeout_ms=60_000)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({U0: 0}, "g")
    log.clock.advance(59_000)
    rival = log.elsewhere("b")
    rival.begin_transaction()
    with pytest.raises(UnstableOffsetCommit):
        rival.send_offsets_to_transaction({U0: 0}, "g")
    producer.send("u", b"x")
    producer.commit_transaction()
    assert (log.values("u"), committed(log)) == ([b"x"], 0)


def test_R42_client_refuses_commit_past_timeout_without_BEGIN(log: MemoryLog) -> None:
    producer = log.producer("a", transaction_timeout_ms=5_000)
    producer.begin_transaction()
    producer.send("u", b"late")
    log.clock.advance(5_001)
    before = log.objects()
    with pytest.raises(TransactionAborted, match="was open for 5001 ms"):
        producer.commit_transaction()
    assert not [path for path in log.changed_since(before) if "segments" not in path]
    producer.abort_transaction()
    with producer.transaction():
        producer.send("u", b"in time")
    assert log.values("u") == [b"in time"]


def test_R42_flush_past_transaction_timeout_is_refused(log: MemoryLog) -> None:
    """A load of an hour must fail at its next flush, not after the whole upload."""
    producer = log.producer("a", transaction_timeout_ms=5_000)
    producer.begin_transaction()
    producer.send("u", b"in time")
    producer.flush()
    log.clock.advance(5_001)
    producer.send("u", b"late")
    with pytest.raises(TransactionAborted, match="open a producer with a longer timeout"):
        producer.flush()
    producer.abort_transaction()
    assert log.values("u", isolation="read_uncommitted") == []


def test_R42_timeout_applies_to_transaction_too_large_for_one_entry(log: MemoryLog) -> None:
    """Its manifests give the transaction no more time."""
    producer = log.producer("a", transaction_timeout_ms=5_000)
    producer.begin_transaction()
    for number in range(appender.ENTRY_BATCHES_MAX // 3 + 10):
        _flushed(producer, number)
    log.clock.advance(5_001)
    with pytest.raises(TransactionAborted, match="was open for 5001 ms"):
        producer.commit_transaction()
    producer.abort_transaction()
    assert log.values("u", isolation="read_uncommitted") == []


def test_R42_transaction_timeout_must_be_below_staging_retention(log: MemoryLog) -> None:
    settings = ProcessSettings(staging_retention_ms=60_000)
    connection = open_connection(log.memory, Runtime(log.clock), process=settings)
    with pytest.raises(InvalidConfig, match=r"staging\.retention\.ms is 60000"):
        Producer(connection, transactional_id="a", transaction_records="staged")


def test_R42_commit_of_unknown_outcome_can_be_repeated_after_timeout(log: MemoryLog) -> None:
    producer = log.producer("a", transaction_timeout_ms=5_000)
    producer.begin_transaction()
    producer.send("u", b"x")
    log.store.on("create", "transactions/", answer_lost, holding="commit_prepared", times=50)
    with pytest.raises(OutcomeUnknown):
        producer.commit_transaction()
    log.store.heal()
    log.clock.advance(60_000)
    producer.commit_transaction()
    assert log.values("u") == [b"x"]


def test_operator_abort_fails_the_next_flush(log: MemoryLog) -> None:
    producer = log.producer("a")
    tx_id = producer.begin_transaction()
    producer.send_offsets_to_transaction({U0: 0}, "g")
    log.process_admin().abort_transaction(tx_id)
    producer.send("u", b"x")
    with pytest.raises(TransactionAborted):
        producer.flush()
    producer.abort_transaction()
    with producer.transaction():
        producer.send("u", b"y")
    assert log.values("u") == [b"y"]


def test_begin_with_committed_tag_raises(log: MemoryLog) -> None:
    producer = log.producer("a")
    with producer.transaction(tag="order 7"):
        producer.send("u", b"x")
    with pytest.raises(DuplicateTransaction):
        log.elsewhere("a").begin_transaction(tag="order 7")


def test_offsets_and_records_of_two_topics_are_all_or_nothing(log: MemoryLog) -> None:
    producer = log.producer("a")
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.send("t", b"x", partition=0)
        producer.send("u", b"y")
        producer.send_offsets_to_transaction({U0: 0}, "g")
        end()
        is_in = end == producer.commit_transaction
        assert log.values("t", "u") == ([b"x", b"y"] if is_in else [])
        assert committed(log) == (0 if is_in else None)
    log.check()
