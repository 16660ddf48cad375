"""The idempotent producer: sequences, repeats and epochs."""

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import answer_lost
from txlog.client.producer.producer import Producer
from txlog.client.producer.producer_states import ProducerState
from txlog.errors import OutOfOrderSequence, StoreUnavailable, TxlogError
from txlog.topic.producer_state import RecentBatch


def sequences(log: MemoryLog, topic: str, pid: int) -> dict[int, tuple[RecentBatch, ...]]:
    """The recent batches that the log remembers of a producer, by partition."""
    return dict(log.process().cluster.topic(topic).catch_up().producers[pid].recent)


def skip_sequences(producer: Producer, count: int) -> None:
    """Skip `count` sequences as if their records had been lost; no public call can do this."""
    appender = producer._sender.appender
    appender.next_sequences = {k: v + count for k, v in appender.next_sequences.items()}


def test_idempotence_is_on_by_default_and_can_be_disabled(log: MemoryLog) -> None:
    assert log.producer().config.enable_idempotence
    log.producer().send("u", b"x").get()
    log.producer(enable_idempotence=False).send("u", b"x").get()
    assert len(log.process().cluster.topic("u").catch_up().producers) == 1


def test_each_producer_gets_a_distinct_pid(log: MemoryLog) -> None:
    producers = [log.producer(), log.elsewhere(), log.producer("a"), log.elsewhere("b")]
    pids = [producer._sender.appender.pid for producer in producers]
    assert len(set(pids)) == 4
    assert "pid" not in vars(producers[0].config.__class__), "it is invisible to the user"


def test_I7_sequences_start_at_zero_and_rise_by_one_in_each_partition(
    log: MemoryLog,
) -> None:
    producer = log.producer()
    for sizes in ((3, 1), (2, 2)):
        for partition, count in enumerate(sizes):
            for _ in range(count):
                producer.send("t", b"x", partition=partition)
        producer.flush()
    assert sequences(log, "t", producer._sender.appender.pid) == {
        0: (RecentBatch(0, 2, 0), RecentBatch(3, 4, 3)),
        1: (RecentBatch(0, 0, 0), RecentBatch(1, 2, 1)),
    }


def test_I7_a_repeat_is_acknowledged_with_its_offset_and_not_stored(log: MemoryLog) -> None:
    producer = log.producer()
    log.store.on("create", "topics/u/.*/entries", answer_lost)
    assert producer.send("u", b"x").get().offset == 0
    assert log.values("u") == [b"x"]


def test_I7_repeat_of_any_age_is_recognised(log: MemoryLog) -> None:
    """Kafka's window holds five batches; here only the offset of an old batch is forgotten."""
    producer = log.producer()
    for number in range(20):
        producer.send("u", b"%d" % number).get()
    skip_sequences(producer, -20)
    assert producer.send("u", b"0").get().offset == -1
    assert producer.send("u", b"1").get().offset == -1
    assert log.values("u") == [b"%d" % number for number in range(20)]


def test_I7_sequence_gap_is_refused_and_fatal_to_non_transactional_producer(log: MemoryLog) -> None:
    producer = log.producer()
    producer.send("u", b"x").get()
    skip_sequences(producer, 5)
    future = producer.send("u", b"after a gap")
    with pytest.raises(OutOfOrderSequence, match="sequences 6 to 6 came, but 1 is next"):
        producer.flush()
    assert producer._status.state is ProducerState.FATAL_ERROR
    with pytest.raises(OutOfOrderSequence):
        future.get()
    with pytest.raises(OutOfOrderSequence, match=r"send\(\) is not possible: .* error state"):
        producer.send("u", b"y")
    producer.close()
    assert log.values("u") == [b"x"]


@pytest.mark.in_log
def test_after_sequence_gap_methods_raise_txlog_error_and_runtime_error(
    log: MemoryLog,
) -> None:
    """E50 says IllegalStateException, Kafka 4 KafkaException: txlog's class is both."""
    producer = log.producer("a")
    with producer.transaction():
        producer.send("u", b"x")
    producer.begin_transaction()
    skip_sequences(producer, 1)
    with pytest.raises(OutOfOrderSequence):
        producer.send("u", b"y").get()
    for call in (
        lambda: producer.send("u", b"z"),
        producer.begin_transaction,
        producer.commit_transaction,
        lambda: producer.send_offsets_to_transaction({}, "g"),
    ):
        with pytest.raises(TxlogError, match="error state") as raised:
            call()
        assert isinstance(raised.value, RuntimeError)
        assert isinstance(raised.value.__cause__, OutOfOrderSequence)
        assert raised.value.facts["expected_sequence"] == 1
    producer.abort_transaction()
    with producer.transaction():
        producer.send("u", b"again")
    assert log.values("u") == [b"x", b"again"]
    log.check()


def test_resend_by_restarted_producer_is_stored_again(log: MemoryLog) -> None:
    """Idempotence holds within one producer session: a new producer id starts at sequence 0."""
    for _ in range(2):
        log.elsewhere().send("u", b"same").get()
    assert log.values("u") == [b"same", b"same"]


@pytest.mark.segments
def test_idempotence_alone_is_not_atomic_over_topics(log: MemoryLog) -> None:
    producer = log.producer()
    producer.send("t", b"stored")
    producer.send("u", b"not yet")
    log.store.on("put_new", "topics/u", lambda call: (_ for _ in ()).throw(_no_answer()))
    with pytest.raises(StoreUnavailable):
        producer.flush()
    assert (log.values("t"), log.values("u")) == ([b"stored"], [])


def _no_answer() -> StoreUnavailable:
    return StoreUnavailable("no answer; call again.")


@pytest.mark.segments
def test_acknowledged_record_has_stored_segment_and_entry(log: MemoryLog) -> None:
    producer = log.producer()
    future = producer.send("u", b"x")
    before = log.objects()
    assert not future.is_done
    future.get()
    written = {path for path in log.objects() if path not in before}
    assert {path.split("/")[3] for path in written} == {"segments", "entries"}
