"""A full disk in the middle of a commit: the transaction ends whole or not at all, and work
continues."""

from pathlib import Path

import pytest

from tests.logs.memory_log import SEGMENTS, MemoryLog
from tests.processes.command_line import run as run_command
from tests.processes.room_on_disk import room_for
from tests.stores.scripted_store import WRITES, full
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import Connection, open_connection
from txlog.engine.producer_config import IN_LOG, STAGED
from txlog.errors import StoreFull
from txlog.fan_out import SerialFanOut
from txlog.layout import is_manifest
from txlog.model import TopicPartition, TransactionOutcome
from txlog.storage import open_store
from txlog.verify.invariants import check_log

U0 = TopicPartition("u", 0)
STEPS = {STAGED: 5, IN_LOG: 10}
"""Writes of the transaction below until its commit returns: for the topic of large records the
segment, in the log for both also the declaration and the append; the pend, PREPARE, two markers; in
the log also the offsets."""
SEGMENTS_IN_A_MANIFEST = 40
LARGE = [("large", bytes(70_000))]
WRITES_AFTER_RETURN = {STAGED: 2, IN_LOG: 1}
"""Writes after the commit has returned: the offsets and COMPLETE; in the log COMPLETE alone."""


@pytest.fixture
def log(transaction_records: str) -> MemoryLog:
    log = MemoryLog(transaction_records=transaction_records)
    for name in ("t", "u"):
        log.admin.create_topic(name, 1)
    log.elsewhere().send("u", b"source").get()
    return log


def run(producer: Producer, value: bytes) -> None:
    """Run one transaction over two topics and a group, from its first write to its last."""
    producer.begin_transaction()
    producer.send("t", value, headers=LARGE)
    producer.flush()
    producer.send("u", value)
    if producer.config.transaction_records == IN_LOG:
        producer.flush()
    producer.send_offsets_to_transaction({U0: 1}, "g")
    producer.commit_transaction()


@pytest.mark.both_ways
def test_step_counts_match_the_writes_of_a_transaction(
    log: MemoryLog, transaction_records: str
) -> None:
    producer = log.producer("a")
    before = len(log.store.writes)
    run(producer, b"x")
    producer.close()
    steps = STEPS[transaction_records] + WRITES_AFTER_RETURN[transaction_records]
    assert len(log.store.writes) - before == steps


AT_EACH_STEP = pytest.mark.parametrize(
    ("transaction_records", "step"),
    [(way, step) for way, steps in STEPS.items() for step in range(steps)],
    indirect=["transaction_records"],
)


@AT_EACH_STEP
def test_producer_continues_after_space_is_freed(log: MemoryLog, step: int) -> None:
    producer = log.producer("a")
    _fill_after(log, step)
    with pytest.raises(StoreFull, match="no room is left"):
        run(producer, b"x")
    before = log.objects()
    log.store.heal()
    _retry_or_abort(producer)
    # Atomicity: a commit that failed on a full disk succeeds when it is called again.
    found = log.values("t", "u")
    assert found in ([b"x", b"source", b"x"], [b"source"])
    assert before.items() <= log.objects().items()
    run(producer, b"next")
    assert log.values("t")[-1:] == [b"next"]
    log.check()


def _fill_after(log: MemoryLog, step: int) -> None:
    """This many writes still fit, then none."""
    log.store.on(WRITES, "", full, times=1_000)
    log.store.on(WRITES, "", lambda call: call(), times=step)


def _retry_or_abort(producer: Producer) -> None:
    """Continue as an application does: repeat a failed commit, otherwise abort."""
    if producer._status.state == "COMMITTING":
        producer.commit_transaction()
    else:
        producer.abort_transaction()


@AT_EACH_STEP
def test_successor_finds_the_transaction_whole_or_absent_after_a_full_disk(
    log: MemoryLog, step: int
) -> None:
    """The process ends with the error; another one takes over once there is space."""
    producer = log.producer("a")
    _fill_after(log, step)
    with pytest.raises(StoreFull):
        run(producer, b"x")
    successor = log.elsewhere("a")
    group = log.consumer("u", group_id="g")
    if log.values("t") == [b"x"]:
        assert log.values("u") == [b"source", b"x"]
        assert group.committed(U0) == 1
    else:
        assert (log.values("t"), log.values("u")) == ([], [b"source"])
        assert group.committed(U0) is None
        run(successor, b"x")
        assert log.values("t", "u") == [b"x", b"source", b"x"]
        assert group.committed(U0) == 1
    log.check()


@pytest.mark.parametrize(
    ("transaction_records", "step"),
    [
        (way, steps + more)
        for way, steps in STEPS.items()
        for more in range(WRITES_AFTER_RETURN[way])
    ],
    indirect=["transaction_records"],
)
def test_disk_that_was_full_in_the_background_fails_no_call(log: MemoryLog, step: int) -> None:
    producer = log.producer("a")
    _fill_after(log, step)
    run(producer, b"x")
    log.store.heal()
    run(producer, b"next")
    producer.close()
    assert log.values("t", "u") == [b"x", b"next", b"source", b"x", b"next"]
    assert log.consumer("u", group_id="g").committed(U0) == 1
    log.check()


@pytest.mark.parametrize("step", range(3))
def test_non_transactional_records_are_stored_once_after_space_is_freed(
    log: MemoryLog, step: int
) -> None:
    producer = log.producer()
    producer.send("t", b"x", headers=LARGE)
    producer.send("u", b"x")
    _fill_after(log, step)
    with pytest.raises(StoreFull):
        producer.flush()
    log.store.heal()
    producer.flush()
    assert log.values("t", "u") == [b"x", b"source", b"x"]
    log.check()


LARGE_STEPS = 5
"""Writes of the commit below until it returns: two manifests, PREPARE, two markers."""


@pytest.mark.parametrize("step", range(LARGE_STEPS))
def test_commit_with_manifests_is_repeated_after_space_is_freed(step: int) -> None:
    log = MemoryLog(SEGMENTS)
    for name in ("t", "u"):
        log.admin.create_topic(name, 1)
    log.connection.entry_batches_max = 0
    producer = log.producer("a")
    tx_id = producer.begin_transaction()
    for value in (b"1", b"2", b"3"):
        for name in ("t", "u"):
            producer.send(name, value)
        producer.flush()
    _fill_after(log, step)
    with pytest.raises(StoreFull):
        producer.commit_transaction()
    is_decided = step > LARGE_STEPS - 3
    outcome = TransactionOutcome.COMMITTED if is_decided else TransactionOutcome.OPEN
    assert log.process().outcome(tx_id) is outcome
    log.store.heal()
    producer.commit_transaction()
    assert log.values("t", "u") == [b"1", b"2", b"3"] * 2
    log.check()


# A real disk.


@pytest.fixture
def on_disk(tmp_path: Path) -> Connection:
    runtime = Runtime(fan_out=SerialFanOut())
    store = open_store(tmp_path / "log", runtime, {"durable": False})
    connection = open_connection(store, runtime, create=True)
    Admin(connection).create_topic("t", 1)
    return connection


def test_a_segment_that_does_not_fit_on_the_disk_leaves_nothing_behind(
    on_disk: Connection, tmp_path: Path
) -> None:
    producer = Producer(on_disk, transactional_id="a")
    producer.init_transactions()
    tx_id = producer.begin_transaction()
    producer.send("t", b"small").get()
    producer.send("t", b"x" * 100_000)
    before = sorted(tmp_path.rglob("*"))
    with room_for(20_000), pytest.raises(StoreFull, match="no room.*free some"):
        producer.commit_transaction()
    assert sorted(tmp_path.rglob("*")) == before, "not even a temporary file"
    assert on_disk.outcome(tx_id) is TransactionOutcome.OPEN
    producer.commit_transaction()
    consumer = Consumer(
        "t", root=on_disk, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    (found,) = consumer.poll().values()
    assert [len(record.value) for record in found] == [5, 100_000]
    assert check_log(on_disk) == []


def test_commit_repeated_after_a_full_disk_writes_its_entries(
    on_disk: Connection, tmp_path: Path
) -> None:
    producer = Producer(on_disk, transactional_id="a")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"x").get()
    before = sorted(tmp_path.rglob("*.*"))
    with room_for(100):
        for _ in range(2):
            with pytest.raises(StoreFull):
                producer.commit_transaction()
    assert sorted(tmp_path.rglob("*.*")) == before
    producer.commit_transaction()
    assert check_log(on_disk) == []


def test_manifest_that_does_not_fit_on_the_disk_decides_nothing(
    on_disk: Connection, tmp_path: Path
) -> None:
    """An entry of this transaction would fit; the list of its segments does not."""
    on_disk.entry_batches_max = SEGMENTS_IN_A_MANIFEST - 1
    producer = Producer(on_disk, transactional_id="a")
    producer.init_transactions()
    tx_id = producer.begin_transaction()
    for number in range(SEGMENTS_IN_A_MANIFEST):
        producer.send("t", b"%d" % number)
        producer.flush()
    before = sorted(tmp_path.rglob("*.*"))
    with room_for(1_000):
        for _ in range(2):
            with pytest.raises(StoreFull, match="no room.*free some"):
                producer.commit_transaction()
    assert sorted(tmp_path.rglob("*.*")) == before, "neither a manifest nor an entry"
    assert on_disk.outcome(tx_id) is TransactionOutcome.OPEN
    producer.commit_transaction()
    assert on_disk.outcome(tx_id) is TransactionOutcome.COMMITTED
    consumer = Consumer("t", root=on_disk, auto_offset_reset="earliest")
    (found,) = consumer.poll().values()
    assert [int(record.value) for record in found] == [*range(SEGMENTS_IN_A_MANIFEST)]
    assert [
        path for path in tmp_path.rglob("*") if is_manifest(str(path.relative_to(tmp_path / "log")))
    ]
    assert check_log(on_disk) == []


def test_maintenance_on_a_full_disk_exits_with_1_and_can_be_repeated(
    on_disk: Connection, tmp_path: Path
) -> None:
    Admin(on_disk).create_topic("prices", 1, config={"cleanup.policy": "compact"})
    producer = Producer(on_disk)
    for number in range(20):
        producer.send("prices", key=b"k", value=b"%d" % number).get()
    before = sorted(tmp_path.rglob("*.*"))
    arguments = ("maintain", "--once", "--no-vacuum", "-o", "json")
    with room_for(100):
        failed = run_command(*arguments, root=tmp_path / "log")
    (action,) = failed.json
    assert (failed.code, action["status"], action["task"]) == (1, "fail", "compaction")
    assert "no room" in action["detail"]
    assert sorted(tmp_path.rglob("*.*")) == before
    done = run_command(*arguments, root=tmp_path / "log")
    (action,) = done.json
    assert (done.code, action["detail"]) == (0, "records removed: 19 of 20")
    assert check_log(on_disk) == []
