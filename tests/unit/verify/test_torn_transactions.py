"""A copy of a log that was made while processes wrote has journals of different moments (I5).

Each journal is sound by itself; a transaction may be finished in one and never in another.
"""

from collections.abc import Callable

import pytest

from tests.logs.memory_log import MemoryLog
from txlog.cli.commands.verify import proven
from txlog.model import TopicPartition
from txlog.settings import LogSettings
from txlog.verify.log_audit import LogReport, audit_log, stored_objects

Objects = dict[str, bytes]


def audited(objects: Objects) -> LogReport:
    connection = MemoryLog(objects=objects).connection
    return audit_log(connection, listed=stored_objects(connection))


def is_torn(objects: Objects) -> bool:
    """Whether `txlog verify` without `--at-rest` exits with 1 although no object is damaged."""
    report = audited(objects)
    assert report.findings == []
    return report.may_be_torn and proven(MemoryLog(objects=objects).connection) != []


@pytest.fixture
def log(transaction_records: str) -> MemoryLog:
    log = MemoryLog(
        LogSettings(transaction_state_log_num_partitions=2), transaction_records=transaction_records
    )
    for name in ("a", "b", "in"):
        log.admin.create_topic(name, 1)
    for _ in range(5):
        log.producer().send("in", b"x").get()
    return log


def commit(log: MemoryLog, *topics: str, group: str = "") -> Callable[[], None]:
    """One transaction; the returned function makes another one by the same producer."""
    producer = log.producer("p")
    count = iter(range(1, 100))

    def once() -> None:
        with producer.transaction():
            for name in topics:
                producer.send(name, b"x")
            if group:
                producer.send_offsets_to_transaction({TopicPartition("in", 0): next(count)}, group)

    once()
    return once


def copied(earlier: Objects, later: Objects, *prefixes: str) -> Objects:
    """What a copy has that read the objects with these prefixes earlier than all others."""
    kept = {path: data for path, data in later.items() if not path.startswith(prefixes)}
    return kept | {path: data for path, data in earlier.items() if path.startswith(prefixes)}


@pytest.mark.parametrize("prefix", ["transactions/", "topics/a/", "topics/b/", "topics/"])
@pytest.mark.parametrize("topics", [("a",), ("a", "b")])
def test_I5_transaction_that_a_copy_has_in_one_journal_only_is_found(
    log: MemoryLog, prefix: str, topics: tuple[str, ...]
) -> None:
    again = commit(log, *topics)
    earlier = log.objects()
    again()
    later = log.objects()
    is_affected = "transactions/".startswith(prefix) or any(
        f"topics/{name}/".startswith(prefix) for name in topics
    )
    assert is_torn(copied(earlier, later, prefix)) == is_affected
    assert not is_torn(earlier)
    assert not is_torn(later)


@pytest.mark.parametrize("group", ["group 0", "group 1", "group 2", "group 3"])
def test_I5_offsets_that_a_copy_has_lost_are_found(log: MemoryLog, group: str) -> None:
    """In the journal of the same coordinator, nothing can be lost alone."""
    again = commit(log, "a", group=group)
    earlier = log.objects()
    again()
    later = log.objects()
    coordinators = log.connection.coordinators()
    (of_group,) = {c.number for c in coordinators if group in c.journal.state.offsets.groups}
    own = log.connection.coordinator_of("p").number
    prefix = log.connection.cluster.layout.transactions(of_group).root
    assert is_torn(copied(earlier, later, f"{prefix}/")) or of_group == own
    assert not is_torn(later)


def test_I5_transaction_of_an_instance_that_a_copy_does_not_know_is_found(log: MemoryLog) -> None:
    earlier = log.objects()
    commit(log, "a")
    assert is_torn(copied(earlier, log.objects(), "transactions/"))


def test_transactions_in_flight_are_not_torn(log: MemoryLog) -> None:
    commit(log, "a", "b", group="g")
    producer = log.producer("q")
    producer.begin_transaction()
    producer.send("a", b"open")
    producer.flush()
    assert not audited(log.objects()).may_be_torn
    producer.abort_transaction()
    assert not audited(log.objects()).may_be_torn


def test_transaction_decided_during_the_audit_is_not_torn(log: MemoryLog) -> None:
    """The audit reads coordinators first, and meets its markers later."""
    again = commit(log, "a", "b")
    reader = log.process(log.store)
    layout = log.connection.cluster.topic("a").layout

    def commit_meanwhile(call: Callable[[], object]) -> object:
        log.store.heal()
        again()
        return call()

    rule = log.store.on("get", layout.boundary(0), commit_meanwhile)
    report = audit_log(reader, listed=stored_objects(reader))
    assert rule.met
    assert report.findings == []
    assert not report.may_be_torn


def test_forgotten_producers_and_deleted_topics_are_not_torn(log: MemoryLog) -> None:
    commit(log, "a", "b", group="g")
    log.admin.delete_topics(["b"])
    for journal in (
        log.connection.cluster.topic("a").journal,
        *(coordinator.journal for coordinator in log.connection.coordinators()),
    ):
        journal.prune(keep_entries=0)
    assert not audited(log.objects()).may_be_torn
