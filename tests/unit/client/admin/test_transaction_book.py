"""What a process that looks at the newest transactions again and again reads and keeps."""

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.admin import Admin, transaction_book
from txlog.client.admin.history import COVERED_SINCE_MS
from txlog.client.producer.producer import Producer
from txlog.coordinator.events import InitProducer
from txlog.errors import CorruptData
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
    number_of = log.connection.coordinator_of
    assert number_of("a").number != number_of("d").number
    return log.producer("a"), log.producer("d")


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
    assert ends[7] < first_ms <= ends[11], "each is completed with the next one of its producer"
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


def test_many_new_entries_are_read_once_and_none_of_the_old_ones(
    log: MemoryLog, producers: tuple[Producer, Producer]
) -> None:
    for producer in producers:
        commit(producer, 20)
    store = CountingStore(log.memory)
    admin = Admin(log.process(store))
    names(admin)
    before = sum(each.journal.next_slot for each in log.connection.caught_up())
    for producer in producers:
        commit(producer, 200)
    log.clock.advance(1)
    admin.list_transactions()
    store.reset()
    assert len(names(admin)) == 440
    added = sum(each.journal.next_slot for each in log.connection.caught_up()) - before
    assert added <= store.reset().of("get", "entry") <= added + 4


def test_more_new_transactions_than_are_kept_leave_no_gap(
    log: MemoryLog, producers: tuple[Producer, Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a coordinator with a gap nothing older is shown; the other's are, as far as all are."""
    monkeypatch.setattr(transaction_book, "COURSES_MAX", 10)
    monkeypatch.setattr(transaction_book, "FIRST_ENTRIES", 2)
    admin = log.process_admin()
    commit(producers[1], 3)
    log.clock.advance(1_000)
    names(admin)
    for _ in range(40):
        commit(producers[0])
        log.clock.advance(1_000)
    found, since_ms = names(admin), covered_ms(admin)
    assert [name.rpartition("-")[2] for name in found] == [str(n) for n in range(30, 40)]
    assert since_ms >= log.clock.wall_ms() - 11_000


def damage(log: MemoryLog, path: str) -> bytes:
    """Returns what was there."""
    whole = log.memory.get(path)
    assert whole is not None
    put(log, path, b"not JSON")
    return whole


def put(log: MemoryLog, path: str, data: bytes) -> None:
    log.memory.delete(path)
    log.memory.put_new(path, data)


def test_damaged_entry_hides_no_other_until_it_is_mended(
    log: MemoryLog, producers: tuple[Producer, Producer]
) -> None:
    for producer in producers:
        commit(producer, 100)
    log.clock.advance(1)
    every = names(log.process_admin())
    journal = log.connection.coordinator_of("a").journal
    path = journal.layout.entry(20)
    whole = damage(log, path)
    store = CountingStore(log.memory)
    admin = Admin(log.process(store))
    with pytest.raises(CorruptData, match=path):
        names(admin)
    looks = []
    for _ in range(2):
        told: list[tuple[str, str, str]] = []
        admin.list_transactions()
        store.reset()
        table = admin.transaction_history(
            "1h", on_error=lambda *each, told=told: told.append((*each[:2], each[2].message))
        )
        looks.append((table["transaction"].to_pylist(), store.reset().of("get", "entry")))
        number = str(log.connection.coordinator_of("a").number)
        assert {(kind, name, path in text) for kind, name, text in told} == {
            ("coordinator", number, True)
        }
    (found, first_look), (again, second_look) = looks
    assert found == again
    assert set(found) == set(every), "the entry after it completes the one that it decides"
    assert table["decided"].null_count == 1
    assert second_look <= 8 < first_look, "the damaged one, and whether there are newer ones"
    put(log, path, whole)
    assert names(admin) == every


def test_coordinator_that_cannot_be_opened_hides_no_other(
    log: MemoryLog, producers: tuple[Producer, Producer]
) -> None:
    for producer in producers:
        commit(producer, 3)
    log.clock.advance(1)
    first, second = (log.connection.coordinator_of(name) for name in ("a", "d"))
    watching = log.process_admin()
    assert len(names(watching)) == 6
    path = second.journal.layout.entry(second.journal.next_slot)
    log.memory.put_new(path, b"not JSON")
    told: list[str] = []
    for admin in (watching, log.process_admin()):
        table = admin.transaction_history("1h", on_error=lambda kind, name, _: told.append(name))
        assert set(table["transactional_id"].to_pylist()) == {"a"}
    assert told == [str(second.number)] * 2 != [str(first.number)] * 2
    log.memory.delete(path)
    assert len(names(watching)) == 6


def test_timeline_without_a_damaged_entry_is_not_kept(log: MemoryLog) -> None:
    producer = log.producer("p")
    commit(producer, 2)
    log.clock.advance(1)
    topic = log.connection.cluster.present_topic("t")
    topic.catch_up()
    path = topic.layout.entry(topic.next_slot - 2)
    admin = log.process_admin()
    name, _ = names(admin)
    admin.describe_topic("t")
    whole = damage(log, path)
    told: list[tuple[str, str]] = []
    found = admin.transaction_timeline(name, on_error=lambda *each: told.append(each[:2]))
    assert [each.step for each in found] == ["prepare", "complete"]
    assert told == [("topic", "t")]
    with pytest.raises(CorruptData, match=path):
        admin.transaction_timeline(name)
    put(log, path, whole)
    assert [step for step, *_ in steps(admin, name)] == ["prepare", "marker", "complete"]


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
