"""Producers and consumers on a disk whose log is removed, moved or replaced while they use it.

Acknowledged records must be in the log that was opened. So no further write is acknowledged, no
folder is created again, and a log that replaced the old one is never touched.
"""

import gc
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.logs.empty_log import empty_log
from tests.unit.open_files import open_below
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import CONNECTIONS_MAX, connect
from txlog.engine.connection import _connections as connections
from txlog.errors import NotATxlog, StoreDenied
from txlog.maintenance.maintenance import Maintenance
from txlog.settings import ProcessSettings
from txlog.storage import open_store
from txlog.verify.invariants import check_log
from txlog.verify.log_audit import audit_log

pytestmark = pytest.mark.slow


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return new_log(tmp_path / "log")


def new_log(root: Path) -> Path:
    """A log in which each flush writes a segment."""
    segments = {"entry.records.max.bytes": 0}
    Admin(str(root), create=True, log_config=segments).create_topic("t", 1)
    return root


def remove(root: Path) -> None:
    shutil.rmtree(root)


def empty(root: Path) -> None:
    for path in root.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def move(root: Path) -> None:
    root.rename(root.with_name("moved"))


def remove_and_create(root: Path) -> None:
    remove(root)
    new_log(root)


def empty_and_create(root: Path) -> None:
    empty(root)
    new_log(root)


def put_another_there(root: Path) -> None:
    move(root)
    new_log(root)


CHANGES = [remove, empty, move, remove_and_create, empty_and_create, put_another_there]


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def send(producer: Producer) -> None:
    producer.send("t", value=b"3")
    producer.flush()


@pytest.fixture(params=CHANGES)
def change(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    found: Callable[[Path], None] = request.param
    return found


def test_flush_after_log_is_gone_is_refused_and_writes_nothing(
    root: Path, change: Callable[[Path], None], tmp_path: Path
) -> None:
    producer = Producer(str(root))
    producer.send("t", value=b"1")
    producer.flush()
    producer.send("t", value=b"2")
    change(root)
    before = contents(tmp_path)
    with pytest.raises(NotATxlog, match="is not there any more"):
        producer.flush()
    with pytest.raises(NotATxlog):
        send(producer)
    assert contents(tmp_path) == before


def test_commit_after_log_is_gone_is_refused_and_writes_nothing(
    root: Path, change: Callable[[Path], None], tmp_path: Path
) -> None:
    producer = Producer(str(root), transactional_id="p")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", value=b"1")
    producer.flush()
    change(root)
    before = contents(tmp_path)
    for _ in range(2):
        with pytest.raises(NotATxlog):
            producer.commit_transaction()
    assert contents(tmp_path) == before


def test_consumer_raises_after_log_is_gone(root: Path, change: Callable[[Path], None]) -> None:
    consumer = Consumer("t", root=str(root), auto_offset_reset="earliest", group_id="g")
    assert consumer.poll() == {}
    change(root)
    for call in (consumer.poll, consumer.commit):
        with pytest.raises(NotATxlog, match="is not there any more"):
            call()


@pytest.mark.parametrize("change", [remove_and_create, empty_and_create, put_another_there])
def test_replacement_log_opens_in_same_process_and_stays_sound(
    root: Path, change: Callable[[Path], None]
) -> None:
    old = Producer(str(root), transactional_id="p")
    old.init_transactions()
    old.begin_transaction()
    old.send("t", value=b"old")
    change(root)
    new = Producer(str(root), transactional_id="p")
    new.init_transactions()
    new.begin_transaction()
    new.send("t", value=b"new")
    with pytest.raises(NotATxlog):
        old.commit_transaction()
    new.commit_transaction()
    consumer = Consumer("t", root=str(root), auto_offset_reset="earliest")
    records = [record.value for records in consumer.poll().values() for record in records]
    assert records == [b"new"]
    assert check_log(connect(str(root))) == []


def test_connect_to_removed_log_is_refused_and_creates_nothing(root: Path) -> None:
    connect(str(root))
    remove(root)
    with pytest.raises(NotATxlog, match="there is no log at"):
        connect(str(root))
    assert not root.exists()


def test_flush_to_replaced_memory_log_is_refused() -> None:
    root = "memory://gone"
    Admin(root, create=True).create_topic("t", 1)
    producer = Producer(root)
    producer.send("t", value=b"1")
    store = open_store(root, Runtime())
    for path in [stored.path for stored in store.list_after("")]:
        store.delete(path)
    Admin(root, create=True).create_topic("t", 1)
    with pytest.raises(NotATxlog):
        producer.flush()
    assert check_log(connect(root)) == []


# Another program's objects in a log.


def maintain(root: Path) -> None:
    """One pass, and the deletion of what it found unused."""
    settings = ProcessSettings(
        journal_retention_entries=1, staging_retention_ms=1, file_delete_delay_ms=1
    )
    maintenance = Maintenance(connect(str(root)), settings)
    maintenance.run_once()
    while maintenance.sweep_due_in_ms():
        pass  # A millisecond passes.
    maintenance.vacuum_once()


def prune(root: Path) -> Any:
    return connect(str(root)).cluster.topic("t").journal.prune(2)


def filled(root: Path) -> Path:
    """Fill a topic and return the folder of its entries."""
    producer = Producer(str(root))
    for number in range(10):
        producer.send("t", value=b"%d" % number)
        producer.flush()
    return next((root / "topics" / "t").iterdir()) / "entries"


def test_maintenance_never_deletes_through_a_link(root: Path, tmp_path: Path) -> None:
    entries = filled(root)
    outside = tmp_path / "home"
    entries.rename(outside)
    for name in ("authorized_keys", "00000000000000000000", f"{0:020d}.json.bak"):
        (outside / name).write_bytes(b"another user's")
    os.symlink(outside, entries)
    before = contents(outside)
    for upkeep in (prune, maintain):
        with suppress(StoreDenied):
            upkeep(root)
    assert contents(outside) == before


def test_pruning_and_maintenance_keep_foreign_files_beside_the_logs_own(root: Path) -> None:
    entries = filled(root)
    segments = entries.with_name("segments")
    own = sorted(segments.rglob("*.arrow"))[0]
    foreign = [
        entries / name
        for name in ("0", f"{0:020d}", f"{0:020d}.json.bak", f"{0:021d}.json", ".notes")
    ]
    foreign += [entries / "0.d" / f"{0:020d}.json", segments / "0note.arrow", root / "notes.txt"]
    foreign += [own.with_name(f"{own.name}.bak"), own.with_name(f".{own.name}")]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"another's")
        os.utime(path, (0, 0))
    unused = own.with_name(f"{'0' * 32}.arrow")
    shutil.copy(own, unused)
    os.utime(unused, (0, 0))
    for upkeep in (prune, maintain):
        upkeep(root)
    assert not (entries / f"{0:020d}.json").exists()
    assert not unused.exists()
    assert [path for path in foreign if not path.exists()] == []


# How many files a process keeps open.


def test_process_keeps_at_most_CONNECTIONS_MAX_logs_open(tmp_path: Path) -> None:
    connections.clear()
    for number in range(CONNECTIONS_MAX + 10):
        connect(empty_log(tmp_path / str(number)))
    assert len(connections) == CONNECTIONS_MAX
    gc.collect()
    assert open_below(tmp_path) <= 2 * CONNECTIONS_MAX
    connections.clear()
    gc.collect()
    assert not open_below(tmp_path)


def test_replaced_logs_leak_no_open_files(tmp_path: Path) -> None:
    root = empty_log(tmp_path / "log")
    for _ in range(10):
        connect(root)
        shutil.rmtree(root)
        empty_log(tmp_path / "log")
    gc.collect()
    assert open_below(tmp_path) <= 4


@pytest.mark.timeout(30)
@pytest.mark.parametrize("slot", [4, 10])
def test_I15_audit_reports_named_pipe_in_place_of_entry(root: Path, slot: int) -> None:
    entries = filled(root)
    assert audit_log(connect(str(root))).findings == []
    path = entries / f"{slot:020d}.json"
    path.unlink()
    os.mkfifo(path)
    found = audit_log(connect(str(root))).findings
    assert [path.name in finding.sentence for finding in found] == [True] * len(found) != []
