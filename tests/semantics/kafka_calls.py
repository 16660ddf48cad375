"""One check for each row of the second table of docs/kafka-users.md, call by call."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.logs.memory_log import MemoryLog
from tests.semantics.kafka_rows import (
    DAY_MS,
    LATE0,
    U0,
    Check,
    pending,
    put,
    refuses,
    shows_in,
    values,
)
from tests.stores.scripted_store import Call
from txlog.client.admin import NewTopic
from txlog.client.admin.offset_reset import (
    ToEarliest,
)
from txlog.client.producer.producer import Producer
from txlog.engine.connection import open_connection
from txlog.engine.producer_config import IN_LOG, STAGED, TRANSACTION_RECORDS
from txlog.errors import (
    IllegalTransition,
    InvalidConfig,
    InvalidName,
    InvalidRecord,
    NoOffsetForPartition,
    OffsetOutOfRange,
    OutcomeUnknown,
    ProducerFenced,
    RecordTooLarge,
    TransactionAborted,
    TxlogError,
    UnknownGroup,
    UnknownPartition,
    UnknownTopic,
    UnknownTransaction,
    UnstableOffsetCommit,
)
from txlog.maintenance.maintenance import Maintenance
from txlog.model import OffsetAndMetadata, TopicPartition, TransactionOutcome
from txlog.settings import TopicConfig
from txlog.testing.clock import StillBackground

CALLS: dict[str, Check] = {}
"""The first cell of a row -> its check."""

shows = shows_in(CALLS)


class AtExit(StillBackground):
    """Keeps what a process would call at its end."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []

    def at_exit(self, call: Callable[[], object]) -> Callable[[], None]:
        self.calls.append(call)
        return lambda: self.calls.remove(call)


@shows("`commit` of offsets that a transaction has pending")
def commit_while_pending(log: MemoryLog) -> None:
    put(log, U0)
    consumer = log.consumer("u", group_id="g", enable_auto_commit=True, auto_commit_interval_ms=1)
    values(consumer)
    producer = pending(log, 1)
    refuses(UnstableOffsetCommit, consumer.commit)
    values(consumer)
    producer.abort_transaction()
    values(consumer)
    assert consumer.committed(U0) == 2


@shows("a second transaction with offsets that another one has pending")
def two_pending(log: MemoryLog) -> None:
    first = pending(log, 0, "a")
    refuses(UnstableOffsetCommit, lambda: pending(log, 0, "b"))
    first.commit_transaction()
    pending(log, 0, "c").commit_transaction()


@shows("`position` and `committed` while offsets are pending")
def refused_while_pending(log: MemoryLog) -> None:
    pending(log, 0)
    consumer = log.consumer("u", group_id="g")
    refuses(UnstableOffsetCommit, lambda: consumer.position(U0), lambda: consumer.committed(U0))
    assert values(consumer) == []


@shows("`seek` while offsets are pending")
def sought_while_pending(log: MemoryLog) -> None:
    put(log, U0)
    producer = pending(log, 1)
    consumer = log.consumer("u", group_id="g")
    consumer.seek(U0, 0)
    assert values(consumer) == []
    producer.abort_transaction()
    assert values(consumer) == [b"0", b"1"]


@shows("`commit` beyond the end")
def commit_beyond(log: MemoryLog) -> None:
    consumer = log.consumer("u", group_id="g", enable_auto_commit=True)
    refuses(OffsetOutOfRange, lambda: consumer.commit({U0: 1}), lambda: consumer.commit({U0: -1}))
    consumer.seek(U0, 9)
    consumer.close()
    assert log.consumer(group_id="g").committed(U0) is None


@shows("a topic or partition that is made after `subscribe` or `assign`")
def created_after_subscribe(log: MemoryLog) -> None:
    for reset in ("latest", "none"):
        name = f"made-after-{reset}"
        consumer = log.consumer(name, auto_offset_reset=reset)
        log.admin.create_topic(name)
        put(log, TopicPartition(name, 0), 1)
        assert values(consumer) == [b"0"]


@shows("a topic that is deleted while it is read")
def deleted_while_read(log: MemoryLog) -> None:
    consumer, by_pattern = log.consumer("u"), log.consumer()
    by_pattern.subscribe(pattern="u")
    log.admin.delete_topics("u")
    refuses(UnknownTopic, consumer.poll)
    assert values(by_pattern) == []


@shows("a name that no topic can have, a partition below 0")
def invalid_names(log: MemoryLog) -> None:
    consumer = log.consumer()
    refuses(
        InvalidName,
        lambda: consumer.subscribe("no/topic"),
        lambda: consumer.assign([TopicPartition("..", 0)]),
    )
    refuses(UnknownPartition, lambda: consumer.assign([TopicPartition("u", -1)]))


@shows("offsets of, commits to, records for and deleted from what does not exist")
def missing_topics_and_partitions(log: MemoryLog) -> None:
    consumer, beyond = log.consumer(group_id="g"), TopicPartition("u", 9)
    refuses(
        UnknownTopic,
        lambda: consumer.beginning_offsets([LATE0]),
        lambda: consumer.end_offsets([LATE0]),
        lambda: consumer.offsets_for_times({LATE0: 0}),
        lambda: consumer.commit({LATE0: 0}),
        lambda: log.producer().partitions_for("late"),
        lambda: log.producer().send("late", b"x"),
        lambda: log.admin.delete_records({LATE0: 0}),
    )
    refuses(
        UnknownPartition,
        lambda: consumer.end_offsets([beyond]),
        lambda: consumer.commit({beyond: 0}),
        lambda: log.producer().send("u", b"x", partition=9),
        lambda: log.admin.delete_records({beyond: 0}),
    )


@shows("`seek` right after `subscribe`")
def seek_after_subscribe(log: MemoryLog) -> None:
    put(log, U0)
    consumer = log.consumer("u")
    consumer.seek(U0, 1)
    assert values(consumer) == [b"1"]


@shows("a record that a transaction refuses")
def refused_record(log: MemoryLog) -> None:
    producer = log.producer("p", value_serializer=lambda value: value.encode())
    for wrong in (
        lambda: producer.send("late", "x"),
        lambda: producer.send("u", 5),
        lambda: producer.send("u", "x", partition=-1),
        lambda: producer.send("u", "x", timestamp_ms=-1),
    ):
        producer.begin_transaction()
        producer.send("u", "before")
        refuses(Exception, wrong)
        refuses(TxlogError, producer.commit_transaction)
        producer.abort_transaction()
    assert log.values("u") == []


@shows("a commit after the transaction's timeout")
def late_commit(log: MemoryLog) -> None:
    for records in TRANSACTION_RECORDS:
        producer = log.producer(records, transaction_records=records, transaction_timeout_ms=5)
        producer.begin_transaction()
        producer.send("u", b"late").get()
        log.clock.advance(6)
        if records == IN_LOG:
            Maintenance(log.process()).run_once()
        refuses(TransactionAborted, producer.commit_transaction)
        producer.abort_transaction()
        with producer.transaction():
            producer.send("u", records.encode())
    assert log.values("u") == [records.encode() for records in TRANSACTION_RECORDS]


@shows("listing and aborting an open transaction")
def open_transactions(log: MemoryLog) -> None:
    for records, is_known in ((STAGED, False), (IN_LOG, True)):
        producer = log.producer("p", transaction_records=records)
        tx_id = producer.begin_transaction()
        producer.send("u", b"x").get()
        (listed,) = log.admin.list_transactions()
        assert [one.tx_id for one in listed.all_open] == [tx_id] * is_known
        if is_known:
            assert log.admin.abort_transaction(tx_id).outcome is TransactionOutcome.ABORTED
        else:
            refuses(UnknownTransaction, lambda tx_id=tx_id: log.admin.abort_transaction(tx_id))
            log.elsewhere("p")
        refuses(TxlogError, producer.commit_transaction)
    assert log.values("u") == []


@shows("the state of an id after `init_transactions`")
def state_after_init(log: MemoryLog) -> None:
    for state in ("Empty", "CompleteCommit"):
        producer = log.producer("p")
        assert [one.state for one in log.admin.list_transactions()] == [state]
        with producer.transaction():
            producer.send("u", b"x")
        producer.close()


@shows("`begin_transaction` of a fenced producer with a tag, or with records in the log")
def fenced_with_a_tag(log: MemoryLog) -> None:
    tagged, in_log = log.producer("q"), log.producer("r", transaction_records=IN_LOG)
    for name in ("q", "r"):
        log.elsewhere(name)
    refuses(ProducerFenced, in_log.begin_transaction, lambda: tagged.begin_transaction("a tag"))


@shows("`max.message.bytes`")
def limit_of_a_record(log: MemoryLog) -> None:
    log.admin.alter_topic_config("u", {"max.message.bytes": 100})
    producer = log.producer()
    for _ in range(5):
        producer.send("u", b"x" * 90, key=b"k" * 10)
    producer.flush()
    assert len(log.values("u")) == 5
    refuses(RecordTooLarge, lambda: producer.send("u", b"x" * 91, key=b"k" * 10))


@shows("topics `x.y` and `x_y`")
def names_that_would_collide(log: MemoryLog) -> None:
    for name in ("x.y", "x_y"):
        log.admin.create_topic(name)
    assert {"x.y", "x_y"} <= set(log.admin.list_topics())


@shows("`transaction.timeout.ms` of 0, or above 900000")
def timeouts_out_of_range(log: MemoryLog) -> None:
    for timeout_ms in (0, 900_001):
        refuses(InvalidConfig, lambda ms=timeout_ms: log.producer(transaction_timeout_ms=ms))
    log.producer("p", transaction_timeout_ms=900_000)


@shows("`buffer.memory=0`")
def no_buffer(log: MemoryLog) -> None:
    refuses(InvalidConfig, lambda: log.producer(buffer_memory=0))


@shows("`delivery.timeout.ms=1`")
def no_repeat(log: MemoryLog) -> None:
    producer = log.producer(delivery_timeout_ms=1)
    producer.send("u", b"x")

    def late(call: Call) -> object:
        log.clock.advance(2)
        raise OutcomeUnknown("no answer")

    lost = log.store.on("create", "topics/u/", late, times=9)
    refuses(OutcomeUnknown, producer.flush)
    assert lost.met == 1
    log.store.heal()
    producer.flush()
    assert log.values("u") == [b"x"]


@shows("`subscribe`, or `enable.auto.commit=true`, without a `group.id`")
def no_group(log: MemoryLog) -> None:
    put(log, U0)
    consumer = log.consumer("u", enable_auto_commit=True, auto_commit_interval_ms=0)
    assert (values(consumer), values(consumer)) == ([b"0", b"1"], [])
    consumer.close()
    assert log.admin.list_groups() == []


@shows("`auto.offset.reset=by_duration` without a young enough record")
def no_young_record(log: MemoryLog) -> None:
    put(log, U0)
    log.clock.advance(DAY_MS)
    consumer = log.consumer("u", group_id="g", auto_offset_reset="by_duration:PT0.5S")
    assert consumer.position(U0) == 2


@shows("offsets that a transaction refuses")
def refused_offsets(log: MemoryLog) -> None:
    producer = log.producer("p")
    for wrong in ({LATE0: 0}, {U0: OffsetAndMetadata(0, "x" * 5_000)}):
        producer.begin_transaction()
        refuses(TxlogError, lambda wrong=wrong: producer.send_offsets_to_transaction(wrong, "g"))
        refuses(TxlogError, producer.commit_transaction)
        producer.abort_transaction()
    producer.begin_transaction()
    producer.send("u", b"again")
    producer.commit_transaction()
    assert log.values("u") == [b"again"]


@shows("`delete_records` into an open transaction that is in the log, and -1")
def delete_into_open(log: MemoryLog) -> None:
    put(log, U0)
    producer = log.producer("p", transaction_records=IN_LOG)
    producer.begin_transaction()
    producer.send("u", b"open").get()
    refuses(
        OffsetOutOfRange,
        lambda: log.admin.delete_records({U0: 3}),
        lambda: log.admin.delete_records({U0: 99}),
        lambda: log.admin.delete_records({U0: -2}),
    )
    assert log.admin.delete_records({U0: -1}) == {U0: 2}


@shows("deleting a group, deleting or resetting its offsets, while some are pending")
def delete_pending(log: MemoryLog) -> None:
    log.consumer(group_id="g").commit({U0: 0})
    pending(log, 0)
    refuses(
        UnstableOffsetCommit,
        lambda: log.admin.delete_group("g"),
        lambda: log.admin.delete_group_offsets("g", [U0]),
        lambda: log.admin.reset_group("g", log.admin.plan_group_reset("g", ToEarliest(), [U0])),
    )


@shows("`create_partitions` to the count that there is")
def same_partition_count(log: MemoryLog) -> None:
    before = log.objects()
    log.admin.create_partitions("t", 2)
    assert log.changed_since(before) == []
    refuses(InvalidConfig, lambda: log.admin.create_partitions("t", 1))


@shows("`group.id`, `transactional.id`")
def ids(log: MemoryLog) -> None:
    log.producer("\u00fc b/c:" + "x" * 500)
    for name in ("a\nb", "x" * 513):
        refuses(InvalidName, lambda name=name: log.producer(name))
    for name in ("a b/c:d", "\u00fc\u65e5", "x" * 512):
        log.consumer(group_id=name).commit({U0: 0})
    assert len(log.admin.list_groups()) == 3
    for name in (" ", "a\nb", "x" * 513):
        refuses(InvalidName, lambda name=name: log.consumer(group_id=name))


@shows(
    "topic settings for brokers and their files (`segment.ms`, `min.insync.replicas`, `remote.*`)"
)
def broker_settings(log: MemoryLog) -> None:
    for name in ("segment.ms", "min.insync.replicas", "remote.storage.enable"):
        with pytest.raises(InvalidConfig, match="leave it out"):
            log.admin.create_topics([NewTopic("new", config={name: "1"})])
    assert set(TopicConfig.foreign) >= {"segment.ms", "min.insync.replicas", "remote.*"}


@shows("`compression.type`")
def compressions(log: MemoryLog) -> None:
    for name in ("uncompressed", "gzip", "snappy", "producer"):
        refuses(InvalidConfig, lambda name=name: TopicConfig(compression_type=name))
    for name in ("none", "lz4", "zstd"):
        TopicConfig(compression_type=name)


@shows("`send` outside of a transaction")
def sent_outside(log: MemoryLog) -> None:
    producer = log.producer("p")
    refuses(IllegalTransition, lambda: producer.send("u", b"outside", partition=0))
    with producer.transaction():
        producer.send("u", b"inside", partition=0)
    assert log.values("u") == [b"inside"]


@shows("a record that is refused outside of transactions")
def refused_outside_transactions(log: MemoryLog) -> None:
    producer = log.producer()
    good = producer.send("u", b"good")
    late_ms = log.clock.wall_ms() + DAY_MS
    refuses(InvalidRecord, lambda: producer.send("u", b"bad", timestamp_ms=late_ms))
    assert good.get().offset == 0
    log.admin.create_topic("c", config={"cleanup.policy": "compact"})
    keyed = producer.send("c", b"x", key=b"k")
    producer.send("c", b"x")
    refuses(InvalidRecord, producer.flush, keyed.get)


@shows("records that a program sends and never flushes")
def never_flushed(log: MemoryLog) -> None:
    background = AtExit()
    runtime = replace(log.connection.runtime, background=background)
    for name in (None, "p"):
        producer = Producer(open_connection(log.memory, runtime), transactional_id=name)
        if name is not None:
            producer.init_transactions()
            producer.begin_transaction()
        producer.send("u", b"x")
    (at_exit,) = background.calls
    at_exit()
    assert (background.calls, log.values("u")) == ([], [b"x"])


@shows("timeouts of a future's `get`, of `flush` and `close`")
def ignored_timeouts(log: MemoryLog) -> None:
    producer = log.producer()
    assert producer.send("u", b"0").get(timeout=0).offset == 0
    producer.send("u", b"1")
    producer.flush(timeout=0)
    producer.send("u", b"2")
    producer.close(timeout=0)
    assert log.values("u") == [b"0", b"1", b"2"]


@shows("the future of a record whose transaction fails")
def future_of_a_failed_transaction(log: MemoryLog) -> None:
    for records in TRANSACTION_RECORDS:
        producer = log.producer("p", transaction_records=records)
        producer.begin_transaction()
        future = producer.send("u", b"x", partition=0)
        producer.flush()
        log.elsewhere("p")
        refuses(ProducerFenced, producer.commit_transaction)
        assert future.succeeded() == (records == IN_LOG)


@shows("limits of times and sizes that change while records wait")
def limits_at_send(log: MemoryLog) -> None:
    producer = log.producer("p")
    producer.begin_transaction()
    producer.send("u", b"x" * 100, timestamp_ms=log.clock.wall_ms())
    log.admin.alter_topic_config("u", {"max.message.bytes": 10})
    log.admin.alter_topic_config("u", {"message.timestamp.before.max.ms": 0})
    log.clock.advance(5)
    producer.commit_transaction()
    assert log.values("u") == [b"x" * 100]
    refuses(RecordTooLarge, lambda: log.elsewhere().send("u", b"x" * 100))


@shows("a topic that is deleted while records for it wait")
def deleted_while_records_wait(log: MemoryLog) -> None:
    producer = log.producer("p")
    producer.begin_transaction()
    producer.send("u", b"x")
    log.admin.delete_topics("u")
    refuses(UnknownTopic, producer.commit_transaction)
    producer.abort_transaction()
    producer.begin_transaction()


@shows("`close` in an open transaction")
def closed_in_a_transaction(log: MemoryLog) -> None:
    producer = log.producer("p", transaction_records=IN_LOG)
    producer.begin_transaction()
    producer.send("u", b"written").get()
    producer.send("u", b"waits")
    producer.close()
    assert log.values("u", isolation="read_uncommitted") == [b"written"]
    assert log.values("u") == []


@shows("`position` of one partition where another has none, and `auto.offset.reset=none`")
def one_position_of_two(log: MemoryLog) -> None:
    log.consumer(group_id="g").commit({U0: 0})
    consumer = log.consumer("u", "t", group_id="g", auto_offset_reset="none")
    assert consumer.position(U0) == 0
    refuses(NoOffsetForPartition, consumer.poll)


@shows("where a consumer begins, and where `seek_to_beginning` and `seek_to_end` lead")
def begins_at_assign(log: MemoryLog) -> None:
    put(log, U0, 3)
    consumer = log.consumer("u", group_id="g")
    consumer.commit()
    assert log.consumer(group_id="g").committed(U0) == 0
    log.consumer(group_id="h").commit({U0: 1})
    waiting = log.consumer("u", group_id="h")
    log.consumer(group_id="h").commit({U0: 2})
    assert values(waiting) == [b"1", b"2"]
    consumer.seek_to_end()
    consumer.commit()
    assert log.consumer(group_id="g").committed(U0) == 3


@shows("`commit()` where nothing was read since the last one")
def committed_again(log: MemoryLog) -> None:
    put(log, U0)
    consumer = log.consumer("u", group_id="g")
    values(consumer)
    consumer.commit({U0: OffsetAndMetadata(2, "note")})
    before = log.objects()
    consumer.commit()
    assert log.changed_since(before) == []
    assert log.admin.describe_group("g").partitions[0].metadata == "note"


@shows("`subscribe` after `assign`, by names after by a pattern, and the other way round")
def subscription_replaces_assignment(log: MemoryLog) -> None:
    consumer = log.consumer("u")
    consumer.subscribe(pattern="t")
    assert {where.topic for where in consumer.assignment()} == {"t"}
    consumer.assign([U0])
    assert consumer.assignment() == {U0}
    consumer.subscribe("t")
    assert {where.topic for where in consumer.assignment()} == {"t"}


@shows("`offsets_for_times` at `read_committed`")
def offsets_for_times_at_read_committed(log: MemoryLog) -> None:
    producer = log.producer("p", transaction_records=IN_LOG)
    producer.begin_transaction()
    producer.send("u", b"aborted", timestamp_ms=1_000).get()
    producer.abort_transaction()
    consumer = log.consumer(isolation_level="read_committed")
    assert consumer.offsets_for_times({U0: 500}) == {U0: None}
    log.producer().send("u", b"kept", timestamp_ms=2_000).get()
    assert consumer.offsets_for_times({U0: 500}) == {U0: (1, 2_000)}


@shows("`delete_records` of a topic that is compacted and not deleted")
def deleted_from_compacted(log: MemoryLog) -> None:
    log.admin.create_topic("c", config={"cleanup.policy": "compact"})
    log.producer().send("c", b"x", key=b"k").get()
    where = TopicPartition("c", 0)
    assert log.admin.delete_records({where: 1}) == {where: 1}


@shows("a group without offsets")
def no_offsets_no_group(log: MemoryLog) -> None:
    values(log.consumer("u", group_id="g"))
    assert log.admin.list_groups() == []
    log.consumer(group_id="g").commit({U0: 0})
    assert log.admin.delete_group_offsets("g", [U0]) == [U0]
    refuses(
        UnknownGroup,
        lambda: log.admin.describe_group("g"),
        lambda: log.admin.delete_group_offsets("g", [U0]),
        lambda: log.admin.delete_group("never"),
    )


@shows("deleting offsets of a partition that does not exist")
def offsets_of_no_partition(log: MemoryLog) -> None:
    log.consumer(group_id="g").commit({U0: 0})
    assert log.admin.delete_group_offsets("g", [TopicPartition("u", 9)]) == []


@shows("a topic's name that begins with `__`")
def internal_names(log: MemoryLog) -> None:
    refuses(InvalidName, lambda: log.admin.create_topic("__mine"))


@shows("`create_topics` with -1 partitions, or with one name twice")
def no_default_partitions(log: MemoryLog) -> None:
    refuses(
        InvalidConfig,
        lambda: log.admin.create_topic("new", -1),
        lambda: log.admin.create_topics([NewTopic("new"), NewTopic("new")]),
    )


@shows("limits of `max.message.bytes`, `segment.bytes`, `retention.bytes`, `cleanup.policy`")
def limits_of_settings(log: MemoryLog) -> None:
    assert TopicConfig().segment_bytes == 64 << 20
    for name, allowed, refused in (
        ("max.message.bytes", (1, 1 << 30), (0, (1 << 30) + 1)),
        ("segment.bytes", (1_024, 1 << 30), (1_023, (1 << 30) + 1)),
        ("retention.bytes", (-1, 0), (-2,)),
        ("cleanup.policy", ("compact, delete",), ("", "delete,delete")),
    ):
        for value in allowed:
            TopicConfig.from_dotted({name: value})
        for wrong in refused:
            refuses(InvalidConfig, lambda n=name, w=wrong: TopicConfig.from_dotted({n: w}))
