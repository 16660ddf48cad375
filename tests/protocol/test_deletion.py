"""What may be deleted, and the error of a reader whose object is gone (I12, R19)."""

import pytest

from tests.logs.memory_log import SEGMENTS, MemoryLog
from txlog.errors import MissingObject

TRANSACTIONS = 70
"""More than the entries between two snapshots."""


@pytest.fixture
def log() -> MemoryLog:
    log = MemoryLog(SEGMENTS)
    log.admin.create_topic("a", 2)
    return log


def write(log: MemoryLog, transactional_id: str = "id") -> list[bytes]:
    producer = log.producer(transactional_id)
    for number in range(TRANSACTIONS):
        with producer.transaction():
            producer.send("a", b"%d" % number, partition=0)
    return [b"%d" % number for number in range(TRANSACTIONS)]


def test_I12_pruning_deletes_entries_but_no_records(log: MemoryLog) -> None:
    written = write(log)
    segments = {path for path in log.objects() if "/segments/" in path}
    assert log.connection.cluster.topic("a").journal.prune(0) > TRANSACTIONS
    assert {path for path in log.objects() if "/segments/" in path} == segments
    assert log.values("a") == written
    log.check()


def test_I12_open_transaction_survives_pruning_of_its_entries(log: MemoryLog) -> None:
    opened = log.elsewhere("open", transaction_records="in.log")
    opened.begin_transaction()
    opened.send("a", b"open", partition=1)
    opened.flush()
    written = write(log)
    log.connection.cluster.topic("a").journal.prune(0)
    assert log.values("a") == written
    opened.commit_transaction()
    assert log.values("a") == [*written, b"open"]
    log.check()


def test_R19_missing_segment_that_the_log_refers_to_is_damage(log: MemoryLog) -> None:
    write(log)
    doomed = min(path for path in log.objects() if "/segments/" in path)
    log.memory.delete(doomed)
    with pytest.raises(MissingObject, match="Restore it from a backup") as raised:
        log.values("a")
    assert raised.value.facts["path"] == doomed
