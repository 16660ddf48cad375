"""A lost journal is not begun again while objects that follow from it exist (I12, I15).

A new journal would not refer to its segments, and the vacuum would delete them.
"""

from collections.abc import Callable

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.catalog.cluster import open_cluster
from txlog.catalog.cluster_file import create_cluster
from txlog.errors import CorruptData
from txlog.layout import CLUSTER_FILE
from txlog.maintenance.vacuum import Vacuum

Use = Callable[[MemoryLog], object]

USES: dict[str, Use] = {
    "send": lambda log: log.elsewhere().send("u", b"new").get(),
    "consume": lambda log: log.values("u"),
    "add partitions": lambda log: log.admin.create_partitions("u", 2),
    "delete the topic": lambda log: log.admin.delete_topics(["u"]),
    "vacuum": lambda log: Vacuum(log.process(), 0).find_candidates(),
}


def remove(log: MemoryLog, *prefixes: str) -> dict[str, bytes]:
    """Remove the objects with these prefixes; return the remaining ones."""
    for path in log.objects():
        if path.startswith(prefixes):
            log.memory.delete(path)
    return log.objects()


@pytest.fixture
def log(transaction_records: str) -> MemoryLog:
    """A log whose topic `u` has a record; tests then remove the journal of `u`."""
    log = MemoryLog(transaction_records=transaction_records)
    log.admin.create_topic("u", 1)
    log.producer().send("u", b"kept").get()
    return log


def reopened(log: MemoryLog) -> MemoryLog:
    return MemoryLog(objects=log.objects())


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_I12_topic_with_a_lost_journal_raises_corrupt_data(log: MemoryLog, use: Use) -> None:
    root = log.connection.cluster.topic("u").layout.root
    left = remove(log, f"{root}/entries", f"{root}/snapshots", f"{root}/boundaries", f"{root}/hint")
    assert any("/segments/" in path for path in left)
    with pytest.raises(CorruptData, match=r"the journal is lost.* Restore it from a backup"):
        use(reopened(log))
    changed = [path for path in log.changed_since(left) if path.startswith(root)]
    assert changed == []


def test_interrupted_topic_creation_is_completed_by_the_next_use(log: MemoryLog) -> None:
    remove(log, log.connection.cluster.topic("u").layout.root)
    log = reopened(log)
    log.producer().send("u", b"new").get()
    assert log.values("u") == [b"new"]


def test_foreign_objects_do_not_prevent_creation_of_a_log_and_a_topic(log: MemoryLog) -> None:
    root = log.connection.cluster.topic("u").layout.root
    left = remove(log, CLUSTER_FILE, "cluster/", root)
    assert left == {}
    for folder in ("cluster", "topics", root):
        log.memory.put_new(f"{folder}/.DS_Store", b"of a file manager")
    create_cluster(log.memory, log.connection.runtime)
    log = reopened(log)
    log.admin.create_topic("u", 1)
    log.producer().send("u", b"new").get()
    assert log.values("u") == [b"new"]


def test_I12_lost_cluster_journal_raises_corrupt_data_and_is_not_recreated(log: MemoryLog) -> None:
    left = remove(log, "cluster/")
    log = reopened(log)
    for use in (lambda: log.admin.create_topic("u", 1), log.connection.cluster.producer_id):
        with pytest.raises(CorruptData, match=r"cluster/\w+ has neither an entry nor a boundary"):
            use()
    assert log.objects() == left


def test_I4_lost_cluster_file_raises_corrupt_data_and_is_not_recreated(log: MemoryLog) -> None:
    """The cluster file has the number of coordinators."""
    left = remove(log, CLUSTER_FILE)
    runtime = log.connection.runtime
    with pytest.raises(CorruptData, match=f"{CLUSTER_FILE} is lost.* Restore it from a backup"):
        create_cluster(log.memory, runtime)
    with pytest.raises(CorruptData, match=f"{CLUSTER_FILE} is lost"):
        open_cluster(log.memory, runtime, create=True)
    assert log.objects() == left
