"""A reader that a transaction blocks checks that transaction, at most once a second."""

from dataclasses import replace

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import Effect, ScriptedStore, failing, unavailable
from txlog.client.consumer.consumer import Consumer
from txlog.coordinator.events import InitProducer
from txlog.coordinator.transaction import transactional_ids
from txlog.engine.blocked_reader import BlockedReader
from txlog.errors import CorruptData, StoreUnavailable, TransactionAborted
from txlog.model import EPOCH_MAX, TopicPartition, TransactionOutcome, TxId
from txlog.settings import LogSettings

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)


@pytest.mark.in_log
def test_blocked_reader_aborts_transaction_past_its_timeout(
    log: MemoryLog,
) -> None:
    producer = log.producer("a", transaction_timeout_ms=3_000)
    tx_id = producer.begin_transaction()
    producer.send("u", b"hanging").get()
    log.producer().send("u", b"behind").get()
    consumer = log.consumer("u", isolation_level="read_committed")
    log.clock.advance(2_999)
    assert consumer.poll() == {}
    assert log.process().outcome(tx_id) is TransactionOutcome.OPEN
    found = consumer.poll(timeout_ms=5_000)
    assert [record.value for record in found[U0]] == [b"behind"]
    assert log.process().outcome(tx_id) is TransactionOutcome.ABORTED
    producer.send("u", b"too late")
    with pytest.raises(TransactionAborted):
        producer.flush()
    log.check()


@pytest.mark.in_log
def test_reader_above_the_first_record_of_a_late_transaction_ends_it(log: MemoryLog) -> None:
    """Its group has committed there at read_uncommitted."""
    opened = [log.elsewhere(name, transaction_timeout_ms=3_000) for name in "ab"]
    tx_ids = [producer.begin_transaction() for producer in opened]
    for producer in opened:
        producer.send("u", b"hanging").get()
    log.elsewhere().send("u", b"read").get()
    dirty = log.consumer("u", group_id="g")
    dirty.poll()
    dirty.commit()
    consumer = log.consumer("u", group_id="g", isolation_level="read_committed")
    assert consumer.poll() == {}
    assert consumer.blocked_by() == {U0: tx_ids[0]}, "the first of several"
    log.elsewhere().send("u", b"new").get()
    log.clock.advance(3_001)
    found = consumer.poll(timeout_ms=5_000)
    assert [record.value for record in found[U0]] == [b"new"]
    assert consumer.blocked_by() == {}


@pytest.mark.in_log
def test_blocked_reader_warns_once_of_the_blocking_transaction(
    log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    producer = log.producer("a", transaction_timeout_ms=60_000)
    tx_id = producer.begin_transaction()
    producer.send("u", b"open").get()
    log.clock.advance(1_234)
    consumer = log.consumer("u", isolation_level="read_committed")
    assert consumer.poll(timeout_ms=5_000) == {}
    assert consumer.blocked_by() == {U0: tx_id}
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    (line,) = [text for text in said if str(tx_id) in text]
    assert line.startswith(f"records wait for transaction {tx_id} of 'a': Ongoing for 1234 ms, ")
    producer.commit_transaction()
    assert consumer.poll() != {}
    assert consumer.blocked_by() == {}
    assert log.consumer("u").blocked_by() == {}, "at read_uncommitted nothing is in the way"


@pytest.mark.in_log
def test_blocked_reader_finishes_decided_transaction(log: MemoryLog) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send("t", b"1", partition=0)
    producer.send("u", b"2")
    log.store.on("create", "topics/", unavailable, holding="marker_written", times=100)
    with pytest.raises(StoreUnavailable):
        producer.commit_transaction()
    consumer = log.consumer("u", isolation_level="read_committed")
    assert [record.value for record in consumer.poll()[U0]] == [b"2"], "without waiting"
    assert log.values("t") == [b"1"]
    log.check()


@pytest.mark.in_log
def test_blocked_reader_aborts_transaction_of_ids_previous_producer_id(
    log: MemoryLog,
) -> None:
    """After its last epoch an id gets another producer id; the successor dies once registered."""
    coordinator = log.connection.coordinator_of("a")
    log.producer("a").close()
    used_up = replace(coordinator.state.ids["a"], epoch=EPOCH_MAX - 1)
    journal = coordinator.journal
    transactions = replace(coordinator.state, ids=transactional_ids({"a": used_up}))
    state = replace(journal.state, transactions=transactions)
    journal._at, journal.state = replace(journal._at, state=state), state
    journal.snapshot()
    producer = log.producer("a")
    tx_id = producer.begin_transaction()
    producer.send("u", b"open").get()
    log.producer().send("u", b"behind").get()
    fresh_pid = log.connection.cluster.producer_id()
    coordinator.execute(
        InitProducer("a", "b", 60_000, fresh_pid=fresh_pid, now_ms=log.clock.wall_ms())
    )
    consumer = log.consumer("u", isolation_level="read_committed")
    assert [record.value for record in consumer.poll()[U0]] == [b"behind"], "without waiting"
    assert log.process().outcome(tx_id) is TransactionOutcome.ABORTED


@pytest.mark.both_ways
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_unblocked_reader_leaves_expired_transaction_open(log: MemoryLog, isolation: str) -> None:
    producer = log.producer("a", transaction_timeout_ms=1_000)
    tx_id = producer.begin_transaction()
    producer.send("t", b"x", partition=0).get()
    log.clock.advance(10_000)
    topic = "u" if isolation == "read_committed" else "t"
    log.consumer(topic, isolation_level=isolation).poll(timeout_ms=2_000)
    assert log.process().outcome(tx_id) is TransactionOutcome.OPEN


@pytest.mark.in_log
def test_unblock_attempts_run_once_a_second_and_never_fail_a_poll(
    log: MemoryLog,
) -> None:
    producer = log.elsewhere("a", transaction_timeout_ms=1_000)
    producer.begin_transaction()
    producer.send("u", b"x").get()
    log.clock.advance(1_001)
    consumer = Consumer(
        "u", root=log.connection, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    rule = log.store.on("create", "transactions/", unavailable, times=1000)
    for _ in range(20):
        assert consumer.poll() == {}
    assert rule.met == 1, "once a second, however often it polls"
    log.clock.advance(1_000)
    assert consumer.poll() == {}
    assert rule.met == 2
    log.store.heal()
    log.clock.advance(1_000)
    consumer.poll()
    assert consumer.position(U0) == 1, "the hanging transaction is gone"


@pytest.mark.parametrize("effect", [unavailable, failing(CorruptData("damaged; restore it."))])
def test_hanging_transaction_in_unreadable_topic_does_not_block_other_topics(
    effect: Effect,
) -> None:
    settings = LogSettings(transaction_state_log_num_partitions=1)
    log = MemoryLog(settings, transaction_records="in.log")
    for topic, transactional_id in [("broken", "a"), ("sound", "b")]:
        log.admin.create_topic(topic)
        producer = log.elsewhere(transactional_id, transaction_timeout_ms=1_000)
        producer.begin_transaction()
        producer.send(topic, b"hanging").get()
    log.producer().send("sound", b"behind").get()
    log.clock.advance(1_001)
    store = ScriptedStore(log.memory)
    store.on("get", "topics/broken/", effect, times=1_000)
    consumer = Consumer(
        "sound",
        root=log.process(store),
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    found = consumer.poll()[TopicPartition("sound", 0)]
    assert [record.value for record in found] == [b"behind"], "without waiting"
    log.check()


@pytest.mark.in_log
def test_reader_reads_again_if_any_of_its_transactions_has_ended(log: MemoryLog) -> None:
    late, live = log.elsewhere("a", transaction_timeout_ms=1_000), log.elsewhere("b")
    tx_ids = []
    for producer in (late, live):
        tx_ids.append(producer.begin_transaction())
        producer.send("u", b"x").get()
    reader = BlockedReader(log.process())
    assert reader.unblock([]) is False
    assert reader.unblock(tx_ids) is False, "both are open"
    log.clock.advance(1_001)
    assert reader.unblock(tx_ids) is True, "one was past its timeout"
    assert reader.unblock(tx_ids) is False, "it tries once a second"
    log.clock.advance(1_000)
    assert reader.unblock(tx_ids) is False


@pytest.mark.in_log
def test_transaction_that_could_not_be_read_is_logged_later(
    log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    producer = log.elsewhere("a")
    tx_id = producer.begin_transaction()
    producer.send("u", b"x").get()
    store = ScriptedStore(log.memory)
    reader = BlockedReader(log.process(store))
    store.on("get", "transactions/", unavailable, times=1_000)

    def warnings() -> int:
        said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        caplog.clear()
        return sum(f"records wait for transaction {tx_id} " in text for text in said)

    reader.unblock([tx_id])
    assert warnings() == 0
    store.heal()
    found = []
    for blocking in ([tx_id], [tx_id], [], [tx_id], [TxId(99, 0, 0)], [tx_id]):
        log.clock.advance(1_000)
        reader.unblock(blocking)
        found.append(warnings())
    assert found == [1, 0, 0, 0, 0, 1], "again once it has not blocked for a while"
