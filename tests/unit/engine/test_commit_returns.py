"""`commit.returns=decided`: commit returns before markers, offsets and completion are written."""

import json
from collections.abc import Iterator

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import unavailable
from tests.unit.held_fan_out import HeldFanOut
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import open_connection
from txlog.errors import StoreUnavailable
from txlog.model import TopicPartition, TransactionOutcome
from txlog.testing.clock import SeededEntropy

IN0 = TopicPartition("in", 0)


class Hasty:
    """A log and its producer, whose background work runs only when the test allows it."""

    def __init__(self, transaction_records: str) -> None:
        self.log = MemoryLog(transaction_records=transaction_records)
        self.log.admin.create_topic("t", 1)
        self.log.admin.create_topic("u", 1)
        self.log.admin.create_topic("in", 1)
        for _ in range(9):
            self.log.elsewhere().send("in", b"source").get()
        self.fan_out = HeldFanOut(holds_started=True)
        runtime = Runtime(self.log.clock, SeededEntropy(98), self.fan_out)
        self.producer = Producer(
            open_connection(self.log.store, runtime),
            transactional_id="a",
            transaction_records=transaction_records,
            commit_returns="decided",
        )
        self.producer.init_transactions()
        self._seen = len(self.log.store.writes)

    def transaction(self, value: bytes, position: int | None = None) -> None:
        """Commit a record in each topic, and a position of the group."""
        with self.producer.transaction():
            for topic in ("t", "u"):
                self.producer.send(topic, value)
            if position is not None:
                self.producer.send_offsets_to_transaction({IN0: position}, "g")

    def new_events(self) -> list[str]:
        """The events of all entries since the last call, in order."""
        written = [path for verb, path in self.log.store.writes[self._seen :] if verb == "create"]
        self._seen = len(self.log.store.writes)
        objects = self.log.objects()
        return [
            event["type"]
            for path in written
            if "/entries/" in path
            for event in json.loads(objects[path].splitlines()[1])["events"]
        ]


@pytest.fixture(params=["staged", "in.log"])
def hasty(request: pytest.FixtureRequest) -> Iterator[Hasty]:
    found = Hasty(request.param)
    yield found
    found.producer.close()
    found.log.check()


def test_a_commit_returns_with_the_decision(hasty: Hasty) -> None:
    with hasty.producer.transaction() as tx_id:
        hasty.producer.send("t", b"x")
    assert hasty.new_events()[-1] == "commit_prepared"
    assert hasty.log.process().outcome(tx_id) is TransactionOutcome.COMMITTED
    hasty.fan_out.let_go()
    assert hasty.new_events() == ["marker_written"]
    assert hasty.log.values("t") == [b"x"]
    hasty.fan_out.let_go()
    assert hasty.new_events() == ["transaction_completed"]


def test_close_finishes_what_was_decided(hasty: Hasty) -> None:
    hasty.transaction(b"x", position=5)
    hasty.producer.close()
    kinds = hasty.new_events()
    assert kinds[kinds.index("commit_prepared") :] == [
        "commit_prepared",
        "marker_written",
        "marker_written",
        "pending_applied",
        "transaction_completed",
    ]
    assert hasty.log.process().offsets.group("g").committed[IN0].offset == 5


def test_R45_the_next_decision_comes_after_the_markers(hasty: Hasty) -> None:
    hasty.transaction(b"1")
    hasty.transaction(b"2")
    kinds = hasty.new_events()
    first, second = (n for n, kind in enumerate(kinds) if kind == "commit_prepared")
    assert kinds[first:second].count("marker_written") == 2
    hasty.producer.close()
    assert hasty.log.values("t") == [b"1", b"2"]


def test_R8_offsets_follow_the_markers_though_the_next_pend_brings_them(hasty: Hasty) -> None:
    for number in (1, 2):
        hasty.transaction(b"%d" % number, position=number)
    kinds = hasty.new_events()
    assert kinds[: kinds.index("pending_applied")].count("marker_written") == 2
    hasty.producer.close()
    assert hasty.log.process().offsets.group("g").committed[IN0].offset == 2


def test_whoever_meets_what_is_decided_finishes_it(hasty: Hasty) -> None:
    """The process dies after the decision; its next instance shows the records to readers."""
    hasty.transaction(b"1", position=3)
    successor = hasty.log.elsewhere("a")
    assert hasty.log.values("t", "u") == [b"1", b"1"]
    with successor.transaction():
        successor.send("t", b"2")
    assert hasty.log.values("t") == [b"1", b"2"]
    assert hasty.log.process().offsets.group("g").committed[IN0].offset == 3


def test_an_error_of_what_follows_is_told_once_and_made_up_for(hasty: Hasty) -> None:
    hasty.transaction(b"1")
    hasty.log.store.on("create", "topics/", unavailable, holding="marker_written", times=100)
    hasty.fan_out.let_go()
    hasty.log.store.heal()
    hasty.producer.begin_transaction()
    future = hasty.producer.send("t", b"2")
    with pytest.raises(StoreUnavailable):
        hasty.producer.commit_transaction()
    hasty.producer.commit_transaction()
    assert future.get().partition == 0
    hasty.producer.close()
    assert hasty.log.values("t") == [b"1", b"2"]


def test_staged_records_have_no_offset_in_the_log_they_have() -> None:
    for records, offset in (("staged", -1), ("in.log", 0)):
        hasty = Hasty(records)
        with hasty.producer.transaction():
            future = hasty.producer.send("t", b"x")
        assert (future.get().offset, future.get().has_offset) == (offset, offset >= 0)
