"""Temporary anomalies are found, and allowed states are not reported."""

from tests.simulator.checks.moment_checks import moment_anomalies
from tests.simulator.history import History

TX, OTHER = "1-0-0", "2-0-0"
RECORDS = [["a", 0, 0, "x1"], ["b", 0, 0, "y2"], ["a", 0, 1, "y1"], ["b", 0, 1, "x2"]]
"""Two transactions over two topics, in opposite order: one connected group."""


def kinds(what: str, **facts: object) -> list[str]:
    """A history of the two transactions and one event of a reader or a witness."""
    history = History()
    for tx, values in ((TX, ["x1", "x2"]), (OTHER, ["y1", "y2"])):
        for topic, value in zip("ab", values, strict=True):
            history.note(0, 0, "writer#0", "send", tx=tx, topic=topic, values=[value])
        history.note(0, 0, "writer#0", "committing", tx=tx, values=values)
    history.note(1, 0, "who#0", what, **facts)
    return [found.kind for found in moment_anomalies(history)]


def test_R8_offsets_visible_before_the_records_of_a_topic_are_found() -> None:
    assert kinds("witnessed", tx=TX, group="g", applied=["a"]) == ["offsets first"]
    assert not kinds("witnessed", tx=TX, group="g", applied=["a", "b"])


def test_R13_only_a_single_connected_group_may_exceed_the_limit() -> None:
    assert not kinds("cut", topics=["a", "b"], limit=1, records=RECORDS)
    alone = ["a", 0, 2, "z"]
    assert kinds("cut", topics=["a", "b"], limit=1, records=[*RECORDS, alone]) == ["wide cut"]
    assert not kinds("cut", topics=["a", "b"], limit=5, records=[*RECORDS, alone])
