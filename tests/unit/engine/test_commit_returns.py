"""`commit.returns=decided`: commit returns before markers, offsets and completion are written."""

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


class EarlyCommits:
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
        return [
            event["type"]
            for path in written
            if "/entries/" in path
            for event in self.log.events_at(path)
        ]


@pytest.fixture(params=["staged", "in.log"])
def early(request: pytest.FixtureRequest) -> Iterator[EarlyCommits]:
    found = EarlyCommits(request.param)
    yield found
    found.producer.close()
    found.log.check()


def test_commit_returns_after_decision_and_before_markers(early: EarlyCommits) -> None:
    with early.producer.transaction() as tx_id:
        early.producer.send("t", b"x")
    assert early.new_events()[-1] == "commit_prepared"
    assert early.log.process().outcome(tx_id) is TransactionOutcome.COMMITTED
    early.fan_out.let_go()
    assert early.new_events() == ["marker_written"]
    assert early.log.values("t") == [b"x"]
    early.fan_out.let_go()
    assert early.new_events() == ["transaction_completed"]


def test_close_completes_decided_transaction(early: EarlyCommits) -> None:
    early.transaction(b"x", position=5)
    early.producer.close()
    kinds = early.new_events()
    assert kinds[kinds.index("commit_prepared") :] == [
        "commit_prepared",
        "marker_written",
        "marker_written",
        "pending_applied",
        "transaction_completed",
    ]
    assert early.log.process().offsets.group("g").committed[IN0].offset == 5


def test_R45_the_next_decision_comes_after_the_markers(early: EarlyCommits) -> None:
    early.transaction(b"1")
    early.transaction(b"2")
    kinds = early.new_events()
    first, second = (n for n, kind in enumerate(kinds) if kind == "commit_prepared")
    assert kinds[first:second].count("marker_written") == 2
    early.producer.close()
    assert early.log.values("t") == [b"1", b"2"]


def test_R8_offsets_included_in_next_pend_follow_the_markers(early: EarlyCommits) -> None:
    for number in (1, 2):
        early.transaction(b"%d" % number, position=number)
    kinds = early.new_events()
    assert kinds[: kinds.index("pending_applied")].count("marker_written") == 2
    early.producer.close()
    assert early.log.process().offsets.group("g").committed[IN0].offset == 2


def test_next_instance_finishes_decided_transaction_of_dead_process(early: EarlyCommits) -> None:
    """The process dies after the decision; its next instance shows the records to readers."""
    early.transaction(b"1", position=3)
    successor = early.log.elsewhere("a")
    assert early.log.values("t", "u") == [b"1", b"1"]
    with successor.transaction():
        successor.send("t", b"2")
    assert early.log.values("t") == [b"1", b"2"]
    assert early.log.process().offsets.group("g").committed[IN0].offset == 3


def test_next_commit_writes_marker_that_failed_in_background(early: EarlyCommits) -> None:
    early.transaction(b"1")
    early.log.store.on("create", "topics/", unavailable, holding="marker_written", times=100)
    early.fan_out.let_go()
    early.log.store.heal()
    early.producer.begin_transaction()
    future = early.producer.send("t", b"2")
    early.producer.commit_transaction()
    assert future.get().partition == 0
    early.producer.close()
    assert early.log.values("t") == [b"1", b"2"]


def test_close_raises_error_that_keeps_committed_records_invisible(early: EarlyCommits) -> None:
    with early.producer.transaction() as tx_id:
        early.producer.send("t", b"1")
    early.log.store.on("create", "topics/", unavailable, holding="marker_written", times=100)
    with pytest.raises(StoreUnavailable, match=f"transaction {tx_id} is committed, but not comp"):
        early.producer.close()
    early.log.store.heal()
    early.log.elsewhere("a")
    assert early.log.values("t") == [b"1"]


def test_close_warns_of_incomplete_transaction_once_its_records_are_visible(
    early: EarlyCommits, caplog: pytest.LogCaptureFixture
) -> None:
    """An error would make a program that ends with it write the records again."""
    with early.producer.transaction() as tx_id:
        early.producer.send("t", b"1")
    early.fan_out.let_go()
    assert early.log.values("t") == [b"1"]
    early.log.store.on("create", "", unavailable, holding="transaction_completed", times=100)
    early.producer.close()
    early.log.store.heal()
    assert f"transaction {tx_id} is committed, but not complete" in caplog.text
    early.log.elsewhere("a")


def test_records_have_offset_when_commit_returns_only_if_in_log() -> None:
    for records, offset in (("staged", -1), ("in.log", 0)):
        early = EarlyCommits(records)
        with early.producer.transaction():
            future = early.producer.send("t", b"x")
        assert (future.get().offset, future.get().has_offset) == (offset, offset >= 0)
