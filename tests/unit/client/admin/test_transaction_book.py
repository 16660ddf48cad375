"""What a process that looks at the newest transactions again and again reads and keeps."""

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.admin import Admin, transaction_book
from txlog.client.admin.history import COVERED_SINCE_MS
from txlog.client.producer.producer import Producer
from txlog.coordinator.events import InitProducer
from txlog.model import TopicPartition, TxId
from txlog.settings import LogSettings
from txlog.testing.counting_store import CountingStore

MINUTE_MS = 60_000


@pytest.fixture
def log() -> MemoryLog:
    log = MemoryLog(LogSettings(transaction_state_log_num_partitions=2))
    log.clock.advance(600 * MINUTE_MS)
    log.admin.create_topic("t")
    return log


def commit(producer: Producer, count: int = 1) -> None:
    for _ in range(count):
        with producer.transaction():
            producer.send("t", b"x")


def names(admin: Admin, since: str = "1h") -> list[str]:
    return admin.transaction_history(since)["transaction"].to_pylist()


def covered_ms(admin: Admin, since: str = "1h") -> int:
    table = admin.transaction_history(since)
    return int(table.schema.metadata[COVERED_SINCE_MS])


@pytest.fixture
def producers(log: MemoryLog) -> tuple[Producer, Producer]:
    """Of two coordinators."""
    return log.producer("a"), log.producer("b")


def test_second_look_reads_new_entries_only(
    log: MemoryLog, producers: tuple[Producer, Producer]
) -> None:
    for producer in producers:
        commit(producer, 30)
    store = CountingStore(log.memory)
    admin = Admin(log.process(store))
    assert len(names(admin)) == 60
    entries = sum(each.journal.next_slot for each in log.connection.caught_up())
    first_look = store.reset().of("get", "entry")
    # Once to open the journals, once for the history, and some by the search for an hour ago.
    assert first_look <= 2 * entries + 40
    assert len(names(admin)) == 60
    nothing_new = store.reset().of("get", "entry")
    assert nothing_new <= 4, "the catch-up looks for the next entries of two journals"
    commit(producers[0])
    log.clock.advance(1)
    assert len(names(admin)) == 61
    assert store.reset().of("get", "entry") <= nothing_new + 4
    assert names(admin) == names(log.process_admin())


def test_look_further_back_reads_again_and_finds_what_is_older(
    log: MemoryLog, producers: tuple[Producer, Producer]
) -> None:
    commit(producers[0], 3)
    log.clock.advance(90 * MINUTE_MS)
    commit(producers[1], 2)
    log.clock.advance(1)
    admin = log.process_admin()
    assert len(names(admin, "1h")) == 2
    assert len(names(admin, "2h")) == 5
    assert len(names(admin, "1h")) == 2


def test_only_the_newest_are_kept_and_the_table_says_from_when_on(
    log: MemoryLog, producers: tuple[Producer, Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_book, "COURSES_MAX", 10)
    monkeypatch.setattr(transaction_book, "FIRST_ENTRIES", 2)
    ends: list[int] = []
    for number in range(20):
        commit(producers[number % 2])
        ends.append(log.clock.wall_ms())
        log.clock.advance(1_000)
    new, old = log.process_admin(), log.process_admin()
    every = names(old, "1h")
    assert len(every) == 10
    assert names(new) == every
    assert every[-1].endswith("-0-9")
    first_ms = covered_ms(new)
    assert ends[7] < first_ms <= ends[10]
    commit(producers[0], 5)
    log.clock.advance(1)
    assert (len(names(new)), names(new)[:5]) == (10, every[5:])
    assert covered_ms(new) > first_ms
    assert names(new)[-5:] == names(log.process_admin())[-5:]


def test_first_look_reads_no_further_back_than_it_takes(
    log: MemoryLog, producers: tuple[Producer, Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_book, "COURSES_MAX", 10)
    for producer in producers:
        commit(producer, 100)
    store = CountingStore(log.memory)
    admin = Admin(log.process(store))
    admin.list_transactions()
    store.reset()
    assert len(names(admin)) == 10
    entries = sum(each.journal.next_slot for each in log.connection.caught_up())
    assert store.reset().of("get", "entry") < entries / 2


def test_entries_that_are_pruned_between_two_looks_are_not_covered(
    log: MemoryLog, producers: tuple[Producer, Producer]
) -> None:
    commit(producers[0], 3)
    admin = log.process_admin()
    assert len(names(admin)) == 3
    log.clock.advance(MINUTE_MS)
    commit(producers[0], 300)
    log.clock.advance(MINUTE_MS)
    commit(producers[0], 2)
    log.clock.advance(1)
    for coordinator in log.connection.caught_up():
        coordinator.journal.prune(2, 1)
    assert 0 < len(names(admin)) < 303
    assert covered_ms(admin) >= log.clock.wall_ms() - 2 * MINUTE_MS - 1


def test_registration_ends_an_open_transaction_that_was_kept(log: MemoryLog) -> None:
    admin = log.process_admin()
    first = log.producer("p", transaction_records="in.log")
    first.begin_transaction()
    first.send("t", b"b")
    first.flush()
    log.clock.advance(1)
    assert admin.transaction_history("1h")["outcome"].to_pylist() == ["OPEN"]
    log.elsewhere("p")
    log.clock.advance(1)
    assert admin.transaction_history("1h")["outcome"].to_pylist() == ["ABORTED"]


def steps(admin: Admin, transaction: str) -> list[tuple[str, str, str]]:
    return [
        (each.step, each.where, each.detail) for each in admin.transaction_timeline(transaction)
    ]


def test_timeline_has_each_step_of_a_committed_transaction(log: MemoryLog) -> None:
    log.admin.create_topic("u")
    for name in ("before", "p", "after"):
        producer = log.producer(name)
        tx_id = producer.begin_transaction()
        producer.send("t", b"x")
        producer.flush()
        log.clock.advance(10)
        producer.send("u", b"x")
        producer.send_offsets_to_transaction({TopicPartition("t", 0): 0}, "g")
        log.clock.advance(10)
        producer.commit_transaction()
        if name == "p":
            wanted = str(tx_id)
        log.clock.advance(10)
    found = log.process_admin().transaction_timeline(wanted)
    assert [each.step for each in found] == [
        "stage", "pend", "prepare", "marker", "marker", "offsets", "complete",
    ], "what was not flushed is stored with the decision"  # fmt: skip
    assert [each.where for each in found if each.step == "marker"] == ["t", "u"]
    assert {each.where for each in found if each.step in ("pend", "offsets")} == {"group g"}
    by_step = {each.step: each for each in found}
    assert by_step["prepare"].detail == "COMMIT"
    assert by_step["stage"].detail == "1 records in 1 segments"
    assert by_step["prepare"].at_ms - found[0].at_ms >= 20
    assert by_step["complete"].at_ms >= by_step["prepare"].at_ms


def test_timeline_of_records_in_the_log_begins_with_begin_and_tells_who_ended_it(
    log: MemoryLog,
) -> None:
    producer = log.producer("p", transaction_records="in.log")
    aborted = producer.begin_transaction()
    producer.send("t", b"x")
    producer.flush()
    producer.abort_transaction()
    fenced = producer.begin_transaction()
    producer.send("t", b"x")
    producer.flush()
    log.clock.advance(10)
    log.elsewhere("p")
    log.clock.advance(10)
    admin = log.process_admin()
    first = steps(admin, str(aborted))
    assert [step for step, *_ in first] == ["begin", "prepare", "marker", "complete"]
    assert first[1][2] == first[2][2] == "ABORT"
    second = steps(admin, str(fenced))
    assert [step for step, *_ in second][:2] == ["begin", "prepare"]
    assert second[1][2] == "ABORT, by the next instance of the producer"
    assert steps(admin, "9-9-9") == []


def test_timeline_of_an_open_transaction_is_what_there_is(log: MemoryLog) -> None:
    producer = log.producer("p", transaction_records="in.log")
    opened = producer.begin_transaction()
    producer.send("t", b"x")
    producer.flush()
    log.clock.advance(10)
    assert [step for step, *_ in steps(log.process_admin(), str(opened))] == ["begin"]


def test_transaction_whose_end_alone_is_read_was_not_aborted_by_the_next_registration(
    log: MemoryLog,
) -> None:
    coordinator = log.connection.coordinator_of("p")
    found = coordinator.init_producer(InitProducer("p", "first", MINUTE_MS))
    tx_id = TxId(found.pid, found.epoch, 0)
    coordinator.prepare_commit("p", tx_id)
    log.clock.advance(10 * MINUTE_MS)
    coordinator.execute(coordinator.completion("p", tx_id))
    log.elsewhere("p")
    log.clock.advance(1)
    (row,) = log.process_admin().transaction_history("5m").to_pylist()
    assert (row["outcome"], row["decided"]) == ("COMMITTED", None)
