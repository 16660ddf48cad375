"""Ctrl-C in a notebook: the program continues with the same producer and the same consumer.

Each scenario is interrupted at every place of the modules that it tests, once at each place (`make
test`: at a third of them, others each day); then it continues as its user would, and every record
must be there exactly once. `CTRL_C_TIMES=all` interrupts it every time that it passes a place.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from tests.examples import cases
from tests.logs.memory_log import MemoryLog
from tests.processes.interruption import Interruption, is_in_a_block, once_each
from txlog.client.consumer.consumer import Consumer
from txlog.client.half_messages.check_service import half_transactions
from txlog.client.half_messages.half_message import HalfTransaction, LocalTransactionState, Message
from txlog.client.half_messages.transaction_mq_producer import TransactionMQProducer
from txlog.client.producer.producer import Producer
from txlog.client.producer.producer_states import ProducerState
from txlog.engine.append.producer_batch import BatchMetadata, OnDelivery, RecordFuture
from txlog.engine.producer_config import TRANSACTION_RECORDS
from txlog.model import TopicPartition


def adds_to(told: list[Any]) -> OnDelivery:
    """A callback that notes the offsets; between its call and the note Ctrl-C does not come."""
    return lambda _, found: told.append(found)


pytestmark = [pytest.mark.slow, pytest.mark.bytecode]

SENDING = [
    "client/producer/producer.py",
    "engine/append/producer_batch.py",
    "engine/append/typed_batch.py",
    "client/producer/sender.py",
]
STAGING = ["client/producer/open_transaction.py", *SENDING]
APPENDING = ["engine/append/appender.py", "engine/append/producer_batch.py", "topic/topic_log.py"]
TRANSACTIONS = [
    "client/producer/producer.py",
    "client/producer/sender.py",
    "engine/transaction_session.py",
]
OFFSETS = [
    "engine/transaction_session.py",
    "groups/offsets.py",
    "client/producer/producer.py",
    "client/producer/open_transaction.py",
]
COORDINATOR = ["coordinator/coordinator.py", "catalog/cluster.py"]
HALVES = [
    "client/half_messages/transaction_mq_producer.py",
    "client/half_messages/half_store.py",
    "client/half_messages/check_service.py",
]
READING = [
    "client/consumer/consumer.py",
    "client/consumer/poller.py",
    "client/consumer/fetcher.py",
    "client/consumer/record_iteration.py",
]
LOOKING = [
    "client/consumer/assignment.py",
    "topic/read/reader.py",
    "client/consumer/consumer_group.py",
]
JOURNAL = [
    "journal/replication/replica.py",
    "journal/replication/run.py",
    "journal/boundaries/boundary.py",
    "journal/replication/opening.py",
    "journal/machine.py",
]
JOURNAL_AGAIN = pytest.param(JOURNAL, marks=pytest.mark.extra)
"""Transactions, positions and polls pass the same places in the same way."""


@cache
def two_topics() -> dict[str, bytes]:
    """The objects of a log with two empty topics, made once; each story begins with a copy."""
    log = MemoryLog()
    log.admin.create_topic("t", 2)
    log.admin.create_topic("n", 2, pa.schema([("n", pa.int64()), ("m", pa.string())]))
    return log.objects()


class Story:
    """What a user did with one log and saw of it."""

    def __init__(
        self, objects: Mapping[str, bytes] | None = None, certain: Iterable[object] = ()
    ) -> None:
        self.log = MemoryLog(objects=objects or two_topics())
        self.certain = list(certain)
        """Records that were sent, or that a poll returned."""
        self.under_way: list[object] = []
        """Records of the interrupted call, which may have been sent."""

    def require(self, found: list[object]) -> None:
        counts = Counter(found)
        assert max(counts.values()) == 1, f"there twice: {found}"
        assert set(self.certain) <= set(found), f"lost: {set(self.certain) - set(found)}"
        assert set(found) <= {*self.certain, *self.under_way}, f"made up: {found}"
        self.log.check()


def interrupted_everywhere(
    modules: list[str],
    scenario: Callable[[Story, Interruption], None],
    begin: Callable[[], Story] = Story,
) -> None:
    whole = Interruption(modules)
    scenario(begin(), whole)
    is_all = os.environ.get("CTRL_C_TIMES") == "all"
    for at in range(len(whole.places)) if is_all else cases(once_each(whole.places)):
        interruption = whole.at(at)
        try:
            scenario(begin(), interruption)
        except BaseException as error:
            error.add_note(f"interrupted at {at}, {interruption.places[-1]}")
            raise
        assert interruption.has_come


# Sending.


@pytest.mark.parametrize("modules", [SENDING, APPENDING, JOURNAL])
def test_I7_records_sent_around_ctrl_c_are_stored_once(modules: list[str]) -> None:
    def scenario(story: Story, interruption: Interruption) -> None:
        producer = story.log.producer()
        with interruption:
            for number in range(4):
                story.under_way = [b"%d" % number]
                send_one(producer, number)
                story.certain += story.under_way
                if number % 2:
                    producer.flush()
        for number in range(10, 12):
            send_one(producer, number)
            story.certain.append(b"%d" % number)
        producer.close()
        story.require(story.log.values("t"))

    interrupted_everywhere(modules, scenario)


def send_one(producer: Producer, number: int) -> None:
    headers = [("h", b"x")] if number % 2 == 0 else None
    partition = number % 2 if number < 3 else None
    producer.send("t", b"%d" % number, key=b"k", headers=headers, partition=partition)


def test_I7_rows_and_tables_sent_around_ctrl_c_are_stored_once() -> None:
    def scenario(story: Story, interruption: Interruption) -> None:
        producer = story.log.producer()
        told: list[object] = []
        with interruption:
            for number in range(2):
                story.under_way = [number]
                producer.send("n", {"n": number, "m": "x"}, partition=number)
                story.certain += story.under_way
            story.under_way = [7]
            table = pa.table({"n": [7], "m": ["x"]})
            producer.send_batch("n", table, partition=1, on_delivery=adds_to(told))
            story.certain += story.under_way
        producer.send("n", {"n": 10, "m": "x"})
        story.certain.append(10)
        producer.close()
        story.require([value["n"] for value in story.log.values("n")])

    interrupted_everywhere([*SENDING, "engine/append/appender.py"], scenario)


def test_futures_resolve_after_ctrl_c_during_flush() -> None:
    def scenario(story: Story, interruption: Interruption) -> None:
        producer = story.log.producer()
        futures = [producer.send("t", b"%d" % number, partition=0) for number in range(3)]
        with interruption:
            producer.flush()
        assert [future.get().offset for future in futures] == [0, 1, 2]

    interrupted_everywhere(["client/producer/sender.py", *APPENDING], scenario)


# Transactions.


@pytest.mark.parametrize(
    ("modules", "records"),
    [
        (TRANSACTIONS, "in.log"),
        (COORDINATOR, "in.log"),
        (JOURNAL, "in.log"),
        (TRANSACTIONS, "staged"),
        (COORDINATOR, "staged"),
        (JOURNAL, "staged"),
        (STAGING, "staged"),
    ],
)
def test_transaction_is_atomic_after_ctrl_c(modules: list[str], records: str) -> None:
    def scenario(story: Story, interruption: Interruption) -> None:
        producer = story.log.producer("x", transaction_records=records)
        with interruption:
            for number in range(2):
                story.under_way = [b"%d.0" % number, b"%d.1" % number]
                with producer.transaction():
                    for value in story.under_way:
                        producer.send("t", value, key=value)
                story.certain += story.under_way
        if interruption.has_come:
            finish_transaction(producer, story)
        with producer.transaction():
            producer.send("t", b"last")
        story.certain.append(b"last")
        producer.close()
        found = story.log.values("t")
        story.require(found)
        assert len({*story.under_way} & {*found}) in (0, 2)

    interrupted_everywhere(modules, scenario)


def finish_transaction(producer: Producer, story: Story) -> None:
    """Repeat the interrupted commit or abort, as the docstrings advise."""
    if producer._status.state is ProducerState.COMMITTING:
        producer.commit_transaction()
        story.certain += story.under_way
    elif producer._status.state in (ProducerState.ABORTING, ProducerState.IN_TRANSACTION):
        producer.abort_transaction()
        story.under_way = []


@pytest.mark.parametrize("records", [*TRANSACTION_RECORDS, None])
def test_offsets_of_stored_records_are_told_after_ctrl_c(records: str | None) -> None:
    """A callback that Ctrl-C kept from being called is called at the latest by `close`."""

    def scenario(story: Story, interruption: Interruption) -> None:
        options = (
            {} if records is None else {"transactional_id": "x", "transaction_records": records}
        )
        producer, told = story.log.producer(**options), list[Sequence[BatchMetadata]]()
        futures: list[RecordFuture] = []
        if records is not None:
            producer.begin_transaction()
        with interruption:
            futures.append(producer.send("t", b"first", partition=0))
            for number in range(2):
                table = pa.table({"n": [number], "m": ["x"]})
                producer.send_batch("n", table, partition=number, on_delivery=adds_to(told))
            producer.flush() if records is None else producer.commit_transaction()
        # A repeated commit may find the transaction complete, and cannot know the offsets then.
        known = {0, -1} if producer._status.state is ProducerState.COMMITTING else {0}
        finish_transaction(producer, story)
        producer.close()
        for row in story.log.values("n"):
            (metadata,) = (one for (one,) in told if one.partition == row["n"])
            assert metadata.base_offset in known
        if story.log.values("t"):
            assert {future.get().offset for future in futures} <= known

    interrupted_everywhere(STAGING, scenario)


@pytest.mark.parametrize(
    ("records", "is_over"), [("in.log", False), ("in.log", True), ("staged", False)]
)
def test_abort_can_be_repeated_after_ctrl_c(records: str, is_over: bool) -> None:
    """This holds also for a transaction that an operator has already aborted."""

    def scenario(story: Story, interruption: Interruption) -> None:
        producer = story.log.producer("x", transaction_records=records)
        tx_id = producer.begin_transaction()
        producer.send("t", b"aborted")
        producer.flush()
        if is_over:
            story.log.admin.abort_transaction(tx_id)
        with interruption:
            producer.abort_transaction()
        if producer._status.state is not ProducerState.READY:
            producer.abort_transaction()
        for number in range(2):
            with producer.transaction():
                producer.send("t", b"%d" % number, partition=0)
            story.certain.append(b"%d" % number)
        story.require(story.log.values("t"))

    interrupted_everywhere([*TRANSACTIONS, *COORDINATOR, *JOURNAL], scenario)


@pytest.mark.parametrize("records", TRANSACTION_RECORDS)
@pytest.mark.parametrize("modules", [TRANSACTIONS, OFFSETS, JOURNAL])
def test_I6_transactional_copy_loop_resumes_after_ctrl_c(modules: list[str], records: str) -> None:
    def scenario(story: Story, interruption: Interruption) -> None:
        consumer = Consumer("t", root=story.log.process(), group_id="g", **FROM_THE_START)
        producer = story.log.producer("x", transaction_records=records)
        with interruption:
            copy_two(consumer, producer)
        if interruption.has_come:
            finish_transaction(producer, story)
            consumer.seek(SOURCE, consumer.committed(SOURCE) or 0)
        while copy_two(consumer, producer):
            pass
        story.require(story.log.values("out"))

    interrupted_everywhere(modules, scenario, lambda: Story(*something_to_copy()))


@cache
def something_to_copy() -> tuple[dict[str, bytes], list[bytes]]:
    """A log with four batches and a topic to copy them to."""
    log, values = MemoryLog(objects=two_topics()), [b"0", b"1", b"2", b"3"]
    source = log.elsewhere()
    for value in values:
        source.send("t", value, partition=0)
        source.flush()
    log.admin.create_topic("out", 1)
    return log.objects(), values


SOURCE = TopicPartition("t", 0)
FROM_THE_START = {"auto_offset_reset": "earliest", "enable_auto_commit": False}


def copy_two(consumer: Consumer, producer: Producer) -> bool:
    polled = consumer.poll(max_records=2)
    if polled:
        with producer.transaction():
            for record in polled[SOURCE]:
                producer.send("out", record.value)
            positions = {SOURCE: consumer.position(SOURCE)}
            producer.send_offsets_to_transaction(positions, consumer.group_metadata())
    return bool(polled)


# Half messages.


@pytest.mark.parametrize("modules", [HALVES, COORDINATOR, JOURNAL_AGAIN])
def test_half_messages_follow_local_transaction_outcome_after_ctrl_c(
    modules: list[str],
) -> None:
    def scenario(story: Story, interruption: Interruption) -> None:
        orders: set[str] = set()
        producer = TransactionMQProducer("g", story.log.connection, listener=OrderBook(orders))
        producer.start(check_in_background=False)
        with interruption:
            for number in range(2):
                send_order(producer, number)
            producer.send_half(Message("t", b"this stays open"))
            story.log.clock.advance(60_000)
            producer.check()
        send_order(producer, 2)
        story.log.clock.advance(60_000)
        producer.check()
        assert "2" in orders
        story.certain = [b"%s.%d" % (order.encode(), n) for order in orders for n in range(2)]
        story.require(story.log.values("t"))
        assert list(half_transactions(story.log.process().coordinator_of("g"))) == []

    interrupted_everywhere(modules, scenario)


class OrderBook:
    """The local transaction: an order in a database, which the check reads."""

    def __init__(self, orders: set[str]) -> None:
        self._orders = orders

    def execute_local_transaction(
        self, half: HalfTransaction, arg: object
    ) -> LocalTransactionState:
        self._orders.add(half.transaction_id)
        return LocalTransactionState.COMMIT_MESSAGE

    def check_local_transaction(self, half: HalfTransaction) -> LocalTransactionState:
        is_there = half.transaction_id in self._orders
        states = LocalTransactionState
        return states.COMMIT_MESSAGE if is_there else states.ROLLBACK_MESSAGE


def send_order(producer: TransactionMQProducer, number: int) -> None:
    messages = [Message("t", b"%d.%d" % (number, n), partition=n) for n in range(2)]
    producer.send_message_in_transaction(messages, transaction_id=str(number))


# Reading.


@pytest.mark.parametrize("modules", [READING, LOOKING, JOURNAL_AGAIN])
def test_record_iteration_resumes_after_ctrl_c(modules: list[str]) -> None:
    def scenario(story: Story, interruption: Interruption) -> None:
        consumer = reader(story)
        given: list[object] = []
        with interruption:
            for record in consumer:
                given.append(record.value)
                if len(given) % 3 == 0:
                    consumer.commit()
                if len(given) == len(story.certain):
                    break
        while len(given) < len(story.certain):
            given += polled_values(consumer)
        assert polled_values(consumer) == []
        story.require(given)

    interrupted_everywhere(modules, scenario, lambda: Story(*something_to_read()))


@pytest.mark.parametrize("modules", [READING, LOOKING, ["groups/offsets.py"], JOURNAL])
def test_I6_polls_and_commits_resume_after_ctrl_c(modules: list[str]) -> None:
    def scenario(story: Story, interruption: Interruption) -> None:
        consumer = reader(story)
        given: list[object] = []
        with interruption:
            while polled := polled_values(consumer, 4):
                given += polled
                consumer.commit()
        for _ in range(6):
            given += polled_values(consumer)
            consumer.commit()
        if not is_returning(interruption):
            story.require(given)
        ends = consumer.end_offsets(consumer.assignment())
        assert {where: consumer.committed(where) for where in ends} == ends

    interrupted_everywhere(modules, scenario, lambda: Story(*something_to_read()))


def is_returning(interruption: Interruption) -> bool:
    """Whether Ctrl-C came after the poll ended and before its caller received the records."""
    place = interruption.places[-1]
    is_of_poll = interruption.has_come and place[0] == "Consumer.poll"
    return is_of_poll and not is_in_a_block(Consumer.poll.__code__, place)


def reader(story: Story) -> Consumer:
    return story.log.consumer("t", group_id="g", isolation_level="read_committed")


@cache
def something_to_read() -> tuple[dict[str, bytes], list[bytes]]:
    """A log with seven batches in two partitions, one of them aborted."""
    log, committed = MemoryLog(objects=two_topics()), list[bytes]()
    producer = log.elsewhere("source", transaction_records="in.log")
    for number in range(4):
        values = [b"%d.%d" % (number, n) for n in range(3)]
        producer.begin_transaction()
        for n, value in enumerate(values):
            producer.send("t", value, partition=n % 2)
        if number == 1:
            producer.abort_transaction()
            continue
        producer.commit_transaction()
        committed += values
    return log.objects(), committed


def polled_values(consumer: Consumer, max_records: int = 100) -> list[object]:
    polled = consumer.poll(max_records=max_records)
    return [record.value for records in polled.values() for record in records]
