"""Each anomaly is named by its check, and a sound history shows none."""

from typing import Any

import pytest

from tests.simulation.sample_history import OTHER, TX, SampleHistory
from tests.simulator.checks.history_checks import anomalies, early_reads
from tests.simulator.checks.history_facts import HistoryFacts
from tests.simulator.history import History, read_history


def test_sound_history_has_no_anomalies_and_round_trips() -> None:
    sample = SampleHistory()
    assert sample.found() == set()
    assert read_history(sample.history.lines()).events == sample.history.events


DAMAGES = {
    "failure": lambda s: s.add("failure", text="InternalError"),
    "wrong answer": lambda s: s.change("commit", answer="failed"),
    "duplicate": lambda s: s.change("final", records=[*s.records[::2], ["a", 0, 2, "x1"]]),
    "lost write": lambda s: s.add("written", tx=None, records=[["a", 0, 7, "z"]]),
    "G1a aborted read": lambda s: s.change("outcome", outcome="ABORTED"),
    "made up": lambda s: s.add("poll", isolation="read_committed", records=[["a", 0, 2, "z"]]),
    "G1b torn transaction": lambda s: s.change("committing", values=["x1", "x2", "x3"]),
    "G1b torn cut": lambda s: s.change("cut", records=s.records[:1]),
    "unbalanced cut": lambda s: s.change("cut", records=[["a", 0, 0, "x1:+3"]]),
    "inconsistent offsets": lambda s: s.change("poll", records=[["a", 0, 0, "y1"]]),
    "non-monotonic poll": lambda s: s.change("poll", records=[s.records[2], s.records[0]]),
    "poll skip": lambda s: (
        s.add("poll", isolation="read_committed", records=[["a", 0, 3, "x1"]]),
        s.change("final", 2, records=[["a", 0, n, f"x{n}"] for n in range(4)]),
    ),
    "unseen": lambda s: s.change("poll", records=s.records[:2]),
    "stuck": lambda s: s.change("outcome", outcome="OPEN"),
    "offset gap": lambda s: s.change("final", records=[["a", 0, 0, "x1"], ["a", 0, 2, "y1"]]),
    "G0 write cycle": lambda s: s.change(
        "final",
        2,
        records=[["a", 0, 0, "x1"], ["a", 0, 1, "y1"], ["a", 1, 0, "y2"], ["a", 1, 1, "x2"]],
    ),
}


FURTHER_DAMAGES = {
    "a dead consumer started behind the beginning": (
        "poll skip",
        lambda s: s.add("poll", "died#0", isolation="read_committed", records=s.records[2:]),
    ),
    "an unsent record was read uncommitted": (
        "made up",
        lambda s: s.add("poll", isolation="read_uncommitted", records=[["a", 0, 7, "z"]]),
    ),
    "an unsent record was stored": (
        "made up",
        lambda s: s.change("final", records=[*s.records[::2], ["a", 0, 2, "z"]]),
    ),
    "a partition starts at offset 5": (
        "offset gap",
        lambda s: s.change("final", records=[["a", 0, 5, "x1"], ["a", 0, 6, "y1"]]),
    ),
}


@pytest.mark.parametrize("name", FURTHER_DAMAGES)
def test_further_forms_of_an_anomaly_are_found(name: str) -> None:
    kind, spoil = FURTHER_DAMAGES[name]
    sample = SampleHistory()
    spoil(sample)
    assert kind in sample.found()


EventFields = tuple[str, dict[str, Any]]

ASKED: EventFields = ("committing", {"tx": TX, "values": ["x1", "x2"]})
SEEN: EventFields = ("poll", {"isolation": "read_committed", "records": [["a", 0, 0, "x1"]]})
SEEN_EARLY: EventFields = (
    "poll",
    {"isolation": "read_uncommitted", "records": [["a", 0, 0, "x1"]]},
)
IN_A_CUT: EventFields = ("cut", {"topics": ["a"], "records": [["a", 0, 0, "x1"]]})


@pytest.mark.parametrize(
    ("told", "is_staged", "is_found"),
    [
        ([SEEN], True, True),
        ([SEEN], False, True),
        ([IN_A_CUT], True, True),
        ([SEEN_EARLY], True, True),
        ([SEEN_EARLY], False, False),
        ([ASKED, SEEN, SEEN_EARLY, IN_A_CUT], True, False),
    ],
)
def test_G1a_read_of_a_record_before_its_commit_request_is_found(
    told: list[EventFields], is_staged: bool, is_found: bool
) -> None:
    """A later commit does not count; a record in the log may be read before."""
    sample = SampleHistory()
    if not is_staged:
        kept = [event for event in sample.history.events if event["what"] != "staged"]
        sample.history.events = kept
    for what, facts in told:
        sample.add(what, "other", **facts)
    added, events = sample.history.events[-len(told) :], sample.history.events[: -len(told)]
    sent = next(n for n, event in enumerate(events) if event["what"] == "committing")
    sample.history.events = [*events[:sent], *added, *events[sent:]]
    assert ("G1a aborted read" in sample.found()) == is_found


@pytest.mark.parametrize(
    ("answers", "is_found"),
    [
        ([], True),
        (["ROLLBACK_MESSAGE"], True),
        (["UNKNOW", "COMMIT_MESSAGE"], False),
    ],
)
def test_G1a_half_message_read_before_a_commit_answer_is_found(
    answers: list[str], is_found: bool
) -> None:
    """The values are recorded when the half message is sent; the producer that answers the
    check-back commits it."""
    history = History()
    half: dict[str, Any] = {"who": "sender#0", "tx": "half/1"}
    history.note(0, 0.0, what="send", topic="a", values=["m"], **half)
    history.note(0, 0.0, what="committing", values=["m"], **half)
    for answer in answers:
        history.note(0, 0.0, what="answered", answer=answer, **half)
    history.note(1, 0.0, "reader#0", "poll", isolation="read_committed", records=[["a", 0, 0, "m"]])
    assert bool(list(early_reads(HistoryFacts(history)))) == is_found


@pytest.mark.parametrize("is_staged", [True, False])
def test_G1a_staged_record_of_an_aborted_transaction_in_a_topic_is_found(is_staged: bool) -> None:
    """Aborted records stay in the log."""
    sample = SampleHistory()
    sample.add("send", tx="3-0-0", topic="a", values=["z"])
    if is_staged:
        sample.add("staged", tx="3-0-0")
    sample.change("final", 0, records=[*sample.records[::2], ["a", 0, 2, "z"]])
    finals = [event for event in sample.history.events if event["what"] == "final"]
    sample.history.events = [e for e in sample.history.events if e not in finals] + finals
    sample.add("outcome", tx="3-0-0", outcome="ABORTED")
    assert sample.found() == ({"G1a aborted read"} if is_staged else set())


def test_consumer_with_a_group_may_start_at_the_group_position() -> None:
    sample = SampleHistory()
    sample.add("poll", isolation="read_committed", records=sample.records[2:], reader="copier.1")
    assert sample.found() == set()


def test_a_finding_names_the_step_at_which_its_record_was_stored() -> None:
    sample = SampleHistory().change(
        "final", records=[*SampleHistory().records[::2], ["a", 0, 2, "x1"]]
    )
    sample.add("placed", steps={"x1": 17})
    assert [found.at for found in anomalies(sample.history) if found.kind == "duplicate"] == [17]


@pytest.mark.parametrize(
    ("told", "is_found"),
    [
        (["a", 0, 0], False),
        (["a", 0, -1], False),
        (["a", 0, 7], True),
        (["a", 3, 0], True),
        (["a", 3, -1], True),
        (["b", 0, -1], True),
    ],
)
def test_I2_wrong_position_reported_to_a_producer_is_found(told: list[Any], is_found: bool) -> None:
    """The offset of a repeated append may be unknown: -1."""
    sample = SampleHistory().change("written", records=[[*told, "x1"], ["b", 0, 0, "x2"]])
    assert sample.found() == ({"inconsistent offsets"} if is_found else set())


def test_I2_wrong_position_reported_to_a_reader_is_found() -> None:
    sample = SampleHistory()
    sample.add("poll", isolation="read_uncommitted", records=[["a", 0, 7, "y1"]], reader="other")
    assert sample.found() == {"inconsistent offsets"}


@pytest.mark.parametrize("kind", DAMAGES)
def test_each_kind_of_anomaly_is_found(kind: str) -> None:
    sample = SampleHistory()
    DAMAGES[kind](sample)
    assert kind in sample.found()


def consumed(sample: SampleHistory, tx: str, start: int, end: int, *reads: str) -> None:
    """A transaction that moves a group."""
    sample.add("consumed", tx=tx, group="g", ranges=[["a", 0, start, end]], reads=list(reads))


@pytest.mark.parametrize(
    ("ranges", "stands", "kind"),
    [
        ([(0, 1), (1, 2)], 2, None),
        ([(0, 1), (0, 2)], 2, "offset overlap"),
        ([(0, 1), (2, 3)], 3, "offset range gap"),
        ([(0, 1), (1, 2)], 3, "offset range gap"),
    ],
)
def test_I6_overlap_or_gap_between_ranges_of_a_group_is_found(
    ranges: list[tuple[int, int]], stands: int, kind: str | None
) -> None:
    sample = SampleHistory()
    for tx, (start, end) in zip((TX, OTHER), ranges, strict=True):
        consumed(sample, tx, start, end)
    sample.add("position", group="g", topic="a", topic_id="1", partition=0, offset=stands)
    assert sample.found() == ({kind} if kind else set())


@pytest.mark.parametrize(
    ("unknown", "kind"),
    [
        ([(1, 2), (2, 3)], None),
        ([(1, 2), (1, 9), (2, 4), (2, 3)], None),
        ([(1, 2)], "offset range gap"),
        ([(1, 9)], "offset range gap"),
        ([], "offset range gap"),
    ],
)
def test_I6_transactions_without_records_may_fill_the_gap_between_two_ranges(
    unknown: list[tuple[int, int]], kind: str | None
) -> None:
    """Any of several attempts may have committed."""
    sample = SampleHistory()
    consumed(sample, TX, 0, 1)
    consumed(sample, OTHER, 3, 4)
    for number, (start, end) in enumerate(unknown):
        tx = f"empty {number}"
        sample.add("consumed", tx=tx, group="g", ranges=[["a", 0, start, end]], reads=[])
        sample.add("outcome", tx=tx, outcome="UNKNOWN")
    sample.add("position", group="g", topic="a", topic_id="1", partition=0, offset=4)
    assert sample.found() == ({kind} if kind else set())


@pytest.mark.parametrize(
    ("copies", "kind"),
    [
        (["c1<x1"], None),
        ([], "lost update"),
        (["c1<x1", "c2<x1"], "duplicate copy"),
        (["c1<x1", "c2<y1"], "duplicate copy"),
    ],
)
def test_I10_record_below_the_position_not_copied_exactly_once_is_found(
    copies: list[str], kind: str | None
) -> None:
    sample = SampleHistory()
    sample.add("copies", group="g", sources=["a"], sinks=["c"])
    sample.add("position", group="g", topic="a", topic_id="1", partition=0, offset=1)
    sample.add("send", tx=None, topic="c", values=copies)
    records = [["c", 0, number, value] for number, value in enumerate(copies)]
    for isolation in ("read_uncommitted", "read_committed"):
        sample.add("final", topic="c", isolation=isolation, records=records)
    assert sample.found() == ({kind} if kind else set())


def test_G1c_mutual_reads_of_two_transactions_are_found() -> None:
    sample = SampleHistory()
    consumed(sample, TX, 0, 1, "y1")
    consumed(sample, OTHER, 1, 2, "x1")
    sample.add("position", group="g", topic="a", topic_id="1", partition=0, offset=2)
    assert sample.found() == {"G1c circular information flow"}
