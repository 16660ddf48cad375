"""The power fails at every point of a commit: acknowledged data survives, and nothing is torn."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeAlias

import pytest

from txlog.catalog.cluster_file import create_cluster
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.append.appender import ENTRY_BATCHES_MAX
from txlog.engine.append.producer_batch import Headers
from txlog.engine.connection import Connection, open_connection
from txlog.engine.producer_config import IN_LOG, STAGED
from txlog.fan_out import SerialFanOut
from txlog.maintenance.maintenance import Maintenance
from txlog.model import TopicPartition
from txlog.settings import LogSettings, ProcessSettings
from txlog.storage import LocalStore
from txlog.storage.disk.new_file import publish_exclusively
from txlog.storage.store import TEMPORARY_PREFIX
from txlog.testing.power_loss import SURVIVALS, Disk, Trace, recorded, write_image
from txlog.verify.invariants import check_log

pytestmark = pytest.mark.timeout(400)

SOURCE, RESULTS, GROUP, NAME = "source", ("left", "right"), "group", "worker"
S0 = TopicPartition(SOURCE, 0)
COUNT = 2
HEADERS: dict[str, Headers] = {"left": [("large", bytes(70_000))], "right": []}
"""Records of one topic are too large for an entry, those of the other ride in entries."""

INLINE_BYTES_MAX = LogSettings().entry_records_max_bytes

LOSSES_MIN = 20
"""With fewer distinct losses the recording would be incomplete."""
LOSSES_MIN_OF_STAGED = 8
"""The same for staged transactions: small records and positions are in the entry of the decision,
so there are few steps."""

MEMORY = "/dev/shm"
"""Hundreds of small logs are made and removed; their file system does not matter."""

Check: TypeAlias = Callable[[Path, set[str]], None]


@dataclass
class Recording:
    """A trace, and the acknowledgements with the number of operations before each."""

    trace: Trace
    acknowledged: list[tuple[int, str]] = field(default_factory=list)

    def acknowledge(self, fact: str) -> None:
        self.acknowledged.append((len(self.trace), fact))

    def known_after(self, operations: int) -> set[str]:
        return {fact for after, fact in self.acknowledged if after <= operations}


def _opened(folder: Path, *, durable: bool = True) -> Connection:
    """The log as a newly started process opens it; one step after the other."""
    runtime = Runtime(fan_out=SerialFanOut())
    return open_connection(LocalStore(folder / "log", runtime, durable), runtime)


def _made(
    folder: Path, *, durable: bool = True, records_bytes_max: int = INLINE_BYTES_MAX
) -> Connection:
    """The log as a process opens or creates it, with few journals, which are soon compacted."""
    runtime = Runtime(fan_out=SerialFanOut())
    settings = LogSettings(1, journal_snapshot_entries=4, entry_records_max_bytes=records_bytes_max)
    create_cluster(LocalStore(folder / "log", runtime, durable), runtime, settings)
    return _opened(folder, durable=durable)


def _filled(folder: Path, records_bytes_max: int = INLINE_BYTES_MAX) -> None:
    """A log with records to work on."""
    connection = _made(folder, durable=False, records_bytes_max=records_bytes_max)
    for topic in (SOURCE, *RESULTS):
        Admin(connection).create_topic(topic)
    with Producer(connection) as producer:
        for number in range(COUNT):
            producer.send(SOURCE, b"%d" % number)


def _values(connection: Connection, topic: str) -> list[bytes]:
    consumer = Consumer(
        topic, root=connection, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    return [r.value for found in consumer.poll(max_records=1_000).values() for r in found]


def _registered(connection: Connection, transaction_records: str = STAGED) -> Producer:
    producer = Producer(connection, transactional_id=NAME, transaction_records=transaction_records)
    producer.init_transactions()
    return producer


def _copy(
    connection: Connection,
    producer: Producer,
    until: int = COUNT,
    acknowledge: Callable[[str], None] = lambda fact: None,
) -> None:
    """Copy one record per transaction, from the source to both results, with its offset."""
    consumer = Consumer(
        SOURCE, root=connection, group_id=GROUP, isolation_level="read_committed",
        auto_offset_reset="earliest", enable_auto_commit=False,
    )  # fmt: skip
    while consumer.position(S0) < until and (polled := consumer.poll(max_records=1)):
        producer.begin_transaction()
        record = polled[S0][0]
        is_in_log = producer.config.transaction_records == IN_LOG
        moved = ({S0: record.offset + 1}, consumer.group_metadata())
        # With offsets, a producer begins to upload what it has.
        if not is_in_log:
            producer.send_offsets_to_transaction(*moved)
        for topic in RESULTS:
            producer.send(topic, record.value, headers=HEADERS[topic])
            if is_in_log:  # Otherwise the commit writes them.
                producer.flush()
        if is_in_log:
            producer.send_offsets_to_transaction(*moved)
        producer.commit_transaction()
        acknowledge(f"copied {record.offset + 1}")


def _losses(recording: Recording, disk: Disk, folder: Path) -> Iterator[tuple[Path, set[str], str]]:
    """A folder for each distinct state that a power loss can leave, and the acknowledgements by
    then. States that differ only in unfinished files, which no process reads, count as one."""
    seen = set()
    numbers = count()
    for operations in range(len(recording.trace) + 1):
        if operations:
            disk.apply(recording.trace.operations[operations - 1])
        known = recording.known_after(operations)
        for survival in SURVIVALS:
            image = disk.image(survival)
            named = [item for item in image.items() if TEMPORARY_PREFIX not in item[0]]
            key = hash((tuple(named), frozenset(known)))
            if key in seen:
                continue
            seen.add(key)
            left = folder / f"loss-{next(numbers)}"
            write_image(image, left)
            last = recording.trace.operations[operations - 1] if operations else "nothing"
            yield left, known, f"after operation {operations} ({last!r:.120}), {survival}"


def _copied(connection: Connection) -> int:
    """The number of copied records: the same in both topics, in order, and by the group's
    offset."""
    left, right = (_values(connection, topic) for topic in RESULTS)
    reader = Consumer(SOURCE, root=connection, group_id=GROUP, enable_auto_commit=False)
    offset = reader.committed(S0) or 0
    assert left == right == [b"%d" % number for number in range(offset)]
    return offset


def _check_copies(left: Path, known: set[str], records: str = STAGED) -> None:
    """Acknowledged records are there, the others whole or absent; and work can continue."""
    connection = _opened(left, durable=False)
    assert check_log(connection) == []
    producer = _registered(connection, records)
    copied = _copied(connection)
    assert copied >= max((int(fact.split()[1]) for fact in known), default=0)
    _copy(connection, producer)
    assert _copied(connection) == COUNT
    assert check_log(connection) == []


def _check_all(
    recording: Recording, disk: Disk, check: Check, losses_min: int = LOSSES_MIN
) -> None:
    """Apply `check` to each loss; an error names the loss."""
    losses = 0
    with tempfile.TemporaryDirectory(dir=MEMORY if os.path.isdir(MEMORY) else None) as folder:
        for left, known, where in _losses(recording, disk, Path(folder)):
            losses += 1
            try:
                check(left, known)
            except BaseException as error:
                error.add_note(where)
                raise
            shutil.rmtree(left)
    print(f"\n{len(recording.trace)} operations, {losses} different losses")
    assert losses >= losses_min


@pytest.mark.both_ways
def test_replaying_the_recording_reproduces_the_disk(
    tmp_path: Path, transaction_records: str
) -> None:
    """Otherwise the tests below would prove something about another program."""
    _filled(tmp_path)
    disk = Disk(tmp_path)
    with recorded(tmp_path) as trace:
        connection = _opened(tmp_path)
        _copy(connection, _registered(connection, transaction_records))
    for operation in trace.operations:
        disk.apply(operation)
    kept = next(s for s in SURVIVALS if (s.names, s.content) == ("all", "kept"))
    assert disk.image(kept) == Disk(tmp_path).image(kept)


@pytest.mark.slow
@pytest.mark.both_ways
def test_I4_I5_hold_after_power_loss_at_any_point_of_a_commit(
    tmp_path: Path, transaction_records: str
) -> None:
    _filled(tmp_path)
    recording, disk = _recorded_copy(tmp_path, transaction_records)
    check = partial(_check_copies, records=transaction_records)
    losses_min = LOSSES_MIN_OF_STAGED if transaction_records == STAGED else LOSSES_MIN
    _check_all(recording, disk, check, losses_min)


@pytest.mark.slow
def test_R67_manifests_are_there_after_power_loss_at_any_point_of_their_commit(
    tmp_path: Path,
) -> None:
    """All records are in segments, and an entry names none of them."""
    _filled(tmp_path, records_bytes_max=0)
    recording, disk = _recorded_copy(tmp_path, STAGED, entry_batches_max=0)
    assert len([*tmp_path.glob("log/topics/*/*/manifests/*")]) == len(RESULTS)
    _check_all(recording, disk, _check_copies, LOSSES_MIN_OF_STAGED)


def _recorded_copy(
    work: Path, transaction_records: str, entry_batches_max: int = ENTRY_BATCHES_MAX
) -> tuple[Recording, Disk]:
    """The second of two transactions, and the disk before it."""
    connection = _opened(work, durable=False)
    _copy(connection, _registered(connection, transaction_records), until=1)
    disk = Disk(work)
    with recorded(work) as trace:
        recording = Recording(trace)
        connection = _opened(work)
        connection.entry_batches_max = entry_batches_max
        producer = _registered(connection, transaction_records)
        _copy(connection, producer, 2, recording.acknowledge)
    assert len(recording.acknowledged) == 1
    return recording, disk


@pytest.mark.slow
def test_power_loss_at_any_point_of_creation_leaves_a_usable_log_or_none(
    tmp_path: Path,
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    disk = Disk(work)
    with recorded(work) as trace:
        recording = Recording(trace)
        admin = Admin(_made(work))
        recording.acknowledge("made")
        admin.create_topic(SOURCE)
        recording.acknowledge(SOURCE)
        with Producer(admin.connection) as producer:
            producer.send(SOURCE, b"first").get()
            recording.acknowledge("first")
    _check_all(recording, disk, _check_made)


def _check_made(left: Path, known: set[str]) -> None:
    """The log can be opened, or created again if no process got an acknowledgement of its
    creation."""
    open_log = _opened if "made" in known else _made
    connection = open_log(left, durable=False)
    admin = Admin(connection)
    if SOURCE not in admin.list_topics():
        assert SOURCE not in known
        admin.create_topic(SOURCE)
    with Producer(connection) as producer:
        producer.send(SOURCE, b"last").get()
    values = _values(connection, SOURCE)
    assert values in ([b"first", b"last"], [b"last"])
    assert "first" not in known or values[0] == b"first"
    assert check_log(connection) == []


@pytest.mark.slow
def test_I12_holds_after_power_loss_at_any_point_of_maintenance(tmp_path: Path) -> None:
    """Deleted objects may be back, all of them or some."""
    work = tmp_path / "work"
    _filled(work)
    connection = _opened(work, durable=False)
    _copy(connection, _registered(connection))
    Admin(connection).create_topic("deleted")
    with Producer(connection) as producer:
        producer.send("deleted", b"gone").get()
    Admin(connection).delete_topics(["deleted"])
    disk = Disk(work)
    with recorded(work) as trace:
        recording = Recording(trace)
        recording.acknowledge(f"copied {COUNT}")
        _maintain(_opened(work))
    _check_all(recording, disk, _check_maintained)


def _maintain(connection: Connection) -> None:
    """Run all tasks at once, and prune the journals, too."""
    _pass(connection)
    for topic in RESULTS:
        assert connection.cluster.topic(topic).journal.prune(2) > 0
    assert connection.coordinator_of(NAME).journal.prune(2) > 0


def _pass(connection: Connection) -> None:
    """The first pass finds, the second deletes."""
    settings = ProcessSettings(staging_retention_ms=1, file_delete_delay_ms=1)
    maintenance = Maintenance(connection, settings)
    for _ in range(2):
        assert maintenance.run_once().failures == []
        connection.runtime.clock.sleep_ms(2)


def _check_maintained(left: Path, known: set[str]) -> None:
    assert f"copied {COUNT}" in known
    connection = _opened(left, durable=False)
    assert check_log(connection) == []
    assert _copied(connection) == COUNT
    _pass(connection)
    assert _copied(connection) == COUNT
    assert check_log(connection) == []


@pytest.mark.slow
def test_I4_power_loss_does_not_tear_a_commit_finished_by_another_process(
    tmp_path: Path,
) -> None:
    """The process may see an entry whose name is not yet safe, and must not act on it elsewhere."""
    work = tmp_path / "work"
    _filled(work)
    helped = []

    def publish(folder: int, temporary: str, name: str) -> bool:
        published = publish_exclusively(folder, temporary, name)
        target = Path(os.readlink(f"/proc/self/fd/{folder}"), name)
        is_in_coordinator = "/transactions/" in str(target)
        is_decision = is_in_coordinator and b"commit_prepared" in target.read_bytes()
        if is_decision and not helped:
            helped.append(_opened(work).coordinator_of(NAME).maintain())
        return published

    disk = Disk(work)
    with recorded(work) as trace:
        recording = Recording(trace)
        runtime = Runtime(fan_out=SerialFanOut())
        store = LocalStore(work / "log", runtime, publish=publish)
        connection = open_connection(store, runtime)
        _copy(connection, _registered(connection), 1, recording.acknowledge)
    assert [len(each) for each in helped] == [1]
    _check_all(recording, disk, _check_copies, LOSSES_MIN_OF_STAGED)
