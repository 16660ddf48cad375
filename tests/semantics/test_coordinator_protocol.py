"""The coordinator's protocol, sentence by sentence (docs/guarantees.md, 0.5), except the parts
tested in tests/unit/client/producer/test_transaction_protocol.py."""

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import unavailable
from tests.unit.machine_without_journal import sections_of
from txlog.coordinator.coordinator import coordinator_number_of
from txlog.coordinator.events import CommitPrepared, TransactionBegun
from txlog.errors import StoreUnavailable, TxlogError
from txlog.groups.machine import CoordinatorMachine
from txlog.model import OffsetAndMetadata, TopicPartition, TransactionOutcome, TxId
from txlog.settings import LogSettings
from txlog.testing.counting_store import CountingStore
from txlog.verify.facts.journal_walk import walk_journal

U0 = TopicPartition("u", 0)
MANY = 70
"""More than the entries between two snapshots."""


def decided_in(log: MemoryLog, group: str) -> list[TxId]:
    """Transactions in the order in which their coordinator decided to commit them."""
    journal = log.connection.cluster.layout.transactions(
        coordinator_number_of(group, LogSettings().transaction_state_log_num_partitions)
    )
    steps = walk_journal(log.memory, journal, CoordinatorMachine()).steps
    return [step.event.tx_id for step in steps if isinstance(step.event, CommitPrepared)]


@pytest.mark.in_log
def test_control_records_go_to_the_coordinator_and_data_straight_to_its_topic(
    log: MemoryLog,
) -> None:
    producer = log.producer("a")
    before = log.objects()
    producer.begin_transaction()
    producer.send("t", b"a payload that is easy to find").get()
    written = log.changed_since(before)
    payload = [path for path in written if b"easy to find" in log.objects()[path]]
    assert [path.split("/")[0] for path in payload] == ["topics"]
    assert {path.split("/")[0] for path in written} == {"topics", "transactions"}


def test_transactions_of_a_group_are_decided_in_one_order(
    log: MemoryLog,
) -> None:
    """Several producers of one group: each decision comes after the earlier ones."""
    producers = [log.elsewhere(f"p{number}", transaction_group="g") for number in range(4)]
    order = []
    for turn in (2, 0, 3, 1, 1, 0, 2, 3):
        order.append(producers[turn].begin_transaction())
        producers[turn].send("u", b"%d" % len(order)).get()
        producers[turn].commit_transaction()
    assert decided_in(log, "g") == order
    assert log.values("u") == [b"%d" % (number + 1) for number in range(len(order))]


def test_offsets_and_metadata_are_kept_by_group_topic_and_partition(log: MemoryLog) -> None:
    for partition in (0, 1):
        log.producer().send("t", b"x", partition=partition).get()
    producer = log.producer("a")
    with producer.transaction():
        for group in ("g", "h"):
            moved = {
                TopicPartition("t", partition): OffsetAndMetadata(1, f"{group}{partition}")
                for partition in (0, 1)
            }
            producer.send_offsets_to_transaction(moved, group)
    for group in ("g", "h"):
        found = log.admin.describe_group(group).partitions
        assert [(p.where, p.current_offset, p.metadata) for p in found] == [
            (TopicPartition("t", partition), 1, f"{group}{partition}") for partition in (0, 1)
        ]


@pytest.mark.in_log
def test_expired_transaction_does_not_change_committed_offsets(
    log: MemoryLog,
) -> None:
    """The producer dies before it commits; the coordinator expires it; its successor reads the
    group."""
    for number in range(3):
        log.producer().send("u", b"%d" % number).get()
    first = log.producer("a", transaction_timeout_ms=5_000)
    for end, is_last in ((1, False), (2, True)):
        tx_id = first.begin_transaction()
        first.send("t", b"up to %d" % end).get()
        first.send_offsets_to_transaction({U0: end}, "g")
        if not is_last:
            first.commit_transaction()
    log.clock.advance(5_001)
    log.process().coordinator_of("a").maintain()
    assert log.admin.outcome(tx_id) is TransactionOutcome.ABORTED
    successor = log.consumer("u", group_id="g")
    assert successor.committed(U0) == 1
    assert [record.value for record in successor.poll()[U0]] == [b"1", b"2"]
    log.check()


def test_snapshot_keeps_one_offset_per_partition_and_no_finished_pends(
    log: MemoryLog,
) -> None:
    """Compaction by snapshots: a snapshot has the newest value of each key and the pending offsets,
    but never the records of how a transaction ended."""
    producer = log.producer("a")
    for _ in range(MANY):
        with producer.transaction() as last:
            producer.send_offsets_to_transaction({U0: 0}, "g")
    coordinator = log.connection.coordinator_of("g")
    coordinator.journal.prune(0)
    journal = log.connection.cluster.layout.transactions(coordinator.number)
    walk = walk_journal(log.memory, journal, CoordinatorMachine())
    (row,) = sections_of(CoordinatorMachine(), walk.state)["group"]
    assert len(row["committed"]) == 1
    assert row["pending"] == []
    assert walk.state.offsets.group("g").last_commit == last
    entries = [path for path in log.objects() if path.startswith(f"{journal.root}/entries")]
    assert len(entries) < 5, "those before the boundary are gone, markers and all"
    log.check()


@pytest.mark.in_log
def test_coordinator_records_partitions_timeout_and_producer_of_open_transactions(
    log: MemoryLog,
) -> None:
    producer = log.producer("a", transaction_timeout_ms=1_234)
    tx_id = producer.begin_transaction()
    for partition in (0, 1):
        producer.send("t", b"x", partition=partition)
    producer.flush()
    followed = log.process().coordinator_of("a").catch_up().ids["a"]
    (opened,) = followed.open.values()
    assert (opened.tx_id, opened.timeout_ms) == (tx_id, 1_234)
    assert [(p.topic, p.partitions) for p in opened.participants] == [("t", (0, 1))]
    assert (followed.pid, followed.epoch) == (tx_id.pid, tx_id.epoch)


@pytest.mark.in_log
def test_a_coordinator_is_opened_from_its_newest_checkpoint(log: MemoryLog) -> None:
    """The checkpoint holds every open transaction, however old; complete ones are not read
    again."""
    opened = log.elsewhere("old", transaction_group="shared")
    tx_id = opened.begin_transaction()
    opened.send("u", b"open").get()
    producer = log.producer("a", transaction_group="shared")
    for number in range(MANY):
        with producer.transaction():
            producer.send("t", b"%d" % number)
    store = CountingStore(log.memory)
    state = log.process(store).coordinator_of("shared").catch_up()
    assert list(state.ids["old"].open) == [tx_id]
    assert store.snapshot().gets < 100, "of more than 3 entries a transaction"
    opened.commit_transaction()
    assert log.values("u") == [b"open"]
    log.check()


@pytest.mark.in_log
def test_BEGIN_is_durable_before_the_first_record_and_names_its_transaction(log: MemoryLog) -> None:
    producer = log.producer("a")
    tx_id = producer.begin_transaction()
    log.store.on("create", "topics/", unavailable, times=100)
    producer.send("t", b"x")
    with pytest.raises(StoreUnavailable):
        producer.flush()
    journal = log.connection.cluster.layout.transactions(log.connection.coordinator_of("a").number)
    steps = walk_journal(log.memory, journal, CoordinatorMachine()).steps
    assert [s.event.tx_id for s in steps if isinstance(s.event, TransactionBegun)] == [tx_id]
    assert log.process().outcome(tx_id) is TransactionOutcome.OPEN


@pytest.mark.in_log
def test_records_are_not_written_if_their_partition_cannot_be_declared(
    log: MemoryLog,
) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    log.store.on("create", "transactions/", unavailable, times=100)
    producer.send("t", b"x")
    with pytest.raises(TxlogError):
        producer.flush()
    assert log.values("t", isolation="read_uncommitted") == []


@pytest.mark.in_log
def test_batch_carries_its_tx_id_but_not_the_transactional_id(log: MemoryLog) -> None:
    """The document keeps the producer id out of the log; here TxId contains it, for fencing."""
    producer = log.producer("a-name-of-the-users")
    with producer.transaction() as tx_id:
        producer.send("t", b"x")
    entries = [d for path, d in log.objects().items() if path.startswith("topics/t/")]
    assert not any(b"a-name-of-the-users" in data for data in entries)
    appended = [
        event
        for path in log.objects()
        if path.startswith("topics/t/") and "/entries/" in path
        for event in log.events_at(path)
        if event["type"] == "batches_appended"
    ]
    assert [event["tx_id"] for event in appended] == [[tx_id.pid, tx_id.epoch, tx_id.number]]
