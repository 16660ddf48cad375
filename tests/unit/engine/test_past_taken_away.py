"""Producers of a log whose past is taken away: what they acknowledge is in the log (R62).

The log stays in its place with its id. An older backup is put back, or a part is removed.
"""

import filecmp
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.logs.empty_log import empty_log
from tests.logs.memory_log import MemoryLog
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.errors import IllegalTransition, NotATxlog, OutcomeUnknown
from txlog.layout import CLUSTER_FILE
from txlog.settings import LogSettings, ProcessSettings

INTERVAL_MS = ProcessSettings().log_presence_interval_ms


def send(producer: Producer) -> None:
    producer.send("t", b"x")
    producer.flush()


def commit(producer: Producer) -> None:
    with producer.transaction():
        producer.send("t", b"x")


def poll_often(consumer: Consumer) -> None:
    for _ in range(2 * ProcessSettings().boundary_probe_polls):
        consumer.poll()


@pytest.fixture(params=["near", "far"])
def log(request: pytest.FixtureRequest) -> MemoryLog:
    """A log with a topic: in this process's memory, or as in a bucket."""
    trust = LogSettings(boundary_trust_ms=1 << 40, boundary_grace_ms=1 << 50)
    found = MemoryLog(trust if request.param == "far" else None)
    if request.param == "near":
        found.connection = found.process()
        found.admin = Admin(found.connection)
    found.admin.create_topic("t", 1)
    return found


def put_back(log: MemoryLog, backup: dict[str, bytes], parts: tuple[str, ...]) -> None:
    """Let the objects with these names be as in the backup."""
    for path, data in log.objects().items():
        is_part = path.startswith(parts[0]) and parts[-1] in path and path != CLUSTER_FILE
        if is_part and backup.get(path) != data:
            log.memory.delete(path)
            if path in backup:
                log.memory.put_new(path, backup[path])


@pytest.mark.parametrize(
    ("write", "parts"),
    [
        (send, ("",)),
        (send, ("topics/t/",)),
        (send, ("topics/t/", "/entries/")),
        (commit, ("",)),
        (commit, ("topics/t/",)),
        (commit, ("topics/t/", "/entries/")),
        (commit, ("transactions/",)),
        (commit, ("transactions/", "/entries/")),
    ],
)
@pytest.mark.parametrize("is_removed", [True, False], ids=["removed", "older backup"])
def test_R62_producer_acknowledges_nothing_once_past_is_taken_away(
    log: MemoryLog, write: Callable[[Producer], None], parts: tuple[str, ...], is_removed: bool
) -> None:
    producer = log.producer("p" if write is commit else None)
    write(producer)
    backup = {} if is_removed else log.objects()
    for _ in range(3):
        write(producer)
    log.clock.advance(INTERVAL_MS)
    put_back(log, backup, parts)
    with pytest.raises((NotATxlog, OutcomeUnknown)):
        write(producer)
    before = log.objects()
    for _ in range(3):
        with pytest.raises(NotATxlog):
            send(Producer(log.connection))
    created = [path for path in log.changed_since(before) if "/entries/" in path]
    assert created == [], "the whole log is refused from then on"


def test_R62_consumer_is_told_once_past_is_taken_away(log: MemoryLog) -> None:
    producer = log.producer()
    send(producer)
    backup = log.objects()
    send(producer)
    consumer = Consumer("t", root=log.connection, auto_offset_reset="earliest")
    assert len(list(consumer.read_to_end())) == 2
    put_back(log, backup, ("",))
    log.clock.advance(INTERVAL_MS)
    with pytest.raises(NotATxlog):
        poll_often(consumer)


def sync_back(backup: Path, root: Path) -> None:
    """`rsync -a --delete backup/ root/`: files that are equal stay the same files."""
    for folder, _, names in os.walk(root):
        for path in (Path(folder, name) for name in names):
            kept = backup / path.relative_to(root)
            if not kept.exists():
                path.unlink()
            elif not filecmp.cmp(path, kept, shallow=False):
                shutil.copy(kept, path)


def test_R62_disk_log_restored_in_place_refuses_old_producers_and_takes_new_ones(
    tmp_path: Path,
) -> None:
    root = empty_log(tmp_path / "log")
    Admin(root).create_topic("t", 1)
    producer = Producer(root, transactional_id="p")
    producer.init_transactions()
    commit(producer)
    producer.close()
    shutil.copytree(root, tmp_path / "backup")
    producer = Producer(root, transactional_id="p")
    producer.init_transactions()
    for _ in range(5):
        commit(producer)
    sync_back(tmp_path / "backup", Path(root))
    with pytest.raises((NotATxlog, OutcomeUnknown)):
        commit(producer)
    with pytest.raises((NotATxlog, IllegalTransition)):
        commit(producer)
    new = Producer(root, transactional_id="p")
    new.init_transactions()
    commit(new)
    consumer = Consumer("t", root=root, auto_offset_reset="earliest")
    assert len(list(consumer.read_to_end())) == 2, "the one in the backup, and the new one"
