"""The request budget of docs/dev/request-counts.md, counted."""

from collections.abc import Mapping

import pytest

from tests.docs.pages import Page
from tests.source_tree import ROOT
from txlog import Admin, Consumer, Producer, TopicPartition
from txlog.clock import Runtime
from txlog.coordinator.events import Participant
from txlog.engine.connection import Connection, open_connection
from txlog.engine.producer_config import IN_LOG, STAGED
from txlog.engine.transaction_session import TransactionSession
from txlog.groups.state import PendingOffset
from txlog.storage import MemoryStore
from txlog.testing.counting_store import CountingStore, RequestCounts
from txlog.topic.records.conversion import with_timestamp
from txlog.topic.records.python_rows import record_batch_from_rows

REQUESTS = Page(ROOT / "docs" / "dev" / "request-counts.md")
PARTITIONS = 3


class Log:
    """A log in memory with topics to read and to write, and a count of its requests."""

    def __init__(self, topics: int, log_config: Mapping[str, object] | None = None) -> None:
        self.store = CountingStore(MemoryStore(Runtime()))
        self.connection: Connection = open_connection(
            self.store, Runtime(), create=True, log_config=log_config
        )
        self.outputs = [f"out-{number}" for number in range(topics)]
        admin = Admin(self.connection)
        for name in ("in", *self.outputs):
            admin.create_topic(name, PARTITIONS)
        with Producer(self.connection) as producer:
            producer.send("in", b"record", partition=0)

    def counted(self, kind: str = "") -> int:
        """The writes since the last call, or those of one kind of object."""
        counts: RequestCounts = self.store.reset()
        assert counts.lists == 0
        return counts.of("create", kind) if kind else counts.puts


def budget(operation: str, *, topics: int, groups: int, tasks: int = 0) -> tuple[int, int]:
    """PUTs and entries by the page's own formulas."""
    rows = REQUESTS.rows("<!-- request budget -->")
    (row,) = [row for row in rows if row[0] == operation]
    values = {"T": topics, "G": groups, "S": tasks}
    return formula(row[1], values), formula(row[2], values)


def formula(text: str, values: dict[str, int]) -> int:
    """The value of a formula: a sum of products such as `S * T + 4T + 2`."""
    total = 0
    for term in text.split(",")[0].split("+"):
        product = 1
        for factor in term.split("*"):
            number = factor.strip().rstrip("TGS")
            product *= int(number or 1) * values.get(factor.strip()[len(number) :], 1)
        total += product
    return total


ROWS = {
    STAGED: "transaction of the Python producer",
    IN_LOG: "transaction with `transaction.records=in.log`",
}
VALUES = {"small": b"record", "larger": bytes(70_000)}


@pytest.mark.both_ways
@pytest.mark.parametrize("size", VALUES)
@pytest.mark.parametrize("topics", [1, 2, 5])
@pytest.mark.parametrize("groups", [0, 1, 2])
@pytest.mark.parametrize("coordinators", [1, 8])
def test_producer_transaction_matches_the_budget(
    topics: int, groups: int, coordinators: int, transaction_records: str, size: str
) -> None:
    """With 8 coordinators no group has that of the producer."""
    log = Log(topics, {"transaction.state.log.num.partitions": coordinators})
    producer = Producer(
        log.connection, transactional_id="producer", transaction_records=transaction_records
    )
    producer.init_transactions()
    log.store.reset()
    producer.begin_transaction()
    for name in log.outputs:
        for partition in range(PARTITIONS):
            producer.send(name, VALUES[size], partition=partition)
    if size == "larger" or transaction_records == IN_LOG:
        producer.flush()
    for number in range(groups):
        producer.send_offsets_to_transaction({TopicPartition("in", 0): 1}, f"group-{number}")
    producer.commit_transaction()
    producer.close()
    counts = log.store.snapshot()
    found = counts.puts, counts.of("create", "entry")
    row = f"{size} {ROWS[transaction_records]}"
    assert found == budget(row, topics=topics, groups=groups if coordinators > 1 else 0)


@pytest.mark.parametrize("size", VALUES)
def test_flush_matches_the_budget(size: str) -> None:
    log = Log(1)
    producer = Producer(log.connection)
    producer.send(log.outputs[0], b"first").get()
    log.store.reset()
    for partition in range(PARTITIONS):
        producer.send(log.outputs[0], VALUES[size], partition=partition)
    producer.flush()
    counts = log.store.snapshot()
    row = f"{size} flush of a topic, outside of transactions"
    assert (counts.puts, counts.of("create", "entry")) == budget(row, topics=1, groups=0)


@pytest.mark.parametrize("topics", [1, 2, 5])
@pytest.mark.parametrize("groups", [0, 1, 2])
def test_staged_transaction_matches_the_budget(topics: int, groups: int) -> None:
    """The work of the Spark sink with `tasks` tasks, without Spark, for groups of any
    coordinator."""
    log = Log(topics)
    session = TransactionSession(log.connection, "id")
    session.register("run")
    log.store.reset()
    session.begin()
    participants = staged(log, tasks=2)
    for number in range(groups):
        session.pend_staged(f"group-{number}", (moved(log),))
    session.commit(participants)
    session.join()
    counts = log.store.snapshot()
    found = counts.puts, counts.of("create", "entry")
    row = "Spark micro-batch, groups of other coordinators"
    assert found == budget(row, topics=topics, groups=groups, tasks=2)


@pytest.mark.parametrize("topics", [1, 2, 5])
def test_staged_transaction_above_the_limit_of_an_entry_matches_the_budget(topics: int) -> None:
    """The limit is lowered, so that no entry can name these segments."""
    log = Log(topics)
    log.connection.entry_batches_max = 0
    session = TransactionSession(log.connection, "id", "group")
    session.register("run")
    log.store.reset()
    session.begin()
    session.commit(staged(log, tasks=2), pends={"group": (moved(log),)})
    session.join()
    counts = log.store.snapshot()
    found = counts.puts, counts.of("create", "entry")
    row = "Spark micro-batch of more than 4,000 stored batches"
    assert found == budget(row, topics=topics, groups=1, tasks=2)


@pytest.mark.parametrize("topics", [1, 2, 5])
@pytest.mark.parametrize("groups", [0, 1])
def test_staged_transaction_on_the_groups_coordinator_matches_the_budget(
    topics: int, groups: int
) -> None:
    """As for a query: pend and decision are one entry, offsets and completion another."""
    log = Log(topics)
    session = TransactionSession(log.connection, "id", "group")
    session.register("run")
    log.store.reset()
    session.begin()
    session.commit(staged(log, tasks=2), pends={"group": (moved(log),)} if groups else {})
    session.join()
    counts = log.store.snapshot()
    found = counts.puts, counts.of("create", "entry")
    row = "Spark micro-batch, 1 group or none"
    assert found == budget(row, topics=topics, groups=groups, tasks=2)


def staged(log: Log, tasks: int) -> tuple[Participant, ...]:
    """One segment of each task for every topic."""
    participants = []
    for name in log.outputs:
        topic = log.connection.cluster.topic(name)
        rows = with_timestamp(record_batch_from_rows([{"value": b"v"}], topic.schema()), 0)
        segments = tuple(topic.stage({0: [rows]}, 0) for _ in range(tasks))
        participants.append(Participant(topic.topic_id, name, (), segments))
    return tuple(participants)


def moved(log: Log) -> PendingOffset:
    """A new position in the source topic."""
    source = log.connection.cluster.topic("in")
    return PendingOffset("in", source.topic_id, 0, 0, 1)


def test_idle_poll_matches_the_budget() -> None:
    log = Log(1)
    consumer = Consumer("in", root=log.connection)
    log.store.reset()
    assert consumer.poll() == {}
    assert log.store.snapshot().gets == 1
    assert log.counted() == budget("idle poll", topics=1, groups=0)[0]
