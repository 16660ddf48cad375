"""With deleted records and topics: the records that may be missing, and those that may not."""

from typing import Any

import pytest

from tests.simulation.sample_history import HistoryOfATombstone, HistoryOfDeletion
from tests.simulator.checks.history_checks import lost_updates
from tests.simulator.checks.history_facts import HistoryFacts


def test_I12_permitted_deletions_are_no_anomaly() -> None:
    assert HistoryOfDeletion().found() == set()


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"log_starts": {}}, "wrong deletion"),
        ({"log_starts": {"0": 4}}, "wrong deletion"),
        ({"violations": [[7, "below an open transaction"]]}, "wrong deletion"),
        ({"records": []}, "lost write"),
    ],
)
def test_I12_forbidden_deletions_are_found(changes: dict[str, Any], kind: str) -> None:
    assert kind in HistoryOfDeletion().change("stored", 2, **changes).found()


def test_I12_deletion_of_the_newest_record_of_a_key_is_found() -> None:
    sample = HistoryOfDeletion()
    for nth in (4, 5):
        sample.change("final", nth, records=sample.ever[2:3])
    assert "wrong deletion" in sample.found()


@pytest.mark.parametrize(
    ("age_ms", "faults", "asked", "kind"),
    [
        (99, [], 0, "wrong deletion"),
        (99, ["pause"], 1, "wrong deletion"),
        (99, [], 2, None),
        (100, [], 0, None),
        (99, ["clock_jump"], 0, None),
    ],
)
def test_I12_deletion_before_the_retention_time_is_found_unless_requested(
    age_ms: int, faults: list[str], asked: int, kind: str | None
) -> None:
    sample = HistoryOfDeletion().change("stored", 2, deletions=[[8, age_ms, {"0": 2}]])
    sample.add("conditions", faults=faults)
    sample.add("deleting", topic="c", partition=0, offset=asked)
    assert sample.found() == ({kind} if kind else set())


@pytest.mark.parametrize(
    ("gone_ms", "kept", "kind"),
    [
        (5_000, [], None),
        (5_000, [3], "wrong deletion"),
        (2_000, [], "wrong deletion"),
    ],
)
def test_I12_tombstone_removed_early_or_key_that_reappears_is_found(
    gone_ms: int, kept: list[int], kind: str | None
) -> None:
    assert HistoryOfATombstone(gone_ms, kept).found() == ({kind} if kind else set())


@pytest.mark.parametrize(("hidden_at", "is_found"), [(9, False), (10, True)])
def test_I12_tombstone_removed_before_the_record_it_hides_is_found(
    hidden_at: int, is_found: bool
) -> None:
    """The key had a record for a while, although none is left at the end."""
    found = HistoryOfATombstone(5_000, [], hidden_at).found()
    assert found == ({"wrong deletion"} if is_found else set())


@pytest.mark.parametrize(
    ("deleted_at", "log_start", "is_found"),
    [
        (9, 4, False),
        (9, 3, True),
        (10, 4, True),
    ],
)
def test_I12_tombstone_removed_before_log_start_passes_the_hidden_record_is_found(
    deleted_at: int, log_start: int, is_found: bool
) -> None:
    sample = HistoryOfATombstone(5_000, [], hidden_at=20)
    deletions = [[2, 1_000, {"0": 2}], [deleted_at, 1_000, {"0": log_start}]]
    sample.change("stored", 2, log_starts={"0": log_start}, deletions=deletions)
    assert sample.found() == ({"wrong deletion"} if is_found else set())


def test_R11_topics_of_one_name_are_distinguished() -> None:
    sample = HistoryOfDeletion()
    sample.recreated("x1", 0, 1)
    assert sample.found() == set()


def test_R11_position_carried_over_to_a_recreated_topic_is_found() -> None:
    sample = HistoryOfDeletion()
    sample.recreated("old", 0, 1)
    assert "offset overlap" not in sample.found()
    sample.add("copies", group="g", sources=["a"], sinks=["b"])
    assert "lost update" in sample.found()


@pytest.mark.parametrize(
    ("offset", "is_deleted_since", "is_lost"),
    [(-1, True, False), (0, True, True), (-1, False, True)],
)
def test_I3_record_deleted_with_its_topic_before_its_offset_was_known_is_not_lost(
    offset: int, is_deleted_since: bool, is_lost: bool
) -> None:
    sample = HistoryOfDeletion()
    sample.add("send", tx=None, topic="d", values=["gone"])
    sent_at = sample.history.events[-1]["at"]
    sample.add("written", tx=None, records=[["d", 0, offset, "gone"]])
    sample.stored("d", [], is_closed=True, closed_at=sent_at + (1 if is_deleted_since else -1))
    assert ("lost write" in sample.found()) == is_lost


@pytest.mark.parametrize(
    ("copies", "kinds"),
    [
        ({"d": ["d1<old"], "e": ["e1<old"]}, set()),
        ({"d": [], "e": ["e1<old"]}, set()),
        ({"d": ["d1<old", "d2<old"], "e": ["e1<old"]}, {"duplicate copy"}),
        ({"d": ["d1<old"], "e": ["e1<old", "e2<old"]}, {"duplicate copy"}),
    ],
)
def test_I10_records_deleted_with_their_topic_may_be_copied_once_into_each_sink(
    copies: dict[str, list[str]], kinds: set[str]
) -> None:
    sample = HistoryOfDeletion()
    sample.recreated("x1", 0, 0)
    sample.add("copies", group="g", sources=["a"], sinks=["d", "e"])
    for sink, values in copies.items():
        sample.add("send", tx=None, topic=sink, values=values)
        sample.stored(sink, [[sink, 0, number, value] for number, value in enumerate(values)])
    found = {anomaly.kind for anomaly in lost_updates(HistoryFacts(sample.history))}
    assert found == kinds


def test_I10_second_copy_of_a_record_deleted_with_its_topic_is_found() -> None:
    """The topic was not created again, so the group's position refers to the deleted topic."""
    sample = HistoryOfDeletion().change("stored", 0, is_closed=True)
    sample.add("copies", group="g", sources=["a"], sinks=["d"])
    sample.add("position", group="g", topic="a", topic_id="a", partition=0, offset=1)
    sample.add("send", tx=None, topic="d", values=["d1<x1", "d2<x1"])
    sample.stored("d", [["d", 0, 0, "d1<x1"], ["d", 0, 1, "d2<x1"]])
    found = {anomaly.kind for anomaly in lost_updates(HistoryFacts(sample.history))}
    assert found == {"duplicate copy"}


@pytest.mark.parametrize(
    ("sent_later", "is_found"),
    [
        (-1, False),
        (0, False),
        (1, True),
    ],
)
def test_R11_missing_record_is_excused_only_if_sent_before_its_topic_was_deleted(
    sent_later: int, is_found: bool
) -> None:
    """Half of the later records are missing, and the topic of that name exists."""
    sample = HistoryOfDeletion()
    sample.recreated("x1", 0, 1)
    for topic, value in (("a", "w1"), ("b", "w2")):
        sample.add("send", tx="9-0-0", topic=topic, values=[value])
    sent = next(e for e in sample.history.of("send") if e["values"] == ["w1"])
    sample.add("committing", tx="9-0-0", values=["w1", "w2"])
    sample.add("commit", tx="9-0-0", answer="ok")
    sample.add("outcome", tx="9-0-0", outcome="COMMITTED")
    sample.change("stored", 0, closed_at=sent["at"] - sent_later)
    sample.change("stored", 2, records=[*sample.records[1::2], ["b", 0, 2, "w2"]])
    assert ("G1b torn transaction" in sample.found()) == is_found
