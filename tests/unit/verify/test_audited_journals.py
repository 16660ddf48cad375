"""What an audit of a whole log counts, and what it reads again while other processes write."""

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import preceded_by
from tests.unit.verify.test_log_audit import COUNT, audit, named, paths, stage, topic
from txlog.engine.connection import Connection
from txlog.engine.transaction_session import TransactionSession
from txlog.journal.snapshot import decode_snapshot, encode_snapshot
from txlog.model import TxId
from txlog.settings import LogSettings
from txlog.topic.batch_index import IndexedBatch
from txlog.topic.upkeep.merging import merge_segments
from txlog.verify.invariants import check_log
from txlog.verify.log_audit import audit_log, stored_objects


@pytest.fixture
def log() -> MemoryLog:
    """Two topics of one partition each, whose first batches are sealed."""
    log = MemoryLog(LogSettings(journal_snapshot_entries=4), transaction_records="in.log")
    for name in ("u", "v"):
        log.admin.create_topic(name, 1)
    producer = log.producer("a")
    for number in range(COUNT):
        with producer.transaction():
            for name in ("u", "v"):
                producer.send(name, b"%d" % number)
    return log


def rows(log: MemoryLog, name: str = "u") -> list[IndexedBatch]:
    """The index of a topic, as a new process reads it."""
    found = topic(log, name)
    return list(found.batches(found.state, 0, 0, 1 << 60))


def test_report_counts_what_was_read_of_each_journal(log: MemoryLog) -> None:
    seen: list[int] = []
    connection = log.process()
    report = audit_log(connection, (), stored_objects(connection), seen.append)
    found = {journal.name: journal for journal in report.journals}
    assert sum(seen) == sum(journal.size_bytes for journal in report.journals)
    for name in ("u", "v"):
        assert (found[name].batches, found[name].records) == (COUNT, COUNT)
        assert found[name].entries == len(paths(log, f"^topics/{name}/.*/entries/"))
        assert found[name].snapshots == len(paths(log, f"^topics/{name}/.*/snapshots/"))
        batches = sum(row.length for row in rows(log, name))
        others = paths(log, f"^topics/{name}/.*/(entries|snapshots)/")
        journal = sum(len(log.objects()[path]) for path in others)
        assert batches + journal <= found[name].size_bytes < 2 * (batches + journal)


def test_I15_outcomes_that_cannot_be_decoded_are_named_by_both_audits(log: MemoryLog) -> None:
    """A process decodes old outcomes when it needs them; an audit decodes all."""
    own = log.connection.coordinator_of("a")
    own.journal.prune(0)
    path = paths(log, f"^{own.journal.layout.root}/snapshots/")[-1]
    head, sections = decode_snapshot(log.objects()[path], path)
    forged = {name: list(rows) for name, rows in sections.items()}
    assert forged["outcomes"]
    forged["outcomes"] = ["no outcomes"]
    log.memory.replace(path, encode_snapshot(head, forged))
    assert path in named(audit(log))
    assert path in {finding.path for finding in check_log(log.memory)}


@pytest.mark.parametrize("times", [1, 2])
def test_index_that_is_rewritten_during_the_audit_is_read_again(log: MemoryLog, times: int) -> None:
    producer = log.elsewhere()

    def rewrite() -> None:
        for number in range(20):
            producer.send("u", b"%d" % number).get()
        old = paths(log, "^topics/u/.*/(chunks|segments)/")
        assert merge_segments(topic(log, "u"), 1 << 20).segments_after
        referred = {row.segment for row in rows(log)}
        for path in old:
            if path not in referred:
                log.memory.delete(path)

    reader = log.process(log.store)
    rule = log.store.on("get", "^topics/u/.*/chunks/", preceded_by(rewrite), times=times)
    report = audit_log(reader)
    assert rule.met == times
    assert report.findings == []
    records = {journal.name: journal.records for journal in report.journals}
    assert records["u"] == COUNT + 20 * times


# Staged records.


def decided(log: MemoryLog, name: str, *topics: str) -> tuple[TxId, list[str]]:
    """A committed transaction of another process that has no marker yet, and its segments."""
    participants = tuple(stage(log, each) for each in topics)
    connection: Connection = log.process()
    session = TransactionSession(connection, name)
    session.register("one")
    session.begin()
    connection.coordinator_of(name).prepare_commit(name, session.tx_id, participants, (), None, "")
    return session.tx_id, [segment.path for one in participants for segment in one.segments]


def test_every_missing_staged_segment_is_reported_with_its_topic(log: MemoryLog) -> None:
    decided(log, "first", "u", "v")
    tx_id, (in_u, in_v) = decided(log, "second", "u", "v")
    for path in (in_u, in_v):
        log.memory.delete(path)
    report = audit(log)
    by_journal = {j.name: [f.path for f in j.findings] for j in report.journals if j.findings}
    assert by_journal == {"u": [in_u], "v": [in_v]}
    assert {(f.path, f.invariant) for f in check_log(log.memory)} == {(in_u, "I15"), (in_v, "I15")}
    root = log.connection.coordinator_of("second").journal.layout.root
    text = f"(staged by transaction {tx_id} of {root})"
    assert all(text in finding.message for finding in report.findings)


def test_staged_segment_that_was_applied_and_merged_is_not_missed(log: MemoryLog) -> None:
    tx_id, (path,) = decided(log, "first", "u")
    coordinator = log.process().coordinator_of("first")
    coordinator.catch_up()
    coordinator.apply("first", tx_id)
    assert path in {row.segment for row in rows(log)}
    for number in range(8):
        log.producer().send("u", b"%d" % number).get()
    assert merge_segments(topic(log, "u"), 1 << 20).segments_after
    assert path not in {row.segment for row in rows(log)}
    log.memory.delete(path)
    assert audit(log).findings == []
