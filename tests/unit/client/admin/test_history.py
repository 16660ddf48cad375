"""What groups and transactions did, from the journals: every value is checked against what the test
did at that time."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.logs.memory_log import MemoryLog
from txlog.client.admin import Admin, group_moves, transaction_book
from txlog.client.admin.history import COVERED_SINCE_MS, MOMENTS_MAX
from txlog.client.consumer.consumer import Consumer
from txlog.documents.groups import lag_document
from txlog.errors import CorruptData, UnknownGroup, UsageError
from txlog.model import TopicPartition
from txlog.settings import LogSettings
from txlog.testing.counting_store import CountingStore

MINUTE_MS = 60_000


@pytest.fixture
def log() -> MemoryLog:
    log = MemoryLog()
    log.clock.advance(60 * MINUTE_MS)
    log.admin.create_topic("t", 2)
    return log


def put(log: MemoryLog, count: int, partition: int = 0) -> None:
    producer = log.producer()
    for _ in range(count):
        producer.send("t", b"x", partition=partition)
    producer.flush()


def commit(log: MemoryLog, offset: int, partition: int = 0) -> None:
    consumer = Consumer(root=log.process(), group_id="g", enable_auto_commit=False)
    consumer.commit({TopicPartition("t", partition): offset})


def lags(log: MemoryLog, partition: int = 0, **options: Any) -> list[tuple[Any, ...]]:
    """(minutes ago, position, end, lag, lag in ms) at each moment."""
    table = log.process_admin().lag_history("g", **options)
    now_ms = log.clock.wall_ms()
    return [
        (
            (now_ms - row["time"].timestamp() * 1000) / MINUTE_MS,
            row["committed_offset"],
            row["end_offset"],
            row["lag"],
            row["lag_ms"],
        )
        for row in table.to_pylist()
        if row["partition"] == partition
    ]


def test_lag_at_each_moment_is_what_it_was_then(log: MemoryLog) -> None:
    put(log, 5)
    commit(log, 2)
    log.clock.advance(MINUTE_MS)
    put(log, 10)
    log.clock.advance(MINUTE_MS)
    commit(log, 15)
    log.clock.advance(MINUTE_MS)
    put(log, 1)
    log.clock.advance(MINUTE_MS // 2)
    found = lags(log, since="3m", step="1m")
    assert [row[0] for row in found] == [3, 2, 1, 0]
    assert [row[1:4] for row in found] == [(2, 5, 3), (2, 15, 13), (15, 15, 0), (15, 16, 1)]
    # The batch that waits was written half a minute before each of the first moments.
    assert [row[4] for row in found] == [30_000, 90_000, 0, 30_000]


def test_positions_of_a_transaction_count_from_its_end(log: MemoryLog) -> None:
    put(log, 8)
    log.clock.advance(MINUTE_MS)
    producer = log.producer("p")
    producer.begin_transaction()
    producer.send("t", b"y", partition=1)
    producer.send_offsets_to_transaction({TopicPartition("t", 0): 6}, "g")
    log.clock.advance(MINUTE_MS)
    producer.commit_transaction()
    log.clock.advance(MINUTE_MS)
    assert [row[1] for row in lags(log, since="2m", step="1m")] == [None, 6, 6]
    assert [row[2] for row in lags(log, 1, since="2m", step="1m")] == [0, 1, 1]


def test_partition_without_a_position_has_its_end_only(log: MemoryLog) -> None:
    commit(log, 0)
    put(log, 3, partition=1)
    log.clock.advance(MINUTE_MS)
    assert lags(log, 1, since="1m", step="1m")[-1] == (0, None, 3, None, None)


def test_deleted_group_that_begins_again_had_no_position_between(log: MemoryLog) -> None:
    put(log, 4)
    commit(log, 4)
    log.clock.advance(MINUTE_MS)
    log.admin.delete_group("g")
    log.clock.advance(MINUTE_MS)
    commit(log, 1)
    log.clock.advance(MINUTE_MS // 2)
    assert [row[1] for row in lags(log, since="2m", step="1m")] == [4, None, 1]


def test_deleted_offsets_end_the_line_of_their_partition_only(log: MemoryLog) -> None:
    put(log, 4)
    put(log, 4, partition=1)
    commit(log, 4)
    commit(log, 2, partition=1)
    log.clock.advance(MINUTE_MS)
    log.admin.delete_group_offsets("g", [TopicPartition("t", 0)])
    log.clock.advance(MINUTE_MS)
    assert [row[1:4] for row in lags(log, since="2m", step="1m")] == [
        (4, 4, 0), (None, 4, None), (None, 4, None),
    ]  # fmt: skip
    assert [row[1] for row in lags(log, 1, since="2m", step="1m")] == [2, 2, 2]
    commit(log, 1)
    log.clock.advance(MINUTE_MS // 2)
    assert [row[1] for row in lags(log, since="150s", step="1m")] == [4, None, 1]


def test_moments_that_the_journals_do_not_cover_are_null_and_named(log: MemoryLog) -> None:
    put(log, 2)
    commit(log, 1)
    for _ in range(130):  # Two snapshots: pruning keeps what the newest one needs.
        commit(log, 1)
    log.clock.advance(MINUTE_MS)
    commit(log, 2)
    offsets = log.connection.offsets
    journal = log.connection.coordinator(offsets.coordinator_number_of("g")).journal
    journal.catch_up()
    journal.prune(1, 1)
    log.clock.advance(MINUTE_MS)
    table = log.process_admin().lag_history("g", "2m", step="1m")
    covered_ms = int(table.schema.metadata[COVERED_SINCE_MS])
    assert covered_ms == log.clock.wall_ms() - MINUTE_MS
    assert [row[1:] for row in lags(log, since="2m", step="1m")] == [
        (None, None, None, None),
        (2, 2, 0, 0),
        (2, 2, 0, 0),
    ]


def test_position_before_the_first_kept_commit_is_where_that_commit_began(log: MemoryLog) -> None:
    put(log, 5)
    commit(log, 2)
    log.clock.advance(MINUTE_MS)
    commit(log, 0, partition=1)
    consumer = Consumer("t", root=log.process(), group_id="g", enable_auto_commit=False)
    consumer.poll(max_records=2)
    log.clock.advance(MINUTE_MS)
    consumer.commit()
    connection = log.process()
    journal = connection.coordinator(connection.offsets.coordinator_number_of("g")).journal
    journal.catch_up()
    assert journal.prune(2) == journal.next_slot - 2
    log.clock.advance(MINUTE_MS)
    assert [row[1] for row in lags(log, since="2m", step="1m")] == [2, 4, 4]


def moments(log: MemoryLog, since: Any, **options: Any) -> list[int]:
    """Milliseconds before now of each moment."""
    table = log.process_admin().lag_history("g", since, **options)
    now_ms, times = log.clock.wall_ms(), table.column("time").cast("int64").to_pylist()
    return sorted({int(now_ms) - at for at in times}, reverse=True)


def test_moments_are_at_equal_distances_and_end_now(log: MemoryLog) -> None:
    commit(log, 0)
    assert moments(log, "1h") == [n * MINUTE_MS for n in range(60, -1, -1)]
    assert moments(log, "30ms") == list(range(30, -1, -1)), "not less than a millisecond"
    assert moments(log, "100s", step="30s") == [90_000, 60_000, 30_000, 0]
    assert moments(log, "90s", step=30_000) == [90_000, 60_000, 30_000, 0]
    assert moments(log, int(log.clock.wall_ms()) - 2, step=1) == [2, 1, 0]
    assert len(moments(log, "999s", step="1s")) == MOMENTS_MAX
    with pytest.raises(UsageError, match="there are 1001 steps of 1000 ms"):
        log.admin.lag_history("g", "1000s", step="1s")


def test_table_has_each_partition_of_each_topic_in_order_of_the_moments(log: MemoryLog) -> None:
    log.admin.create_topic("s", 1)
    with log.consumer(group_id="g") as consumer:
        consumer.commit({TopicPartition("t", 1): 0, TopicPartition("s", 0): 0})
    rows = log.process_admin().lag_history("g", "1m", step="1m").to_pylist()
    assert [(row["topic"], row["partition"]) for row in rows] == [("s", 0), ("t", 0), ("t", 1)] * 2
    log.admin.delete_topics(["s"])
    rows = log.process_admin().lag_history("g", "0s").to_pylist()
    assert [(row["topic"], row["partition"]) for row in rows] == [("t", 0), ("t", 1)]


def test_age_of_a_record_that_was_deleted_is_unknown(log: MemoryLog) -> None:
    put(log, 4)
    commit(log, 1)
    log.admin.delete_records({TopicPartition("t", 0): 2})
    log.clock.advance(MINUTE_MS)
    assert lags(log, since="0s")[-1] == (0, 1, 4, 3, None)
    commit(log, 2)
    assert lags(log, since="0s")[-1] == (0, 2, 4, 2, MINUTE_MS)


def test_only_so_many_entries_are_read(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was before them is not covered."""
    put(log, 9)
    for offset in range(1, 6):
        commit(log, offset)
        log.clock.advance(MINUTE_MS)
    monkeypatch.setattr(transaction_book, "ENTRIES_MAX", 2)
    rows = lags(log, since="6m", step="1m")
    assert [row[1:4] for row in rows] == [(None, None, None)] * 4 + [
        (4, 9, 5),
        (5, 9, 4),
        (5, 9, 4),
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"since": "yesterday"}, "an age such as 90s"),
        ({"since": "2999-01-01T00:00Z"}, "between 1970 and now"),
        ({"since": -5}, "between 1970 and now"),
        ({"since": "1h", "step": "soon"}, "write one such as 1m"),
        ({"since": "1h", "step": 0}, "write one such as 1m"),
        ({"since": "1h", "step": "1ms"}, "Choose a longer step"),
    ],
)
def test_bad_moments_are_refused(log: MemoryLog, options: Any, message: str) -> None:
    commit(log, 0)
    log.clock.advance(120 * MINUTE_MS)
    with pytest.raises(UsageError, match=message):
        log.admin.lag_history("g", **options)


def damage(log: MemoryLog, path: str) -> None:
    log.memory.delete(path)
    log.memory.put_new(path, b"not JSON")


def told_history(admin: Admin) -> tuple[pa.Table, set[tuple[str, str]]]:
    told: set[tuple[str, str]] = set()
    table = admin.lag_history(
        "g", "3m", step="1m", on_error=lambda kind, name, _: told.add((kind, name))
    )
    return table.filter(pc.equal(table["partition"], 0)), told


def test_nothing_is_known_of_a_group_before_a_damaged_entry(log: MemoryLog) -> None:
    put(log, 9)
    for offset in (1, 2, 3):
        commit(log, offset)
        log.clock.advance(MINUTE_MS)
    admin = log.process_admin()
    admin.list_groups()
    number = admin.connection.offsets.coordinator_number_of("g")
    journal = admin.connection.coordinator(number).journal
    damage(log, path := journal.layout.entry(journal.next_slot - 2))
    with pytest.raises(CorruptData, match=path):
        admin.lag_history("g", "3m", step="1m")
    table, told = told_history(admin)
    assert table["committed_offset"].to_pylist() == [None, None, 3, 3]
    assert int(table.schema.metadata[COVERED_SINCE_MS]) == log.clock.wall_ms() - MINUTE_MS
    assert told == {("coordinator", str(number))}


def test_end_of_a_topic_is_unknown_where_a_damaged_entry_tells_it(log: MemoryLog) -> None:
    commit(log, 0)
    for _ in range(3):
        put(log, 1)
        log.clock.advance(MINUTE_MS)
    admin = log.process_admin()
    admin.list_groups()
    topic = admin.connection.cluster.present_topic("t")
    topic.catch_up()
    damage(log, path := topic.layout.entry(topic.next_slot - 2))
    with pytest.raises(CorruptData, match=path):
        admin.lag_history("g", "3m", step="1m")
    table, told = told_history(admin)
    assert table["end_offset"].to_pylist() == [None, None, 3, 3]
    assert table["lag"].to_pylist() == [None, None, 3, 3]
    assert told == {("topic", "t")}
    lags = [moment["lag"] for moment in lag_document("g", table)["moments"]]
    assert lags == [None, None, 3, 3]


def test_second_look_reads_new_entries_only_also_at_another_group() -> None:
    log = MemoryLog(LogSettings(transaction_state_log_num_partitions=1))
    log.clock.advance(60 * MINUTE_MS)
    log.admin.create_topic("t", 2)
    put(log, 9)
    for offset in range(9):
        for group in ("g", "h"):
            with log.consumer(group_id=group) as consumer:
                consumer.commit({TopicPartition("t", 0): offset})
        log.clock.advance(1_000)
    store = CountingStore(log.memory)
    admin = Admin(log.process(store))
    admin.list_groups()
    reads = []
    for group in ("g", "h", "g"):
        store.reset()
        assert admin.lag_history(group, "1m")["committed_offset"].to_pylist()[-2] == 8
        reads.append(store.reset().of("get", "entry"))
    first, second, third = reads
    assert first >= second + 18
    assert second == third


@pytest.mark.parametrize("kept", [5, group_moves.MOVES_MAX])
def test_a_process_that_looks_again_sees_what_a_new_one_sees(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr(group_moves, "MOVES_MAX", kept)
    put(log, 30)
    put(log, 30, partition=1)
    commit(log, 0, partition=1)
    watching = log.process_admin()
    producer = log.producer("p")
    for step in range(12):
        if step % 4 == 1:
            log.admin.delete_group_offsets("g", [TopicPartition("t", 0)])
        elif step % 4 == 2:
            producer.begin_transaction()
            producer.send_offsets_to_transaction({TopicPartition("t", 0): step}, "g")
            producer.commit_transaction()
        else:
            commit(log, step, partition=step % 2)
        log.clock.advance(MINUTE_MS)
        if step % 5 != 3:
            since = f"{1 + step % 3 * 4}m"
            found = watching.lag_history("g", since, step="1m")
            assert found == log.process_admin().lag_history("g", since, step="1m")


def test_unknown_group_is_refused(log: MemoryLog) -> None:
    with pytest.raises(UnknownGroup, match="txlog group list"):
        log.admin.lag_history("g")


def test_transactions_are_listed_with_their_times_and_outcomes(log: MemoryLog) -> None:
    log.clock.advance(60 * MINUTE_MS)
    put(log, 1)
    ended = log.producer("ended")
    ended.begin_transaction()
    ended.send("t", b"a", partition=0)
    ended.send_offsets_to_transaction({TopicPartition("t", 0): 1}, "g")
    ended.commit_transaction()
    decided_ms = log.clock.wall_ms()
    log.clock.advance(MINUTE_MS)
    in_log = log.producer("in-log", transaction_records="in.log")
    in_log.begin_transaction()
    in_log.send("t", b"b", partition=1)
    in_log.flush()
    log.clock.advance(MINUTE_MS)
    in_log.abort_transaction()
    in_log.begin_transaction()
    in_log.send("t", b"c", partition=1)
    in_log.flush()
    found = log.process_admin().transaction_history("1h").to_pylist()
    assert [(row["transactional_id"], row["outcome"]) for row in found] == [
        ("ended", "COMMITTED"),
        ("in-log", "ABORTED"),
        ("in-log", "OPEN"),
    ]
    first, second, third = found
    assert (first["topics"], first["groups"], first["records"]) == (["t"], ["g"], 1)
    assert first["begun"] is None
    assert first["decided"].timestamp() * 1000 == decided_ms
    assert first["completed"] >= first["decided"]
    assert (second["decided"] - second["begun"]).total_seconds() == 60
    assert second["records"] is None
    assert (third["decided"], third["completed"]) == (None, None)
    only = log.process_admin().transaction_history("1h", transactional_id="ended")
    assert only.num_rows == 1
    assert log.process_admin().transaction_history("0s").num_rows == 0


def test_registration_ends_what_its_id_had_open(log: MemoryLog) -> None:
    first = log.producer("p", transaction_records="in.log")
    first.begin_transaction()
    first.send("t", b"b", partition=1)
    first.flush()
    log.elsewhere("p")
    (row,) = log.process_admin().transaction_history("1h").to_pylist()
    assert (row["outcome"], row["decided"] is None) == ("ABORTED", False)


def test_transactions_are_in_the_order_of_their_decisions_and_open_ones_are_last(
    log: MemoryLog,
) -> None:
    opened = {}
    for name in ("first", "second", "third"):
        opened[name] = log.producer(name, transaction_records="in.log")
        opened[name].begin_transaction()
        opened[name].send("t", b"x", partition=0)
        opened[name].flush()
        log.clock.advance(1_000)
    staged = log.producer("staged")
    with staged.transaction("a tag"):
        staged.send("t", b"x", partition=0)
        staged.send("t", b"x", partition=1)
    log.clock.advance(1_000)
    opened["second"].commit_transaction()
    found = log.process_admin().transaction_history("1h").to_pylist()
    names = [row["transactional_id"] for row in found]
    assert names == ["staged", "second", "first", "third"]
    assert [row["tag"] for row in found] == ["a tag", None, None, None]
    assert (found[0]["records"], found[0]["topics"]) == (2, ["t"])
    assert [(row["query_id"], row["batch_id"]) for row in found] == [(None, None)] * 4


def test_transaction_is_aborted_when_another_instance_fences_its_producer(log: MemoryLog) -> None:
    first = log.producer("p", transaction_records="in.log")
    first.begin_transaction()
    first.send("t", b"x", partition=0)
    first.flush()
    log.clock.advance(MINUTE_MS)
    log.elsewhere("p")
    at_ms = log.clock.wall_ms()
    log.clock.advance(MINUTE_MS)
    log.elsewhere("p")
    (row,) = log.process_admin().transaction_history("1h").to_pylist()
    assert row["outcome"] == "ABORTED"
    assert row["decided"].timestamp() * 1000 == at_ms


def test_transaction_that_ended_since_is_shown_whenever_it_began(log: MemoryLog) -> None:
    producer = log.producer("p", transaction_records="in.log")
    producer.begin_transaction()
    producer.send("t", b"x", partition=0)
    producer.flush()
    log.clock.advance(MINUTE_MS // 2)
    producer.commit_transaction()
    rows = log.process_admin().transaction_history("10s").to_pylist()
    assert [(row["outcome"], row["begun"]) for row in rows] == [("COMMITTED", None)]
    assert log.process_admin().transaction_history("0s").num_rows in (0, 1)
