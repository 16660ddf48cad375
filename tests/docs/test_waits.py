"""The waits of each operation on a distant store: the table of docs/dev/request-counts.md, counted.

In this simulation a request takes one round trip and nothing else takes time, so that a count is
the same on every machine. The table must be updated for lower counts as well as for higher ones.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.docs.far_batch import FarBatch
from tests.docs.pages import Page
from tests.source_tree import ROOT
from txlog import Admin, Consumer, Producer, TopicPartition
from txlog.coordinator.events import Participant
from txlog.engine.connection import Connection, open_connection, require_own_place
from txlog.engine.producer_config import IN_LOG
from txlog.engine.transaction_session import TransactionSession
from txlog.storage import MemoryStore
from txlog.testing.clock import manual_runtime
from txlog.testing.request_log import described
from txlog.testing.round_trips import ROUND_TRIP_MS, RoundTrips
from txlog.topic.records.batch import Segment, SegmentBatch
from txlog.verify.log_audit import audit_log, stored_objects

REQUESTS = Page(ROOT / "docs" / "dev" / "request-counts.md")
PARTITIONS = 4
RECORDS = 50
LARGE = bytes(70_000)
"""A record that is too large for an entry."""


class FarLog:
    """A log one round trip away, with clients that have already been in use."""

    def __init__(self, folder: Path) -> None:
        """`folder` is for checkpoints."""
        self.folder = folder
        self.rounds = RoundTrips(MemoryStore(manual_runtime()))
        self.connection = self.open(create=True)
        self.admin = Admin(self.connection)
        for name in ("a", "b", "in"):
            self.admin.create_topic(name, PARTITIONS)
        self.producer = Producer(self.connection, transactional_id="id")
        self.producer.init_transactions()
        self.in_log = Producer(
            self.connection, transactional_id="in the log", transaction_records=IN_LOG
        )
        self.in_log.init_transactions()
        self.idempotent = Producer(self.connection)
        self.done = 0
        for _ in range(RECORDS):
            self.idempotent.send("in", b"record").get()
        self.transaction("a")
        self.transaction("a", "b", group="group")
        self.transaction_in_log("a")
        self.transaction_in_log("a", "b", group="group")

    def open(self, *, create: bool = False) -> Connection:
        """Open the log as another process."""
        return open_connection(self.rounds.store, self.rounds.runtime, create=create)

    def transaction(self, *topics: str, group: str = "", value: bytes = b"record") -> None:
        """One transaction with records in every partition of the topics, and a position of the
        group."""
        self.transaction_of(self.producer, topics, group, value)

    def transaction_in_log(self, *topics: str, group: str = "") -> None:
        """The same, with records in the log while it is open."""
        self.transaction_of(self.in_log, topics, group and f"{group} of the other one")

    def transaction_of(
        self,
        producer: Producer,
        topics: tuple[str, ...],
        group: str = "",
        value: bytes = b"record",
    ) -> None:
        """The same by that producer."""
        producer.begin_transaction()
        for name in topics:
            for partition in range(PARTITIONS):
                producer.send(name, value, partition=partition)
        if group:
            self.done += 1
            moved = {TopicPartition("in", 0): self.done}
            producer.send_offsets_to_transaction(moved, group)
        producer.commit_transaction()

    def waits(self, operation: Callable[[], object]) -> int:
        """The round trips of an operation; its requests are printed in case the count is wrong."""
        found = self.rounds.waits(operation)
        print("\n".join(described(self.rounds.store.requests, ROUND_TRIP_MS)))
        return found


def create_log(log: FarLog) -> None:
    """Create a log in a new place; as in `connect`, the place is checked first."""
    rounds = log.rounds
    rounds.store.store = MemoryStore(manual_runtime())
    look = partial(require_own_place, "memory://log", rounds.store, rounds.runtime, None)
    open_connection(rounds.store, rounds.runtime, create=True, require_place=look)


def first_records(connection: Connection) -> None:
    consumer = Consumer("in", root=connection, auto_offset_reset="earliest")
    while not consumer.poll():
        pass


def idle(log: FarLog) -> Callable[[], object]:
    consumer = Consumer("in", root=log.connection, auto_offset_reset="latest")
    consumer.poll(0)
    return lambda: consumer.poll(0)


def decided(pause_ms: int) -> Callable[[FarLog], Callable[[], object]]:
    """A transaction so long after another one of its producer."""

    def prepared(log: FarLog) -> Callable[[], object]:
        producer = Producer(log.connection, transactional_id="decided", commit_returns="decided")
        producer.init_transactions()
        log.transaction_of(producer, ("a",))
        log.rounds.fan_out.idle(pause_ms)
        return lambda: log.transaction_of(producer, ("a",))

    return prepared


def end_to_end(log: FarLog) -> Callable[[], object]:
    consumer = Consumer("a", root=log.connection, auto_offset_reset="latest")
    consumer.poll(0)

    def receive() -> None:
        with log.producer.transaction():
            log.producer.send("a", b"record")
        while not consumer.poll(0):
            pass

    return receive


def verify(log: FarLog) -> None:
    connection = log.open()
    assert audit_log(connection, (), stored_objects(connection)).findings == []


def micro_batch(step: str) -> Callable[[FarLog], Callable[[], object]]:
    """A step of a micro-batch other than the query's first; or "all" steps."""

    def prepared(log: FarLog) -> Callable[[], object]:
        for name in ("numbers", "out"):
            log.admin.create_topic(name, PARTITIONS)
        batch = FarBatch(log.rounds, log.idempotent, log.folder)
        for _ in range(3):
            batch.put()
            batch.run()
            batch.pass_time()
        batch.put()
        steps = {**batch.steps(), "all": batch.run}
        for name, call in steps.items():
            if name == step:
                return call
            if step != "all":
                call()
        raise KeyError(step)

    return prepared


def large(topics: int, segments: int, partitions: int) -> Callable[[FarLog], Callable[[], object]]:
    """The commit of segments that each have a batch for every partition of their topic."""

    def prepared(log: FarLog) -> Callable[[], object]:
        session = TransactionSession(log.connection, "large")
        session.register("instance")
        participants = []
        for number in range(topics):
            log.admin.create_topic(f"wide-{number}", partitions)
            topic = log.connection.cluster.topic(f"wide-{number}")
            topic.catch_up()
            batches = tuple(SegmentBatch(p, 1, 1_000 * p, 900, p, 0, 0) for p in range(partitions))
            named = (topic.layout.segment(topic.new_name()) for _ in range(segments))
            staged = tuple(Segment(path, 0, batches) for path in named)
            participants.append(Participant(topic.topic_id, topic.name, segments=staged))

        def commit() -> None:
            session.begin(checks_fencing=False)
            session.commit(tuple(participants))

        return commit

    return prepared


OPERATIONS: dict[str, Callable[[FarLog], Callable[[], object]]] = {
    "transaction: 1 topic": lambda log: lambda: log.transaction("a"),
    "transaction: 2 topics and a group's offsets": lambda log: (
        lambda: log.transaction("a", "b", group="group")
    ),
    "transaction: 2 topics and a group of its own coordinator": lambda log: (
        lambda: log.transaction("a", "b", group="id")
    ),
    "transaction: 1 topic, until it is decided": decided(1_000),
    "transaction: 1 topic, until it is decided, without a pause": decided(0),
    "transaction above 64 KB: 1 topic": lambda log: lambda: log.transaction("a", value=LARGE),
    "transaction above 64 KB: 2 topics and a group's offsets": lambda log: (
        lambda: log.transaction("a", "b", group="group", value=LARGE)
    ),
    "with records in the log: 1 topic": lambda log: lambda: log.transaction_in_log("a"),
    "with records in the log: 2 topics and a group's offsets": lambda log: (
        lambda: log.transaction_in_log("a", "b", group="group")
    ),
    "commit of 20 topics x 16 segments x 64 partitions": large(20, 16, 64),
    "commit of 100 topics x 100 segments x 8 partitions": large(100, 100, 8),
    "idempotent send and flush": lambda log: lambda: log.idempotent.send("a", b"record").get(),
    "idempotent send and flush, above 64 KB": lambda log: (
        lambda: log.idempotent.send("a", LARGE).get()
    ),
    "begin, send, commit until a consumer has it": end_to_end,
    "idle poll": idle,
    "new process to first records": lambda log: lambda: first_records(log.open()),
    "new consumer to first records": lambda log: lambda: first_records(log.connection),
    "new producer and `init_transactions`": lambda log: (
        lambda: Producer(log.connection, transactional_id="new").init_transactions()
    ),
    "create a log": lambda log: lambda: create_log(log),
    "create a topic": lambda log: lambda: log.admin.create_topic("new", PARTITIONS),
    "list groups with their lag": lambda log: log.admin.describe_groups,
    "list transactional ids": lambda log: log.admin.list_transactions,
    "micro-batch: `latestOffset` and `partitions`": micro_batch("plan"),
    "micro-batch: the writer is made": micro_batch("make the writer"),
    "micro-batch: a task reads": micro_batch("read"),
    "micro-batch: a task stages": micro_batch("stage"),
    "micro-batch: `commit`": micro_batch("commit"),
    "micro-batch, 2 partitions to 1 topic": micro_batch("all"),
    f"verify a log of {RECORDS} appends and 2 transactions": lambda log: lambda: verify(log),
}


def test_waits_table_lists_every_operation() -> None:
    assert [row[0] for row in REQUESTS.rows("<!-- waits -->")] == list(OPERATIONS)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_number_of_waits_matches_the_table(operation: str, tmp_path: Path) -> None:
    log = FarLog(tmp_path)
    (stated,) = [row[1] for row in REQUESTS.rows("<!-- waits -->") if row[0] == operation]
    assert log.waits(OPERATIONS[operation](log)) == int(stated)
