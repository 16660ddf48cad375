"""A producer completes a transaction in the entries of its next one."""

import logging
from collections.abc import Iterator

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import Call, Effect, failing, full, unavailable
from tests.unit.held_fan_out import HeldFanOut
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import open_connection
from txlog.errors import CommitFailed, ProducerFenced, StoreDenied, StoreFull, StoreUnavailable
from txlog.model import TopicPartition, TransactionOutcome
from txlog.testing.clock import SeededEntropy

IN0 = TopicPartition("in", 0)


class Lingering:
    """A log and its producer, whose completions wait until the test allows them."""

    def __init__(self, transaction_records: str) -> None:
        self.log = MemoryLog(transaction_records=transaction_records)
        self.log.admin.create_topic("t", 2)
        self.log.admin.create_topic("u", 1)
        self.log.admin.create_topic("in", 1)
        for _ in range(9):
            self.log.elsewhere().send("in", b"source").get()
        self.fan_out = HeldFanOut()
        runtime = Runtime(self.log.clock, SeededEntropy(99), self.fan_out)
        self.connection = open_connection(self.log.store, runtime)
        self.producer = Producer(
            self.connection, transactional_id="a", transaction_records=transaction_records
        )
        self.producer.init_transactions()
        self._seen = len(self.log.store.writes)

    def transaction(self, number: int, group: str = "g") -> None:
        """Commit a record and a position of the group."""
        self.producer.begin_transaction()
        self.producer.send("t", b"%d" % number, partition=0)
        if group:
            self.producer.send_offsets_to_transaction({IN0: number}, group)
        self.producer.commit_transaction()

    def new_entries(self) -> list[list[str]]:
        """The kinds of events of each entry since the last call, except those of topics."""
        written = [path for verb, path in self.log.store.writes[self._seen :] if verb == "create"]
        self._seen = len(self.log.store.writes)
        return [
            [event["type"] for event in self.log.events_at(path)]
            for path in written
            if "/entries/" in path and not path.startswith("topics/")
        ]

    def open_states(self) -> list[str]:
        """The states of the open transactions, as another process reads them."""
        coordinators = self.log.process().caught_up()
        return [str(t.state) for c in coordinators for _, t in c.state.open_transactions()]

    def committed(self, group: str = "g") -> int | None:
        """The committed offset as another process reads it, which completes nothing."""
        found = self.log.process().offsets.group(group).committed.get(IN0)
        return None if found is None else found.offset


@pytest.fixture(params=["staged", "in.log"])
def either(request: pytest.FixtureRequest) -> Iterator[Lingering]:
    found = Lingering(request.param)
    yield found
    found.producer.close()
    found.log.check()


@pytest.fixture
def staged() -> Iterator[Lingering]:
    found = Lingering("staged")
    yield found
    found.producer.close()
    found.log.check()


def test_next_transaction_includes_offsets_and_completion_in_its_entries(
    staged: Lingering,
) -> None:
    for number in (1, 2):
        staged.transaction(number)
    assert staged.new_entries() == [
        ["offsets_pended"],
        ["commit_prepared"],
        ["pending_applied", "offsets_pended"],
        ["transaction_completed", "commit_prepared"],
    ]
    assert staged.committed() == 1
    staged.producer.close()
    assert staged.new_entries() == [["pending_applied"], ["transaction_completed"]]
    assert (staged.committed(), staged.log.values("t")) == (2, [b"1", b"2"])


def test_offsets_in_coordinators_journal_share_an_entry_with_COMMITTED(
    staged: Lingering,
) -> None:
    """The id and the group share a journal, so one entry completes the transaction."""
    staged.producer.close()
    staged.producer = Producer(
        staged.connection, transactional_id="b", transaction_group="g", transaction_records="staged"
    )
    staged.producer.init_transactions()
    staged.new_entries()
    for number in (1, 2):
        staged.transaction(number)
    assert staged.new_entries() == [
        ["offsets_pended", "commit_prepared"],
        ["pending_applied", "transaction_completed", "offsets_pended", "commit_prepared"],
    ]
    staged.producer.close()
    assert staged.new_entries() == [["pending_applied", "transaction_completed"]]
    assert staged.committed() == 2


def test_next_BEGIN_or_PREPARE_COMMIT_entry_includes_COMMITTED(either: Lingering) -> None:
    for number in (1, 2):
        either.transaction(number, group="")
    is_staged = either.producer.config.transaction_records == "staged"
    beginning = "commit_prepared" if is_staged else "transaction_begun"
    assert ["transaction_completed", beginning] in either.new_entries()


def test_idle_producer_completes_its_transaction_in_background(either: Lingering) -> None:
    either.transaction(1)
    for _ in range(2):
        either.fan_out.let_go()
    assert either.new_entries()[-2:] == [["pending_applied"], ["transaction_completed"]]
    assert either.committed() == 1
    either.transaction(2)
    assert ["offsets_pended"] in either.new_entries(), "nothing is brought along twice"


def test_R36_COMMITTED_waits_for_offsets_that_no_pend_includes(staged: Lingering) -> None:
    """The next transaction moves another group, so its decision comes after the offsets."""
    staged.transaction(1)
    staged.transaction(2, group="other")
    assert staged.new_entries() == [
        ["offsets_pended"],
        ["commit_prepared"],
        ["offsets_pended"],
        ["pending_applied"],
        ["transaction_completed", "commit_prepared"],
    ]


def test_R36_the_offsets_of_every_group_come_before_COMMITTED(staged: Lingering) -> None:
    staged.producer.begin_transaction()
    staged.producer.send("t", b"x")
    for group in ("g", "h"):
        staged.producer.send_offsets_to_transaction({IN0: 1}, group)
    staged.producer.commit_transaction()
    staged.transaction(2, group="h")
    kinds = [kind for entry in staged.new_entries() for kind in entry]
    assert kinds.index("transaction_completed") > kinds.index("pending_applied")
    assert kinds[: kinds.index("transaction_completed")].count("pending_applied") == 2


def test_refused_pend_does_not_prevent_completion_of_previous_transaction(
    staged: Lingering,
) -> None:
    staged.transaction(1)
    consumer = staged.log.consumer("in", group_id="g")
    consumer.poll()
    staged.producer.begin_transaction()
    metadata = consumer.group_metadata()
    metadata.committed[IN0] = 7
    with pytest.raises(CommitFailed):
        staged.producer.send_offsets_to_transaction({IN0: 8}, metadata)
    staged.producer.abort_transaction()
    for _ in range(2):
        staged.fan_out.let_go()
    assert staged.committed() == 1
    listed = staged.log.admin.list_transactions()
    assert not [opened for listing in listed for opened in listing.all_open]


def test_fenced_decision_leaves_previous_transaction_committed(
    staged: Lingering,
) -> None:
    with staged.producer.transaction() as tx_id:
        staged.producer.send("t", b"1")
    staged.producer.begin_transaction()
    staged.producer.send("t", b"2")
    staged.producer.flush()
    staged.log.elsewhere("a")
    with pytest.raises(ProducerFenced):
        staged.producer.commit_transaction()
    assert staged.log.process().outcome(tx_id) is TransactionOutcome.COMMITTED
    assert staged.log.values("t") == [b"1"]


def test_completion_follows_after_failed_entries_of_next_transaction(staged: Lingering) -> None:
    staged.transaction(1)
    staged.producer.begin_transaction()
    staged.producer.send("t", b"2", partition=0)
    staged.log.store.on("create", "", unavailable, holding="offsets_pended", times=10)
    with pytest.raises(StoreUnavailable):
        staged.producer.send_offsets_to_transaction({IN0: 2}, "g")
    staged.log.store.heal()
    staged.log.store.on("create", "", unavailable, holding="commit_prepared", times=10)
    with pytest.raises(StoreUnavailable):
        staged.producer.commit_transaction()
    staged.log.store.heal()
    staged.producer.commit_transaction()
    staged.producer.close()
    assert (staged.committed(), staged.log.values("t")) == (2, [b"1", b"2"])


def test_transaction_whose_successor_is_interrupted_is_completed_in_background(
    staged: Lingering,
) -> None:
    """The next transaction had taken the completion back, to write it with its own decision."""

    def ctrl_c(_: Call) -> object:
        raise KeyboardInterrupt

    staged.transaction(1, group="")
    staged.producer.begin_transaction()
    staged.producer.send("t", b"2", partition=0)
    staged.producer.flush()
    rule = staged.log.store.on("create", "", ctrl_c, holding="commit_prepared")
    with pytest.raises(KeyboardInterrupt):
        staged.producer.commit_transaction()
    assert rule.met == 1
    staged.fan_out.let_go()
    assert staged.open_states() == []


def test_offset_fetch_by_another_process_applies_lingering_offsets(staged: Lingering) -> None:
    staged.transaction(1)
    fetched = staged.log.process().offsets.resolve_and_fetch("g", [IN0])[IN0]
    assert fetched is not None
    assert fetched.offset == 1
    staged.transaction(2)
    staged.producer.close()
    assert (staged.committed(), staged.log.values("t")) == (2, [b"1", b"2"])


DENIED = failing(StoreDenied("the credentials have expired; renew them."))
IN_COMPLETION = ("pending_applied", "transaction_completed")


@pytest.mark.parametrize("event", IN_COMPLETION)
@pytest.mark.parametrize("effect", [full, DENIED])
def test_store_that_failed_completion_in_background_does_not_fail_next_transaction(
    either: Lingering, effect: Effect, event: str
) -> None:
    if either.producer.config.transaction_records == "in.log" and event == "pending_applied":
        event = "transaction_completed"  # The commit itself has applied the offsets.
    either.transaction(1)
    rule = either.log.store.on("create", "", effect, holding=event, times=100)
    for _ in range(2):
        either.fan_out.let_go()
    assert rule.met > 0
    either.log.store.heal()
    either.transaction(2)
    either.producer.close()
    assert (either.committed(), either.log.values("t")) == (2, [b"1", b"2"])


def test_error_of_previous_transactions_completion_names_it_and_commit_can_be_repeated(
    staged: Lingering,
) -> None:
    with staged.producer.transaction() as tx_id:
        staged.producer.send("t", b"1", partition=0)
    staged.producer.begin_transaction()
    staged.producer.send("t", b"2", partition=0)
    staged.producer.flush()
    staged.log.store.on("create", "", full, times=100)
    staged.fan_out.let_go()
    for message in (
        f"transaction {tx_id} is committed, but not complete: no room",
        f"transaction {tx_id} of 'a' is decided, but not complete: no room",
    ):
        with pytest.raises(StoreFull, match=message):
            staged.producer.commit_transaction()
    staged.log.store.heal()
    staged.producer.commit_transaction()
    assert staged.log.values("t") == [b"1", b"2"]


def test_error_after_the_decision_says_that_the_transaction_is_committed(
    either: Lingering,
) -> None:
    tx_id = either.producer.begin_transaction()
    either.producer.send("t", b"1", partition=0)
    either.log.store.on("create", "topics/", full, holding="marker_written", times=100)
    with pytest.raises(StoreFull, match=f"transaction {tx_id} is committed, but may not be vis"):
        either.producer.commit_transaction()
    either.log.store.heal()
    either.producer.commit_transaction()
    assert either.log.values("t") == [b"1"]


def test_close_warns_of_incomplete_transaction_whose_records_are_visible(
    either: Lingering, caplog: pytest.LogCaptureFixture
) -> None:
    """An error would make a program that ends with it write the records again."""
    with either.producer.transaction() as tx_id:
        either.producer.send("t", b"1", partition=0)
    either.log.store.on("create", "", full, times=100)
    with caplog.at_level(logging.WARNING):
        either.producer.close()
    assert f"transaction {tx_id} is committed, but not complete: no room" in caplog.text
    either.log.store.heal()
    either.log.elsewhere("a")
    listed = either.log.admin.list_transactions()
    assert not [opened for listing in listed for opened in listing.all_open]
