"""`check_log` finds damage to journals, segments and the index, and nothing in a sound log."""

import json
from dataclasses import replace

import pytest

from tests.protocol.steps import (
    NAME,
    TIMEOUT_MS,
    append,
    coordinator,
    participant,
    pend,
    prepare,
    tx_of,
)
from tests.stores.faulty_stores import ProcessDied
from tests.unit.verify.intact_log import (
    COORDINATOR,
    Events,
    IntactLog,
    changing,
    dropping,
    first,
    invariants,
)
from txlog.coordinator.events import CommitPrepared, ProducerInitialised, TopicDeletionBegun
from txlog.errors import CorruptData, NotATxlog, UnknownTopic
from txlog.journal.audit import Finding
from txlog.journal.boundaries.boundary import Boundary
from txlog.journal.boundaries.boundary import create as create_boundary
from txlog.journal.entry import decode_entry, encode_entry
from txlog.journal.snapshot import decode_snapshot, encode_snapshot
from txlog.model import Decision, TxId
from txlog.storage import MemoryStore
from txlog.testing.clock import manual_runtime
from txlog.topic.events import AppendBatches, BatchesAppended, CloseTopic, MarkerWritten
from txlog.verify.invariants import check_log


@pytest.fixture
def log() -> IntactLog:
    log = IntactLog()
    assert check_log(log.store) == []
    return log


def test_sound_log_has_no_findings_through_a_connection(log: IntactLog) -> None:
    assert check_log(log.process.connection) == []


def test_a_sound_log_that_was_pruned_has_no_findings(log: IntactLog) -> None:
    coordinator(log.process).journal.prune(2)
    log.process.connection.coordinator(0).journal.prune(0)
    for name in ("a", "b", "src"):
        log.process.topic(name).journal.prune(1)
    assert check_log(log.store) == []
    log.commit(3, 4, "a", "b")
    assert check_log(log.store) == []


def test_log_with_journals_rewritten_unchanged_has_no_findings(log: IntactLog) -> None:
    for layout in (COORDINATOR, log.topic("a"), log.topic("b")):
        log.edit(layout, lambda events: None)
    assert check_log(log.store) == []


def test_unfinished_transaction_is_not_reported(log: IntactLog) -> None:
    process = log.process
    tx = tx_of(log.query, 3)
    pend(process, tx, 3, 5)
    assert check_log(log.store) == []
    prepare(process, tx, participant(process, "a", 3, 4), participant(process, "b", 3, 4))
    assert check_log(log.store) == []
    process.store.die_at(1, after=False)
    with pytest.raises(ProcessDied):
        coordinator(process).apply(NAME, tx)
    assert check_log(log.store) == []


def test_records_of_a_topic_deleted_before_the_commit_are_not_reported(
    log: IntactLog,
) -> None:
    """Also after the coordinator was pruned to the transaction's outcome."""
    process, tx = log.process, tx_of(log.producer, 2)
    declared = participant(process, "b", logged=True)
    coordinator(process).begin("p", tx, TIMEOUT_MS, (declared,))
    append(process, "b", tx, 3, 3)
    process.connection.cluster.delete_topics(["b"])
    with pytest.raises(UnknownTopic):
        prepare(process, tx, name="p", groups=())
    coordinator(process).abort("p", tx)
    assert check_log(log.store) == []
    assert coordinator(process).journal.prune(0)
    assert check_log(log.store) == []


def test_check_log_refuses_a_store_without_a_log() -> None:
    with pytest.raises(NotATxlog):
        check_log(MemoryStore(manual_runtime()))


# The journal: I1, I15.


def test_I1_missing_entry_is_reported(log: IntactLog) -> None:
    path = log.topic("b").entry(3)
    log.store.delete(path)
    (finding, *_) = [f for f in check_log(log.store) if f.invariant == "I1"]
    assert finding.path == log.topic("b").entry(4)
    assert "slot 3 is missing" in str(finding)


def test_I1_replaced_entry_is_reported(log: IntactLog) -> None:
    path = log.topic("b").entry(2)
    entry, _ = decode_entry(log.store.get(path), path, 2)
    log.store.replace(path, encode_entry(replace(entry, writer="another writer"))[0])
    assert invariants(log) == {"I1"}


def test_I1_entry_published_twice_is_reported(log: IntactLog) -> None:
    layout = log.topic("src")
    path = layout.entry(1)
    entry, crc32 = decode_entry(log.store.get(path), path, 1)
    again = replace(entry, slot=2, prior_crc32=crc32, events=())
    log.store.create(layout.entry(2), encode_entry(again)[0])
    assert invariants(log) == {"I1"}


def test_I1_boundary_that_goes_back_is_reported(log: IntactLog) -> None:
    log.process.topic("b").journal.prune(2)
    create_boundary(log.store, log.topic("b"), Boundary(1, 1, 2, "token"))
    assert "I1" in invariants(log)


def test_I1_snapshot_beyond_the_journals_end_is_reported(log: IntactLog) -> None:
    layout = log.topic("b")
    data = log.store.get(log.paths(layout.snapshots)[0])
    log.store.create(layout.snapshot(99), data)
    assert invariants(log) == {"I1", "I15"}


def test_I15_damaged_entry_is_reported(log: IntactLog) -> None:
    path = COORDINATOR.entry(1)
    log.store.replace(path, log.store.get(path)[:-3])
    assert Finding(path, "I15", "") < max(f for f in check_log(log.store) if f.path == path)


def test_I15_damaged_boundary_is_reported(log: IntactLog) -> None:
    log.process.topic("b").journal.prune(2)
    log.store.replace(log.topic("b").boundary(0), b"{}")
    assert "I15" in invariants(log)


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_I15_missing_or_damaged_snapshot_of_a_boundary_is_reported(
    log: IntactLog, damage: str
) -> None:
    layout = log.topic("b")
    slot = log.process.topic("b").journal.snapshot()
    log.process.topic("b").journal.prune(2)
    path = layout.snapshot(slot)
    log.store.delete(path) if damage == "missing" else log.store.replace(path, b"x")
    assert (path, "I15") in {(f.path, f.invariant) for f in check_log(log.store)}


def test_I15_snapshot_that_contradicts_the_entries_is_reported(log: IntactLog) -> None:
    path = log.paths(COORDINATOR.snapshots)[0]
    head, sections = decode_snapshot(log.store.get(path), path)
    text = json.dumps(sections).replace('"src"', '"other"')
    log.store.replace(path, encode_snapshot(head, json.loads(text)))
    assert [(f.path, f.invariant) for f in check_log(log.store)] == [(path, "I15")]


def test_I15_events_of_an_unregistered_producer_are_reported(log: IntactLog) -> None:
    log.edit(COORDINATOR, dropping(ProducerInitialised))
    assert invariants(log) == {"I8", "I15"}


# Records: I2, I7, I8, I9, I15.


@pytest.mark.parametrize(
    ("kind", "shift"),
    [(BatchesAppended, -1), *((k, n) for k in (BatchesAppended, MarkerWritten) for n in (1, 5))],
)
def test_I2_offset_out_of_sequence_is_reported(log: IntactLog, kind: type, shift: int) -> None:
    topic = "b" if kind is BatchesAppended else "a"
    at = 2 if kind is BatchesAppended else 0
    log.edit(log.topic(topic), changing(kind, base_offsets={0: at + shift}))
    assert invariants(log) == {"I2"}


def segment_of(log: IntactLog, topic: str) -> str:
    return log.paths(log.topic(topic).segments)[0]


def test_I15_missing_segment_is_reported(log: IntactLog) -> None:
    path = segment_of(log, "a")
    log.store.delete(path)
    assert [(f.path, f.invariant) for f in check_log(log.store)] == [(path, "I15")]


@pytest.mark.parametrize("position", [0, 8, 300, -40, -1])
def test_I15_flipped_bit_in_a_segment_is_reported(log: IntactLog, position: int) -> None:
    path = segment_of(log, "a")
    data = bytearray(log.store.get(path))
    data[position] ^= 1
    log.store.replace(path, bytes(data))
    assert {(f.path, f.invariant) for f in check_log(log.store)} == {(path, "I15")}


def test_I15_segment_with_other_records_is_reported(log: IntactLog) -> None:
    left, right = log.paths(log.topic("a").segments)[:2]
    log.store.replace(left, log.store.get(right))
    assert {(f.path, f.invariant) for f in check_log(log.store)} == {(left, "I15")}


def test_I15_missing_or_damaged_index_chunk_is_reported(log: IntactLog) -> None:
    for number in range(3, 9):
        log.commit(number, number + 1, "a")
    chunk = log.paths(f"{log.topic('a').root}/chunks/")[0]
    data = log.store.get(chunk)
    log.store.replace(chunk, data[:-1] + b"x")
    assert {(f.path, f.invariant) for f in check_log(log.store)} == {
        (chunk, "I15"),
        (log.topic("a").root, "I2"),
    }
    log.store.delete(chunk)
    assert {(f.path, f.invariant) for f in check_log(log.store)} == {
        (chunk, "I15"),
        (log.topic("a").root, "I2"),
    }
    log.store.replace(chunk, data)
    assert check_log(log.store) == []


@pytest.mark.parametrize("sequence", [0, 2])
def test_I7_sequence_that_repeats_or_skips_is_reported(log: IntactLog, sequence: int) -> None:
    log.edit(log.topic("b"), changing(BatchesAppended, 1, base_sequences={0: sequence}))
    assert invariants(log) == {"I7"}


def test_I7_batch_stored_twice_is_reported(log: IntactLog) -> None:
    def change(events: Events) -> None:
        entry, index = first(events, BatchesAppended, 0)
        other, place = first(events, BatchesAppended, 1)
        other[place] = replace(other[place], segments=entry[index].segments)

    log.edit(log.topic("b"), change)
    assert invariants(log) == {"I2", "I7"}


def test_I8_write_of_a_fenced_epoch_is_reported(log: IntactLog) -> None:
    def change(events: Events) -> None:
        entry, index = first(events, BatchesAppended)
        old = entry[index]
        entry.insert(index, MarkerWritten(TxId(old.pid, 0, 99), Decision.ABORT, -1, 0, 7))

    log.edit(log.topic("b"), change)
    assert invariants(log) == {"I4", "I8"}


def test_I9_transaction_with_both_markers_is_reported(log: IntactLog) -> None:
    def change(events: Events) -> None:
        entry, index = first(events, MarkerWritten, 1)
        events.append([replace(entry[index], decision=Decision.ABORT, segments=())])

    log.edit(log.topic("b"), change)
    assert invariants(log) == {"I9"}


def test_I9_records_after_their_marker_are_reported(log: IntactLog) -> None:
    def change(events: Events) -> None:
        entry, index = first(events, MarkerWritten, 1)
        marker = entry.pop(index)
        appended, place = first(events, BatchesAppended, 1)
        appended.insert(place, marker)

    log.edit(log.topic("b"), change)
    assert invariants(log) == {"I9"}


def test_I9_second_open_transaction_of_a_producer_is_reported(log: IntactLog) -> None:
    log.edit(log.topic("b"), dropping(MarkerWritten, 1))
    assert invariants(log) == {"I5", "I9"}


def test_I9_segment_of_another_topic_is_reported(log: IntactLog) -> None:
    foreign = log.process.stage("src", [1])
    with pytest.raises(CorruptData, match="is not a segment of topic 'a'"):
        log.process.topic("a").execute(AppendBatches((foreign,)))
    log.edit(log.topic("b"), changing(BatchesAppended, segments=(foreign,)))
    assert invariants(log) == {"I9", "I15"}


# Deleted topics: R40, R54.


def test_I5_decision_that_names_a_deleted_topic_is_reported(log: IntactLog) -> None:
    topic_id = log.process.topic("a").topic_id
    log.process.connection.cluster.delete_topics(["a"])
    assert check_log(log.store) == []

    def change(events: Events) -> None:
        entry, index = first(events, TopicDeletionBegun)
        deletion = entry.pop(index)
        prepared, _ = first(events, CommitPrepared)
        prepared.insert(0, deletion)

    log.edit(COORDINATOR, change)
    found = [str(finding) for finding in check_log(log.store)]
    assert any(f"names topic 'a' ({topic_id}), which is deleted (rule R40)" in one for one in found)


def test_I5_topic_that_was_closed_before_a_commits_marker_is_reported(log: IntactLog) -> None:
    layout = log.topic("a")
    log.process.connection.cluster.delete_topics(["a"])
    log.edit(layout, dropping(MarkerWritten, 1))
    found = [str(finding) for finding in check_log(log.store)]
    assert any("is committed, and 'a' was closed before its marker (rule R54)" in f for f in found)


def test_I5_closed_topic_that_a_coordinator_does_not_know_is_reported(log: IntactLog) -> None:
    log.process.topic("a").execute(CloseTopic())
    found = [str(finding) for finding in check_log(log.store)]
    assert len([one for one in found if "'a' is closed, and coordinator" in one]) >= 1
