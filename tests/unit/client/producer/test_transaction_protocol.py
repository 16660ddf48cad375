"""The events that one transaction writes, in the order that docs/architecture.md lists."""

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import preceded_by, unavailable
from txlog.client.producer.producer import Producer
from txlog.coordinator.coordinator import coordinator_number_of
from txlog.engine.producer_config import STAGED
from txlog.errors import StoreUnavailable, UnstableOffsetCommit
from txlog.model import TopicPartition, TransactionOutcome

U0 = TopicPartition("u", 0)


class Journal:
    """Written events, each with the kind of its journal."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._seen = len(log.store.writes)

    def new_events(self) -> list[str]:
        """Events of the entries since the last call, such as `transactions: transaction_begun`."""
        written = [path for verb, path in self._log.store.writes[self._seen :] if verb == "create"]
        self._seen = len(self._log.store.writes)
        return [
            f"{path.partition('/')[0]}: {event['type']}"
            for path in written
            if "/entries/" in path
            for event in self._log.events_at(path)
        ]

    def find(self, kind: str) -> dict[str, object]:
        """The only event of that kind in the log."""
        paths = [path for path in self._log.objects() if "/entries/" in path]
        (found,) = [e for path in paths for e in self._log.events_at(path) if e["type"] == kind]
        return found


@pytest.mark.in_log
def test_committed_transaction_writes_events_in_documented_order(log: MemoryLog) -> None:
    log.producer().send("u", b"input").get()
    producer = log.producer("a")
    journal = Journal(log)
    producer.begin_transaction()
    assert journal.new_events() == [], "a transaction begins with its first record or offset"
    producer.send("t", b"1", partition=0).get()
    assert journal.new_events() == ["transactions: transaction_begun", "topics: batches_appended"]
    producer.send("t", b"2", partition=1).get()
    assert journal.new_events() == ["transactions: participants_added", "topics: batches_appended"]
    producer.send("t", b"3", partition=1).get()
    assert journal.new_events() == ["topics: batches_appended"]
    producer.send_offsets_to_transaction({U0: 1}, "g")
    assert journal.new_events() == ["transactions: offsets_pended"]
    producer.commit_transaction()
    assert journal.new_events() == [
        "transactions: commit_prepared",
        "topics: marker_written",
        "transactions: pending_applied",
        "transactions: transaction_completed",
    ]


@pytest.mark.in_log
def test_aborted_transaction_writes_events_in_documented_order(log: MemoryLog) -> None:
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send("t", b"1").get()
    producer.send_offsets_to_transaction({U0: 0}, "g")
    journal = Journal(log)
    producer.abort_transaction()
    assert journal.new_events() == [
        "transactions: abort_prepared",
        "topics: marker_written",
        "transactions: transaction_completed",
        "transactions: pending_released",
    ]


@pytest.mark.in_log
def test_BEGIN_contains_tx_id_timeout_and_partitions(
    log: MemoryLog,
) -> None:
    producer = log.producer("a", transaction_timeout_ms=1234)
    tx_id = producer.begin_transaction()
    for partition in (0, 1):
        producer.send("t", b"x", partition=partition)
    producer.flush()
    begun = Journal(log).find("transaction_begun")
    assert begun["tx_id"] == [tx_id.pid, tx_id.epoch, tx_id.number]
    assert begun["timeout_ms"] == 1234
    (participant,) = begun["participants"]  # type: ignore[misc]
    assert (participant["topic"], participant["partitions"]) == ("t", [0, 1])


@pytest.mark.both_ways
def test_LAST_COMMIT_of_group_is_the_committed_transaction(log: MemoryLog) -> None:
    producer = log.producer("a")
    tx_id = producer.begin_transaction()
    producer.send_offsets_to_transaction({U0: 0}, "g")
    producer.commit_transaction()
    assert log.admin.describe_group("g").last_commit == tx_id


@pytest.mark.in_log
def test_batches_and_marker_carry_tx_id_and_marker_has_no_key_or_value(
    log: MemoryLog,
) -> None:
    producer = log.producer("a")
    tx_id = producer.begin_transaction()
    producer.send("t", b"x").get()
    producer.commit_transaction()
    journal = Journal(log)
    named = [tx_id.pid, tx_id.epoch, tx_id.number]
    assert journal.find("batches_appended")["tx_id"] == named
    marker = journal.find("marker_written")
    assert (marker["tx_id"], marker["decision"]) == (named, "COMMIT")
    assert not {"key", "value"} & set(marker)


def test_transactional_ids_of_a_transaction_group_share_one_coordinator(log: MemoryLog) -> None:
    for name in ("a", "b", "c", "d"):
        log.producer(name, transaction_group="shared")
        log.producer(f"{name}-alone")
    known = {found.transactional_id: found.coordinator for found in log.admin.list_transactions()}
    assert {known[name] for name in ("a", "b", "c", "d")} == {coordinator_number_of("shared", 8)}
    assert known["a-alone"] == coordinator_number_of("a-alone", 8)
    assert len({known[f"{name}-alone"] for name in ("a", "b", "c", "d")}) > 1


@pytest.mark.both_ways
def test_prepared_commit_is_finished_by_another_process(
    log: MemoryLog, transaction_records: str
) -> None:
    """B69-B72: once PREPARE_COMMIT is stored, any process can write the markers that commit it."""
    producer = log.producer("a")
    tx_id = producer.begin_transaction()
    producer.send("t", b"x")
    log.store.on("create", "topics/", unavailable, holding="marker_written", times=100)
    with pytest.raises(StoreUnavailable):
        producer.commit_transaction()
    if transaction_records == STAGED:  # Staged records block no reader.
        log.process().coordinator_of("a").maintain()
    assert log.values("t") == [b"x"], "a reader that meets it finishes it"
    assert log.process().outcome(tx_id) is TransactionOutcome.COMMITTED
    assert Journal(log).find("transaction_completed")
    log.check()


@pytest.mark.both_ways
def test_recovery_resumes_at_offsets_of_last_committed_transaction(
    log: MemoryLog,
) -> None:
    """B32-B34: the producer dies, its transaction ends, and the next producer reads the group's
    offset.
    """
    for number in range(4):
        log.producer().send("u", b"%d" % number).get()
    first = log.producer("a")
    for end, is_last in ((2, False), (4, True)):
        first.begin_transaction()
        first.send("t", b"up to %d" % end)
        first.send_offsets_to_transaction({U0: end}, "g")
        if not is_last:
            first.commit_transaction()
    first.flush()
    log.elsewhere("a")
    consumer = log.consumer("u", group_id="g")
    assert [record.value for record in consumer.poll()[U0]] == [b"2", b"3"]
    log.check()


@pytest.mark.both_ways
def test_offset_fetch_raises_while_offsets_are_pending(log: MemoryLog) -> None:
    producer = log.producer("a", transaction_timeout_ms=5_000)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({U0: 0}, "g")
    consumer = log.consumer("t", group_id="g")
    with pytest.raises(UnstableOffsetCommit, match="pending on u-0 of group 'g'; try again"):
        consumer.committed(U0)
    assert consumer.committed(TopicPartition("t", 0)) is None, "other partitions are stable"
    log.clock.advance(5_001)
    assert consumer.committed(U0) is None, "it is past its timeout, so the fetch ends it"
    log.check()


@pytest.mark.both_ways
def test_an_offset_fetch_finishes_a_decided_transaction_first(log: MemoryLog) -> None:
    log.producer().send("u", b"x").get()
    producer = log.producer("a")
    producer.begin_transaction()
    producer.send("t", b"result")
    producer.send_offsets_to_transaction({U0: 1}, "g")
    log.store.on("create", "topics/", unavailable, holding="marker_written", times=100)
    with pytest.raises(StoreUnavailable):
        producer.commit_transaction()
    assert log.consumer("t", group_id="g").committed(U0) == 1
    assert log.values("t") == [b"result"], "its records came first (R8)"
    log.check()


@pytest.mark.both_ways
def test_R8_offsets_are_applied_after_markers_in_every_topic(log: MemoryLog) -> None:
    log.producer().send("u", b"x").get()
    producer = log.producer("a")
    producer.begin_transaction()
    for topic in ("t", "u"):
        producer.send(topic, b"result")
    producer.send_offsets_to_transaction({U0: 1}, "g")
    seen: list[list[bytes]] = []
    log.store.on(
        "create",
        "transactions/",
        preceded_by(lambda: seen.append(log.values("t", "u"))),
        holding="pending_applied",
    )
    producer.commit_transaction()
    assert seen == [[b"result", b"x", b"result"]]


@pytest.mark.both_ways
def test_timeout_does_not_abort_decided_transaction(log: MemoryLog) -> None:
    producer = log.producer("a", transaction_timeout_ms=5_000)
    tx_id = producer.begin_transaction()
    producer.send("t", b"x")
    log.store.on("create", "topics/", unavailable, holding="marker_written", times=100)
    with pytest.raises(StoreUnavailable):
        producer.commit_transaction()
    log.clock.advance(10_000_000)
    log.process().coordinator_of("a").maintain()
    assert log.process().outcome(tx_id) is TransactionOutcome.COMMITTED
    assert log.values("t") == [b"x"]


@pytest.mark.both_ways
def test_interleaved_transactions_of_several_producers_all_commit(
    log: MemoryLog,
) -> None:
    producers = [log.producer(f"p{number}") for number in range(6)]
    for producer in producers:
        producer.begin_transaction()
    for producer in producers:
        producer.send("t", b"x").get()
    for producer in reversed(producers):
        Producer.commit_transaction(producer)
    assert log.values("t") == [b"x"] * 6
    log.check()
