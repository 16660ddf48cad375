"""Anomalies of groups that commit outside of transactions: records read again, or never.

Like `history_checks.py` it reads the events alone. A consumer of such a group begins at the group's
position: one to which an actor moved it, and except after a reset not below the last acknowledged
commit. It proves I6 and I10 as these groups see them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.simulator.checks.anomaly import Anomaly
from tests.simulator.checks.history_facts import READ_COMMITTED, HistoryFacts
from tests.simulator.history import Event, History

_NEVER = float("inf")

_Place = tuple[str, str, int]
"""Group, topic, partition."""


@dataclass(frozen=True, slots=True)
class _Move:
    """A commit, or a reset."""

    offset: int
    mover: str
    began: float
    ended: float
    """When it was acknowledged; never without an acknowledgement."""
    left: float
    """When its actor got an answer or gave up."""
    answer: str


def group_anomalies(history: History) -> list[Anomaly]:
    """All anomalies of groups; empty if the history is sound."""
    moves = _moves(history)
    if not moves:
        return []
    return sorted(
        {
            *_wrong_starts(history, moves),
            *_wrong_refusals(history, moves),
            *_passed_over(history),
        }
    )


def _moves(history: History) -> dict[_Place, list[_Move]]:
    answers = {
        e["move"]: (number, e["answer"])
        for number, e in enumerate(history.events)
        if e["what"] == "moved"
    }
    moves: dict[_Place, list[_Move]] = {}
    stands: dict[tuple[str, str, int], int] = {}
    for number, event in enumerate(history.events):
        ended, answer = answers.get(event.get("move", ""), (_NEVER, "unknown"))
        for topic, partition, offset in event.get("positions", ()):
            mine = (event["reader"], topic, partition)
            if event["what"] == "moving":
                # A commit of the position that a consumer started at moves nothing: a reset stays.
                is_done = answer == "ok" and stands.get(mine) != offset
                known_end = ended if is_done or answer == "failed" else _NEVER
                found = _Move(offset, event["reader"], number, known_end, ended, answer)
                moves.setdefault((event["group"], topic, partition), []).append(found)
            if answer == "ok" or event["what"] == "joined":
                stands[mine] = offset
    return moves


def _wrong_starts(history: History, moves: dict[_Place, list[_Move]]) -> Iterator[Anomaly]:
    asked: dict[str, int] = {}
    for number, event in enumerate(history.events):
        if event["what"] == "joining":
            asked[event["reader"]] = number
        elif event["what"] == "joined":
            for topic, partition, offset in event["positions"]:
                place = (event["group"], topic, partition)
                known = moves.get(place, [])
                yield from _wrong_start(event, place, offset, known, asked[event["reader"]], number)
        elif event["what"] == "position":
            place = (event["group"], event["topic"], event["partition"])
            known = moves.get(place, [])
            if known:
                yield from _wrong_start(event, place, event["offset"], known, number, number)


def _wrong_start(
    event: Event, place: _Place, offset: int, known: list[_Move], asked: int, told: int
) -> Iterator[Anomaly]:
    done = [move for move in known if move.answer != "failed"]
    possible = {0, *(move.offset for move in done if move.began < told)}
    if offset not in possible:
        text = f"{event['who']} finds {place} at {offset}, and no actor moved it there"
        yield Anomaly(event["at"], "made up position", text)
    for move in done:
        if move.ended >= asked:
            continue
        later = [other.offset for other in done if move.began < other.ended and other.began < told]
        if offset < min([move.offset, *later]):
            found = f"{event['who']} finds {place} at {offset}"
            text = f"{found}, after {move.mover} committed {move.offset}"
            yield Anomaly(event["at"], "lost commit", text)


def _wrong_refusals(history: History, moves: dict[_Place, list[_Move]]) -> Iterator[Anomaly]:
    """A commit may be refused only if another actor has moved the group, or may have. An actor that
    moved it itself finds that out, even without an answer."""
    steps = {
        e["move"]: (number, e) for number, e in enumerate(history.events) if e["what"] == "moving"
    }
    for event in history.of("moved"):
        if event["answer"] != "failed":
            continue
        asked, moving = steps[event["move"]]
        places = [(moving["group"], topic, number) for topic, number, _ in moving["positions"]]
        if not any(_was_moved(moves[place], moving["reader"], asked) for place in places):
            text = f"{event['move']} was refused, and no other actor moved {places}"
            yield Anomaly(event["at"], "wrong refusal", text)


def _was_moved(moves: list[_Move], reader: str, asked: int) -> bool:
    """Whether another actor may have moved the group since this one read its position. Earlier
    requests have no effect once a later commit is stored."""
    mine = [m for m in moves if m.mover == reader and m.answer == "ok" and m.ended < asked]
    known = max((m.began for m in mine), default=-1)
    return any(m.mover != reader and m.answer != "failed" and m.left > known for m in moves)


def _passed_over(history: History) -> Iterator[Anomaly]:
    """Every record below a group's position was returned to one of its consumers."""
    facts = HistoryFacts(history)
    groups = {e["group"] for e in history.of("joined")}
    given: dict[str, set[str]] = {group: set() for group in groups}
    for event in history.of("poll"):
        if event.get("group") in groups:
            given[event["group"]].update(record[3] for record in event["records"])
    for (group, topic, partition), position in sorted(facts.positions.items()):
        if group not in groups:
            continue
        records = facts.kept.get((READ_COMMITTED, topic), ())
        below = [r for r in records if r[1] == partition and r[2] < position]
        if missed := [record for record in below if record[3] not in given[group]]:
            yield Anomaly(
                -1, "passed over", f"{group} stands at {position}, and never saw {missed}"
            )
