"""A journal that has lost its beginning is not begun again (R63, I12, I15).

Begun again, a topic's journal would not refer to its segments, which the vacuum would delete, and a
coordinator's would have forgotten its groups and transactional ids.
"""

from collections.abc import Callable

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import unavailable
from txlog.catalog.cluster import open_cluster
from txlog.catalog.cluster_file import create_cluster
from txlog.client.consumer.consumer import Consumer
from txlog.errors import CorruptData, StoreUnavailable, TopicExists
from txlog.layout import CLUSTER_FILE
from txlog.maintenance.maintenance import Maintenance
from txlog.maintenance.vacuum import Vacuum
from txlog.model import TopicPartition
from txlog.settings import LogSettings
from txlog.storage import MemoryStore
from txlog.testing.clock import manual_runtime
from txlog.verify.invariants import check_log
from txlog.verify.log_audit import audit_log, stored_objects

Use = Callable[[MemoryLog], object]
LOST = r"is missing.* [Rr]estore (that folder|it) from a backup"


def consume_in_group(log: MemoryLog) -> None:
    consumer = Consumer("u", root=log.process(), group_id="g", auto_offset_reset="earliest")
    consumer.poll()
    consumer.commit()


USES_OF_TOPIC: dict[str, Use] = {
    "send": lambda log: log.elsewhere().send("u", b"new").get(),
    "consume": lambda log: log.values("u"),
    "add partitions": lambda log: log.admin.create_partitions("u", 2),
    "delete the topic": lambda log: log.admin.delete_topics(["u"]),
    "vacuum": lambda log: Vacuum(log.process(), 0).find_candidates(),
}
USES_OF_COORDINATORS: dict[str, Use] = {
    "register": lambda log: log.elsewhere("p"),
    "consume in a group": consume_in_group,
    "list groups": lambda log: log.admin.list_groups(),
    "list transactions": lambda log: log.admin.list_transactions(),
    "vacuum": lambda log: Vacuum(log.process(), 0).find_candidates(),
}
USES_OF_CLUSTER: dict[str, Use] = {
    "list topics": lambda log: log.admin.list_topics(),
    "create a topic": lambda log: log.admin.create_topic("v", 1),
    "send": lambda log: log.elsewhere().send("u", b"new").get(),
    "consume": lambda log: log.values("u"),
    "vacuum": lambda log: Vacuum(log.process(), 0).find_candidates(),
}


def remove(log: MemoryLog, *prefixes: str) -> dict[str, bytes]:
    """Remove the objects with these prefixes; return the remaining ones."""
    for path in log.objects():
        if path.startswith(prefixes):
            log.memory.delete(path)
    return log.objects()


def all_of(root: str) -> tuple[str, ...]:
    return (f"{root}/",)


def its_entries(root: str) -> tuple[str, ...]:
    return (f"{root}/entries/",)


def its_beginning(root: str) -> tuple[str, ...]:
    """What a rule about the age of objects deletes."""
    first_nine = f"{root}/entries/0000000000000000000"
    return (first_nine, f"{root}/snapshots/", f"{root}/hint")


EXTENT = pytest.mark.parametrize("extent", [all_of, its_entries, its_beginning])


@pytest.fixture
def log(transaction_records: str) -> MemoryLog:
    """A log whose topic `u` has records, and whose group and transactional id have a past."""
    log = MemoryLog(
        LogSettings(transaction_state_log_num_partitions=1, journal_snapshot_entries=4),
        transaction_records=transaction_records,
    )
    log.admin.create_topic("u", 1)
    log.producer().send("u", b"kept").get()
    producer = log.producer("p")
    for number in range(12):
        with producer.transaction():
            producer.send("u", b"%d" % number)
            producer.send_offsets_to_transaction({TopicPartition("u", 0): number}, "g")
    for _ in range(12):
        log.admin.create_topic("short", 1)
        log.admin.delete_topics(["short"])
    return log


def reopened(log: MemoryLog) -> MemoryLog:
    return MemoryLog(objects=log.objects())


def is_refused(
    log: MemoryLog, root: str, extent: Callable[[str], tuple[str, ...]], use: Use
) -> None:
    left = remove(log, *extent(root))
    assert any(path.startswith(root) for path in left) == (extent is not all_of)
    log = reopened(log)
    with pytest.raises(CorruptData, match=LOST):
        use(log)
    assert [path for path in log.changed_since(left) if path.startswith(root)] == []


@EXTENT
@pytest.mark.parametrize("use", USES_OF_TOPIC.values(), ids=USES_OF_TOPIC)
def test_R63_topic_without_its_beginning_is_lost(
    log: MemoryLog, extent: Callable[[str], tuple[str, ...]], use: Use
) -> None:
    is_refused(log, log.connection.cluster.topic("u").layout.root, extent, use)


@EXTENT
@pytest.mark.parametrize("use", USES_OF_COORDINATORS.values(), ids=USES_OF_COORDINATORS)
def test_R63_coordinator_without_its_beginning_is_lost(
    log: MemoryLog, extent: Callable[[str], tuple[str, ...]], use: Use
) -> None:
    is_refused(log, log.connection.cluster.layout.transactions(0).root, extent, use)


@EXTENT
@pytest.mark.parametrize("use", USES_OF_CLUSTER.values(), ids=USES_OF_CLUSTER)
def test_R63_cluster_without_its_beginning_is_lost(
    log: MemoryLog, extent: Callable[[str], tuple[str, ...]], use: Use
) -> None:
    is_refused(log, log.connection.cluster.layout.cluster().root, extent, use)


@EXTENT
@pytest.mark.parametrize("journal", ["cluster", "topics/u", "transactions"])
def test_R63_audit_names_a_journal_without_its_beginning(
    log: MemoryLog, extent: Callable[[str], tuple[str, ...]], journal: str
) -> None:
    layout = log.connection.cluster.layout
    roots = {
        "cluster": layout.cluster().root,
        "topics/u": log.connection.cluster.topic("u").layout.root,
        "transactions": layout.transactions(0).root,
    }
    left = remove(log, *extent(roots[journal]))
    reader = log.process()
    findings = audit_log(reader, listed=stored_objects(reader)).findings
    assert any(found.path.startswith(roots[journal]) for found in findings), findings
    assert log.objects() == left


def test_R63_journal_whose_beginning_was_pruned_is_whole(log: MemoryLog) -> None:
    cluster = log.connection.cluster
    for journal in (
        cluster.journal,
        cluster.topic("u").journal,
        log.connection.coordinator(0).journal,
    ):
        assert journal.prune(keep_entries=0)
    log = reopened(log)
    for use in (USES_OF_TOPIC["send"], USES_OF_COORDINATORS["register"]):
        use(log)
    log.check()


@pytest.mark.parametrize("stops_at", ["topics/v/", "cluster/"])
def test_R63_interrupted_creation_leaves_no_topic_and_harms_no_other(
    log: MemoryLog, stops_at: str
) -> None:
    log.store.on("create", stops_at, unavailable, times=100)
    with pytest.raises(StoreUnavailable):
        log.admin.create_topic("v", 1)
    log = reopened(log)
    assert log.admin.list_topics() == ["u"]
    Maintenance(log.process()).run_once()
    log.check()
    log.admin.create_topic("v", 1)
    log.producer().send("v", b"new").get()
    assert log.values("v") == [b"new"]
    log.check()


def test_R63_topic_that_exists_already_leaves_nothing_of_a_second_one(log: MemoryLog) -> None:
    before = log.objects()
    for admin in (log.admin, log.process_admin()):
        with pytest.raises(TopicExists, match="exists already"):
            admin.create_topic("u", 1)
    assert log.objects() == before


# The creation of a log.


def new_store() -> MemoryStore:
    return MemoryStore(manual_runtime())


def test_R63_log_has_the_first_entries_of_all_its_journals_once_it_has_its_file() -> None:
    store = new_store()
    file = create_cluster(store, manual_runtime("a"))
    cluster = open_cluster(store, manual_runtime("b"))
    journals = [cluster.layout.cluster(), *map(cluster.layout.transactions, range(8))]
    assert all(store.get(journal.entry(0)) for journal in journals)
    assert cluster.log_id == file.log_id
    assert check_log(store) == []


def test_R63_second_creation_of_a_log_leaves_only_the_first() -> None:
    """The other one is created after this one has looked for a log."""
    store, other = new_store(), manual_runtime("b")
    created = []
    found = create_cluster(
        store,
        manual_runtime("a"),
        require_place=lambda: created.append(create_cluster(store, other)),
    )
    assert [found] == created
    names = {path.path.split("/")[1] for path in store.list_after("transactions/")}
    assert names == {found.log_id}


def test_foreign_objects_do_not_prevent_creation_of_a_log_and_a_topic(log: MemoryLog) -> None:
    root = log.connection.cluster.topic("u").layout.root
    remove(log, "")
    for folder in ("cluster", "topics", root):
        log.memory.put_new(f"{folder}/.DS_Store", b"of a file manager")
    create_cluster(log.memory, manual_runtime("another log"))
    log = reopened(log)
    log.admin.create_topic("u", 1)
    log.producer().send("u", b"new").get()
    assert log.values("u") == [b"new"]


def test_I4_lost_cluster_file_raises_corrupt_data_and_is_not_recreated(log: MemoryLog) -> None:
    """The cluster file has the number of coordinators."""
    left = remove(log, CLUSTER_FILE)
    runtime = log.connection.runtime
    with pytest.raises(CorruptData, match=f"{CLUSTER_FILE} is lost.* Restore it from a backup"):
        create_cluster(log.memory, runtime)
    with pytest.raises(CorruptData, match=f"{CLUSTER_FILE} is lost"):
        open_cluster(log.memory, runtime, create=True)
    assert log.objects() == left


def test_R63_interrupted_creation_of_a_log_does_not_prevent_the_next() -> None:
    store = new_store()
    create_cluster(store, manual_runtime("a"))
    store.delete(CLUSTER_FILE)
    found = create_cluster(store, manual_runtime("b"))
    assert open_cluster(store, manual_runtime("c")).file == found
