"""The checks of groups that commit outside of transactions find anomalies."""

from collections.abc import Iterable

import pytest

from tests.simulator.checks.group_checks import group_anomalies
from tests.simulator.history import Event, History

SENT: Event = {"what": "send", "tx": None, "topic": "ta", "values": ["a", "b", "c"]}
RECORDS = [["ta", 0, n, value] for n, value in enumerate("abc")]
FINAL: Event = {
    "what": "final",
    "topic": "ta",
    "isolation": "read_committed",
    "records": RECORDS,
}


def joined(reader: str, offset: int) -> list[Event]:
    """A consumer of the group starts at this position."""
    positions = [["ta", 0, offset]]
    return [
        {"what": "joining", "group": "g", "reader": reader},
        {"what": "joined", "group": "g", "reader": reader, "positions": positions},
    ]


def polled(reader: str, first: int, end: int) -> list[Event]:
    """A consumer received these records."""
    records = RECORDS[first:end]
    poll = {"what": "poll", "isolation": "read_committed", "records": records}
    return [{**poll, "reader": reader, "group": "g"}]


def moved(reader: str, move: str, offset: int, answer: str = "ok") -> list[Event]:
    """A consumer committed this position, with this answer."""
    positions = [["ta", 0, offset]]
    return [
        {"what": "moving", "move": move, "group": "g", "reader": reader, "positions": positions},
        {"what": "moved", "move": move, "group": "g", "answer": answer},
    ]


def stands(offset: int) -> list[Event]:
    """The position of the group at the end."""
    position = {"what": "position", "group": "g", "topic": "ta", "topic_id": "", "partition": 0}
    return [{**position, "offset": offset}]


def kinds(*parts: Iterable[Event]) -> set[str]:
    """The anomalies of the history."""
    history = History()
    for event in [SENT, *(event for part in parts for event in part), FINAL]:
        facts = {name: value for name, value in event.items() if name != "what"}
        history.note(0, 0.0, "someone", event["what"], **facts)
    return {found.kind for found in group_anomalies(history)}


READ_TWO = (joined("a", 0), polled("a", 0, 2), moved("a", "1", 2))


def test_consumer_that_starts_at_the_committed_position_is_no_anomaly() -> None:
    assert kinds(*READ_TWO, joined("b", 2), stands(2)) == set()


@pytest.mark.parametrize("found", [0, 1])
def test_position_below_a_commit_is_a_lost_commit(found: int) -> None:
    assert "lost commit" in kinds(*READ_TWO, joined("b", found), stands(2))
    assert "lost commit" in kinds(*READ_TWO, stands(found))


def test_commit_of_unknown_outcome_may_be_visible_or_not() -> None:
    unclear = (joined("a", 0), polled("a", 0, 2), moved("a", "1", 2, "unknown"))
    assert kinds(*unclear, joined("b", 0), joined("c", 2), stands(2)) == set()


def test_position_may_fall_after_a_reset() -> None:
    assert kinds(*READ_TWO, moved("resetter", "2", 0), joined("b", 0), stands(0)) == set()


def test_commit_without_progress_need_not_undo_a_reset() -> None:
    again = moved("a", "3", 2)
    assert kinds(*READ_TWO, moved("resetter", "2", 0), again, joined("b", 0), stands(0)) == set()


def test_position_without_a_commit_is_made_up() -> None:
    assert "made up position" in kinds(*READ_TWO, joined("b", 1), stands(2))
    assert "made up position" in kinds(*READ_TWO, stands(3))


def test_unpolled_record_below_the_position_is_passed_over() -> None:
    assert kinds(joined("a", 0), polled("a", 0, 1), moved("a", "1", 2), stands(2)) == {
        "passed over"
    }


def test_commit_refused_without_a_move_by_another_consumer_is_found() -> None:
    refused = moved("a", "1", 2, "failed")
    assert kinds(joined("a", 0), polled("a", 0, 2), refused) == {"wrong refusal"}
    other = (*joined("b", 0), *polled("b", 0, 2), *moved("b", "2", 2))
    assert kinds(joined("a", 0), polled("a", 0, 2), other, refused, stands(2)) == set()
    unknown = moved("a", "0", 2, "unknown")
    assert kinds(joined("a", 0), polled("a", 0, 2), unknown, refused) == {"wrong refusal"}
    other = (joined("b", 0), polled("b", 0, 2), moved("b", "9", 2))
    assert kinds(joined("a", 0), polled("a", 0, 2), *other, refused, stands(2)) == set()


def test_move_before_a_successful_commit_does_not_excuse_a_later_refusal() -> None:
    first = (joined("b", 0), polled("b", 0, 1), moved("b", "9", 1, "unknown"))
    second = (joined("a", 0), polled("a", 0, 2), moved("a", "1", 2))
    refused = moved("a", "2", 3, "failed")
    assert kinds(*first, *second, refused, stands(2)) == {"wrong refusal"}
    late = moved("b", "10", 2, "unknown")
    assert kinds(*first, *second, late, refused, stands(2)) == set()
