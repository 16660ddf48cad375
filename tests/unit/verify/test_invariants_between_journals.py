"""`check_log` compares journals with each other: with several coordinators, forgotten transactions,
deleted topics and topics of another log."""

from dataclasses import replace

import pytest

from tests.logs.memory_log import MemoryLog
from tests.protocol.steps import (
    GROUP,
    NAME,
    TIMEOUT_MS,
    coordinator,
    participant,
    pend,
    prepare,
    tx_of,
)
from tests.unit.verify.intact_log import COORDINATOR, Events, IntactLog, adding, changing, first
from txlog.coordinator.events import ProducerInitialised
from txlog.groups.state import PendingApplied
from txlog.model import Decision, TopicPartition, TxId
from txlog.settings import LogSettings
from txlog.topic.events import CloseTopic, MarkerWritten, ProducersRetired
from txlog.verify.facts import coordinator_facts
from txlog.verify.invariants import _check_producer_ids, check_log, log_facts

UNKNOWN = TxId(500, 0, 0)


@pytest.fixture
def log() -> IntactLog:
    return IntactLog()


def said(log: IntactLog) -> list[tuple[str, str, str]]:
    """Invariant, object and message of each finding."""
    return [(one.invariant, one.path, one.message) for one in check_log(log.store)]


# Which coordinator is asked.


@pytest.fixture
def of_two() -> MemoryLog:
    """A log with two coordinators: each has a transaction with offsets of a group that the other
    one keeps."""
    log = MemoryLog(LogSettings(transaction_state_log_num_partitions=2))
    log.admin.create_topic("t", 1)
    log.producer().send("t", b"0").get()
    names = {log.connection.coordinator_of(name).number: name for name in "abcdefgh"}
    for number, name in names.items():
        producer = log.producer(name)
        with producer.transaction():
            producer.send("t", b"1")
            group = names[1 - number]
            producer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, group)
    assert sorted(names) == [0, 1]
    return log


def test_transaction_is_asked_of_its_own_coordinator(of_two: MemoryLog) -> None:
    facts = log_facts(of_two.connection)
    assert facts.all_findings() == []
    assert [one.number for one in facts.asked(-1)] == [0, 1]
    for number in (0, 1):
        (own,) = facts.asked(number)
        assert own.number == number
        (tx_id,) = own.transactions
        for asked, is_known in ((number, True), (1 - number, False), (-1, True), (2, False)):
            assert (facts.transaction(tx_id, asked) is not None) is is_known
        assert facts.transaction(tx_id) is own.transactions[tx_id]
    assert facts.transaction(UNKNOWN) is None


def test_offsets_of_a_pruned_journal_are_not_missed(of_two: MemoryLog) -> None:
    for number in (0, 1):
        of_two.connection.coordinator(number).journal.prune(0)
        assert check_log(of_two.connection) == []


def test_only_the_pruned_coordinator_may_have_forgotten(
    of_two: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_facts, "OUTCOME_GENERATIONS_MAX", 0)
    assert not log_facts(of_two.connection).may_be_forgotten()
    of_two.connection.coordinator(1).journal.prune(0)
    facts = log_facts(of_two.connection)
    assert facts.may_be_forgotten()
    assert [facts.may_be_forgotten(number) for number in (0, 1)] == [False, True]


# What a coordinator may have forgotten.


def apply_unknown(log: IntactLog) -> None:
    pend(log.process, UNKNOWN, 3, 4)
    log.process.connection.offsets.apply_pending(GROUP, UNKNOWN)


def test_I5_offsets_of_an_unknown_transaction_are_reported_unless_it_may_be_forgotten(
    log: IntactLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator(log.process).journal.prune(0)
    apply_unknown(log)
    last = log.paths(COORDINATOR.entries)[-1]
    assert said(log) == [
        ("I5", COORDINATOR.root, f"LAST-COMMIT of {GROUP!r} is {UNKNOWN}, not committed"),
        ("I5", last, f"offsets of {UNKNOWN} are applied, and no coordinator knows it"),
    ]
    monkeypatch.setattr(coordinator_facts, "OUTCOME_GENERATIONS_MAX", 0)
    assert check_log(log.store) == []


def test_I5_last_commit_of_an_aborted_transaction_is_reported_though_others_may_be_forgotten(
    log: IntactLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    aborted = tx_of(log.producer, 1)
    pend(log.process, aborted, 3, 4, name="p")
    log.process.connection.offsets.apply_pending(GROUP, aborted)
    coordinator(log.process).journal.prune(0)
    monkeypatch.setattr(coordinator_facts, "OUTCOME_GENERATIONS_MAX", 0)
    text = f"LAST-COMMIT of {GROUP!r} is {aborted}, not committed"
    assert said(log) == [("I5", COORDINATOR.root, text)]


def test_I5_applied_offsets_of_an_aborted_transaction_are_reported(log: IntactLog) -> None:
    aborted = tx_of(log.producer, 1)
    pend(log.process, aborted, 3, 4, name="p")
    log.process.connection.offsets.apply_pending(GROUP, aborted)
    path = log.paths(COORDINATOR.entries)[-1]
    assert said(log) == [
        ("I5", COORDINATOR.root, f"LAST-COMMIT of {GROUP!r} is {aborted}, not committed"),
        ("I5", path, f"offsets of {aborted} are applied: it is {Decision.ABORT}"),
    ]


# Groups.


def test_offsets_of_a_deleted_group_are_not_missed(log: IntactLog) -> None:
    log.process.connection.offsets.delete(GROUP)
    assert check_log(log.store) == []


def test_I5_offsets_that_a_committed_transaction_never_pended_are_reported(
    log: IntactLog,
) -> None:
    tx = tx_of(log.query, 3)
    prepare(log.process, tx, groups=("other",))
    text = f"{tx} is committed, and its offsets of group 'other' are not"
    assert said(log) == [("I5", COORDINATOR.root, text)]


def test_I5_offsets_that_are_pending_after_completion_are_reported(log: IntactLog) -> None:
    tx = tx_of(log.query, 2)
    log.edit(COORDINATOR, lambda events: dropped(events, PendingApplied, 1))
    assert said(log) == [
        ("I5", COORDINATOR.root, f"{tx} is committed and complete, and still pending"),
        ("I5", COORDINATOR.root, f"{tx} is committed, and its offsets of group {GROUP!r} are not"),
    ]


def dropped(events: Events, kind: type, nth: int = 0) -> None:
    entry, index = first(events, kind, nth)
    del entry[index]


def test_offsets_of_an_undecided_or_aborted_transaction_may_be_pending(log: IntactLog) -> None:
    tx = tx_of(log.query, 3)
    pend(log.process, tx, 3, 4)
    assert check_log(log.store) == []
    coordinator(log.process).begin(NAME, tx, TIMEOUT_MS)
    assert check_log(log.store) == []
    coordinator(log.process).abort(NAME, tx)
    assert check_log(log.store) == []


# Topics.


def test_I9_marker_of_another_topics_transaction_is_reported_with_the_topic(
    log: IntactLog,
) -> None:
    tx = tx_of(log.producer, 0)
    log.edit(log.topic("src"), adding(MarkerWritten(tx, Decision.COMMIT, 0, 0)))
    text = f"{tx} ends here, but this topic is no part of it"
    assert said(log) == [("I9", log.topic("src").root, text)]


def test_I4_marker_that_names_a_coordinator_that_the_log_does_not_have_is_reported(
    log: IntactLog,
) -> None:
    log.edit(log.topic("b"), changing(MarkerWritten, 2, coordinator=1))
    tx = tx_of(log.producer, 1)
    text = f"{Decision.ABORT} of {tx}, which no coordinator knows"
    assert said(log) == [("I4", log.topic("b").root, text)]


@pytest.mark.parametrize("count", [0, 2])
def test_I3_commit_marker_with_other_staged_records_is_reported(log: IntactLog, count: int) -> None:
    """None of them, or more than were decided."""
    others = tuple(log.process.stage("a", [n]) for n in range(count - 1))

    def change(events: Events) -> None:
        entry, index = first(events, MarkerWritten)
        marker = entry[index]
        segments = (*marker.segments, *others) if count else ()
        offsets = marker.base_offsets if count else {}
        entry[index] = replace(marker, segments=segments, base_offsets=offsets)

    log.edit(log.topic("a"), change)
    text = f"{tx_of(log.query, 0)} was decided with other staged records"
    assert ("I3", log.topic("a").root, text) in said(log)


def test_staged_records_of_an_aborted_transaction_are_not_in_its_marker(log: IntactLog) -> None:
    tx, staged = tx_of(log.producer, 2), participant(log.process, "b", 1)
    coordinator(log.process).begin("p", tx, TIMEOUT_MS, (staged,))
    coordinator(log.process).abort("p", tx)
    assert check_log(log.store) == []


def test_I5_closed_topic_that_a_coordinator_does_not_know_is_reported_once_each(
    log: IntactLog,
) -> None:
    log.process.topic("a").execute(CloseTopic())
    text = "topic 'a' is closed, and coordinator 0 does not know it (rule R54)"
    assert said(log) == [("I5", log.topic("a").root, text)]


def test_I5_topic_closed_before_the_marker_of_a_commit_is_reported(log: IntactLog) -> None:
    layout, tx = log.topic("a"), tx_of(log.query, 2)
    log.process.connection.cluster.delete_topics(["a"])
    log.edit(layout, lambda events: dropped(events, MarkerWritten, 1))
    text = f"{tx} is committed, and 'a' was closed before its marker (rule R54)"
    assert said(log) == [("I5", layout.root, text)]


def test_aborted_transaction_needs_no_marker_in_a_closed_topic(log: IntactLog) -> None:
    tx = tx_of(log.producer, 2)
    declared = participant(log.process, "b", logged=True)
    coordinator(log.process).begin("p", tx, TIMEOUT_MS, (declared,))
    coordinator(log.process).abort("p", tx)
    layout = log.topic("b")
    log.process.connection.cluster.delete_topics(["b"])
    log.edit(layout, lambda events: dropped(events, MarkerWritten, 3))
    assert check_log(log.store) == []


def test_topic_whose_entries_are_all_gone_is_still_checked(log: IntactLog) -> None:
    """Only the boundary of a deleted topic, and its snapshot, stay (R14)."""
    topic = log.process.topic("a")
    log.process.connection.cluster.delete_topics(["a"])
    topic.journal.close()
    facts = log_facts(log.store)
    assert facts.topics[topic.topic_id].is_closed
    assert facts.all_findings() == []
    assert log.paths(log.process.topic("b").layout.entries)
    path = topic.layout.boundary(0)
    log.store.replace(path, b"{}")
    assert ("I15", path) in {(one.invariant, one.path) for one in check_log(log.store)}


def test_retired_producer_needs_no_marker(log: IntactLog) -> None:
    """A topic forgets a producer only once its transactions are complete."""
    log.edit(log.topic("a"), lambda events: dropped(events, MarkerWritten, 1))
    tx = tx_of(log.query, 2)
    assert [(invariant, text) for invariant, _, text in said(log)] == [
        ("I5", f"{tx} is complete, and topic 'a' has no marker"),
        ("I5", f"offsets of {tx} are applied before its records in 'a' (R8)"),
    ]
    log.edit(log.topic("a"), adding(ProducersRetired((log.query.pid,))))
    assert check_log(log.store) == []


# Another log in the same place.


def test_topics_of_another_log_are_left_out(log: IntactLog) -> None:
    other = MemoryLog()
    other.admin.create_topic("theirs", 1)
    other.producer().send("theirs", b"0").get()
    for path, data in other.objects().items():
        if path.startswith("topics/"):
            log.store.put_new(path, data)
    assert check_log(log.store) == []
    assert {topic.name for topic in log_facts(log.store).topics.values()} == {"src", "a", "b"}


def test_topic_with_segments_only_is_left_out(log: IntactLog) -> None:
    (path, *_) = log.paths(log.topic("a").segments)
    elsewhere = f"topics/left/{'1' * 16}/segments/{path.rsplit('/', 1)[1]}"
    log.store.put_new(elsewhere, log.store.get(path))
    assert check_log(log.store) == []


def test_I15_topic_whose_first_entry_cannot_be_read_is_named(log: IntactLog) -> None:
    path = f"topics/odd/{'1' * 16}/entries/{0:020}.json"
    log.store.put_new(path, b"{}")
    found = check_log(log.store)
    assert ("I15", path) in {(one.invariant, one.path) for one in found}


# Producer ids.


def test_I8_producer_id_that_two_ids_have_is_reported_with_both(of_two: MemoryLog) -> None:
    """In journals of different coordinators; each is sound by itself."""
    facts = log_facts(of_two.connection)
    (first_name,), (second_name,) = (one.holders for one in facts.coordinators)
    taken = facts.coordinators[0].holders[first_name].pid
    facts.coordinators[1].holders[second_name].pid = taken
    _check_producer_ids(facts)
    root = facts.coordinators[1].walk.layout.root
    text = f"{second_name!r} and {first_name!r} have producer id {taken}"
    assert [(one.invariant, one.path, one.message) for one in facts.findings] == [
        ("I8", root, text)
    ]


def test_I8_producer_id_that_was_not_given_out_is_reported(log: IntactLog) -> None:
    next_pid = log_facts(log.store).cluster.state.next_pid
    for pid in (next_pid, next_pid + 1):
        event = ProducerInitialised(f"id {pid}", pid, 0, "i", 1, 0)
        log.edit(COORDINATOR, adding(event))
        text = f"producer id {pid} of 'id {pid}' was never given out"
        assert ("I8", COORDINATOR.root, text) in said(log)
    assert len(said(log)) == 2
