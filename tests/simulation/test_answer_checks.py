"""The checks find wrong answers, and refusals without a fault."""

from typing import Any

import pytest

from tests.simulator.checks.anomaly import Check
from tests.simulator.checks.answer_checks import (
    local_decisions,
    lost_batches,
    refusals,
    wrong_letters,
)
from tests.simulator.checks.history_facts import HistoryFacts
from tests.simulator.history import History

HALF, TX, BATCH = "g/h", "1-0-0", "batch d/1"
ENDED = ("local", {"tx": HALF, "decision": "COMMIT_MESSAGE"})
ANSWERED = ("answered", {"tx": HALF, "answer": "COMMIT_MESSAGE"})
GIVEN_UP = ("outcome", {"tx": HALF, "outcome": "DEAD_LETTERED"})

EventFields = tuple[str, dict[str, Any]]


def kinds(check: Check, *events: EventFields) -> list[str]:
    """The findings of one check in these events, all of one process."""
    history = History()
    for at, (what, facts) in enumerate(events):
        history.note(at, 0.0, facts.pop("who", "p#0"), what, **facts)
    return [found.kind for found in check(HistoryFacts(history))]


def copied(events: tuple[EventFields, ...]) -> tuple[EventFields, ...]:
    """Copied records are used once."""
    return tuple((what, dict(facts)) for what, facts in events)


def attempt(tx: str, reads: list[str], outcome: str, number: int = 3) -> list[EventFields]:
    """An attempt to commit a batch of a query."""
    batch = {"query": "q", "batch": number, "label": "", "reads": reads}
    return [
        ("committing", {"tx": tx, "values": [f"{tx}<{text}" for text in reads], **batch}),
        ("outcome", {"tx": tx, "outcome": outcome}),
    ]


@pytest.mark.parametrize(
    ("attempts", "found"),
    [
        ([*attempt(BATCH, ["1", "2"], "COMMITTED")], []),
        ([*attempt(BATCH, ["2", "1"], "COMMITTED"), *attempt("batch d/2", ["1"], "ABORTED")], []),
        ([*attempt("b/1", ["1"], "COMMITTED", 2), *attempt(BATCH, ["2"], "COMMITTED")], []),
        ([*attempt("b/1", ["1", "2"], "COMMITTED", 2)], ["lost write"]),
        ([*attempt(BATCH, ["1", "2"], "ABORTED")], ["lost write"]),
        ([*attempt(BATCH, ["1"], "COMMITTED")], ["lost write"]),
        (
            [
                *attempt(BATCH, ["1", "2"], "COMMITTED"),
                *attempt("batch d/2", ["1", "2"], "COMMITTED"),
            ],
            ["lost write"],
        ),
    ],
)
def test_I10_batch_reported_done_but_not_committed_exactly_once_is_found(
    attempts: list[EventFields], found: list[str]
) -> None:
    batch = {"query": "q", "batch": 3, "label": "", "reads": ["1", "2"], "wrote": True}
    assert kinds(lost_batches, *copied((*attempts, ("batch_done", batch)))) == found


DIED: EventFields = ("died", {})
REPORTED: EventFields = (
    "lived_with",
    {"who": "p", "text": "half transaction h: the store is away"},
)
OF_ANOTHER: EventFields = (
    "lived_with",
    {"who": "q", "text": "half transaction h: the store is away"},
)


@pytest.mark.parametrize(
    ("events", "found"),
    [
        ([ENDED, GIVEN_UP], []),
        ([ENDED, ANSWERED, GIVEN_UP], ["wrong answer"]),
        ([ENDED, ANSWERED, OF_ANOTHER, GIVEN_UP], ["wrong answer"]),
        ([ENDED, ANSWERED, DIED, GIVEN_UP], []),
        ([ENDED, ANSWERED, REPORTED, GIVEN_UP], []),
        ([ENDED, ANSWERED, REPORTED, ANSWERED, GIVEN_UP], ["wrong answer"]),
    ],
)
def test_I10_dead_letter_after_an_answered_check_is_found(
    events: list[EventFields], found: list[str]
) -> None:
    assert kinds(local_decisions, *copied(tuple(events))) == found


@pytest.mark.parametrize(
    ("letters", "found"),
    [
        (["m", "n"], []),
        (["m"], ["wrong letter"]),
        (["m", "n", "n"], ["wrong letter"]),
        (["m", "n", "o"], ["wrong letter"]),
    ],
)
def test_I4_message_given_up_without_exactly_one_dead_letter_is_found(
    letters: list[str], found: list[str]
) -> None:
    told = ("letters", {"letters": [[HALF, "a", text] for text in letters]})
    asked = ("committing", {"tx": HALF, "values": ["m", "n"]})
    assert kinds(wrong_letters, *copied((asked, GIVEN_UP, told))) == found


def test_I4_dead_letter_of_an_unknown_transaction_is_found() -> None:
    told = ("letters", {"letters": [["g/ghost", "a", "boo"]]})
    assert kinds(wrong_letters, told) == ["wrong letter"]


REFUSED: EventFields = ("commit", {"tx": TX, "answer": "failed"})
HOLDS: EventFields = ("holds", {"transactional_id": "one"})
SENT: EventFields = ("send", {"tx": TX, "topic": "a", "values": ["m"]})
THRICE: list[EventFields] = [
    ("send", {"tx": f"batch d/{number}", "topic": "a", "values": ["m"]}) for number in (1, 2, 3)
]
MISTAKEN: EventFields = ("mistaken", {"tx": "batch d/2"})
CONSUMED: EventFields = ("consumed", {"tx": TX, "group": "g", "ranges": [["b", 0, 0, 1]]})
COPIES: EventFields = ("copies", {"group": "g", "sources": ["a"], "sinks": ["b"]})
CLOSED: EventFields = (
    "stored",
    {"topic": "b", "topic_id": "1", "is_closed": True, "records": [], "deletions": [], "gone": {}},
)
RIVAL: EventFields = ("holds", {"who": "other#0", "transactional_id": "one"})


@pytest.mark.parametrize(
    ("events", "faults", "found"),
    [
        ([HOLDS], [], ["refused"]),
        ([HOLDS, ("ended", {"text": "there is no topic 'a'"})], [], []),
        ([HOLDS, COPIES], [], []),
        ([HOLDS, COPIES, ("written", {"tx": None, "records": []})], [], ["refused"]),
        ([HOLDS, SENT, REFUSED], [], ["refused"]),
        ([HOLDS, SENT, REFUSED], ["slow"], []),
        ([HOLDS, RIVAL, SENT, REFUSED], [], []),
        ([HOLDS, SENT, ("ending", {"tx": TX}), REFUSED], [], []),
        ([HOLDS, CONSUMED, SENT, REFUSED], [], ["refused"]),
        ([HOLDS, SENT, REFUSED, CLOSED], [], ["refused"]),
        ([HOLDS, CONSUMED, SENT, REFUSED, CLOSED], [], []),
        ([HOLDS, *[SENT] * 3], [], []),
        ([("send", {"tx": None, "topic": "a", "values": ["m"]})] * 3, [], ["refused"]),
        ([("send", {"tx": None, "topic": "a", "values": ["m"]})] * 3, ["slow"], []),
        ([("send", {"tx": None, "topic": "a", "values": ["m"]})] * 2, [], []),
        (THRICE, [], ["refused"]),
        ([*THRICE, MISTAKEN], [], []),
    ],
)
def test_refusal_without_a_fault_or_a_rival_is_found(
    events: list[EventFields], faults: list[str], found: list[str]
) -> None:
    conditions = ("conditions", {"faults": faults})
    assert kinds(refusals, *copied((*events, conditions))) == found
