"""Each anomaly is named by its check, and a sound history shows none."""

from typing import Any

import pytest

from txlog.testing.simulation.history import History, read_history
from txlog.testing.simulation.history_checks import anomalies
from txlog.testing.simulation.topics import is_tombstone, key_of

TX, OTHER = "1-0-0", "2-0-0"


class Story:
    """A sound history of two transactions over topics a and b, and ways to spoil it."""

    def __init__(self) -> None:
        self.history = History()
        self.records = [["a", 0, 0, "x1"], ["b", 0, 0, "x2"], ["a", 0, 1, "y1"], ["b", 0, 1, "y2"]]
        for tx, values in ((TX, ["x1", "x2"]), (OTHER, ["y1", "y2"])):
            for topic, value in zip("ab", values, strict=True):
                self.add("send", tx=tx, topic=topic, values=[value])
            self.add("staged", tx=tx)
            self.add("committing", tx=tx, values=values)
            self.add("commit", tx=tx, answer="ok")
        self.add("written", tx=TX, records=self.records[:2])
        self.add("poll", isolation="read_committed", records=self.records)
        self.add("cut", who="auditor#0", topics=["a", "b"], records=self.records)
        self.add("caught_up", isolation="read_committed", topics=["a", "b"])
        self.finals(self.records)
        for tx in (TX, OTHER):
            self.add("outcome", tx=tx, outcome="COMMITTED")

    def add(self, what: str, who: str = "reader#0", **facts: Any) -> None:
        """One event."""
        self.history.note(len(self.history.events), 0.0, who, what, **facts)

    def finals(self, records: list[list[Any]]) -> None:
        """The whole log."""
        for isolation in ("read_uncommitted", "read_committed"):
            for topic in "ab":
                mine = [record for record in records if record[0] == topic]
                self.add("final", topic=topic, isolation=isolation, records=mine)

    def change(self, what: str, nth: int = 0, **facts: Any) -> "Story":
        """Alter the nth event of a kind."""
        list(self.history.of(what))[nth].update(facts)
        return self

    def found(self) -> set[str]:
        """Kinds of what is wrong."""
        return {anomaly.kind for anomaly in anomalies(self.history)}


def test_a_sound_history_shows_nothing_and_is_read_from_its_lines_as_it_was() -> None:
    story = Story()
    assert story.found() == set()
    assert read_history(story.history.lines()).events == story.history.events


SPOILT = {
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


MORE_OF_A_KIND = {
    "a life that ended began behind the start": (
        "poll skip",
        lambda s: s.add("poll", "died#0", isolation="read_committed", records=s.records[2:]),
    ),
    "what nobody sent was seen before it was decided": (
        "made up",
        lambda s: s.add("poll", isolation="read_uncommitted", records=[["a", 0, 7, "z"]]),
    ),
    "and was stored": (
        "made up",
        lambda s: s.change("final", records=[*s.records[::2], ["a", 0, 2, "z"]]),
    ),
    "a partition begins at 5": (
        "offset gap",
        lambda s: s.change("final", records=[["a", 0, 5, "x1"], ["a", 0, 6, "y1"]]),
    ),
}


@pytest.mark.parametrize("name", MORE_OF_A_KIND)
def test_it_is_named_wherever_it_is(name: str) -> None:
    kind, spoil = MORE_OF_A_KIND[name]
    story = Story()
    spoil(story)
    assert kind in story.found()


def test_who_has_a_group_begins_where_it_stands() -> None:
    story = Story()
    story.add("poll", isolation="read_committed", records=story.records[2:], reader="copier.1")
    assert story.found() == set()


def test_a_finding_names_the_step_at_which_its_record_was_stored() -> None:
    story = Story().change("final", records=[*Story().records[::2], ["a", 0, 2, "x1"]])
    story.add("placed", steps={"x1": 17})
    assert [found.at for found in anomalies(story.history) if found.kind == "duplicate"] == [17]


@pytest.mark.parametrize("kind", SPOILT)
def test_what_is_spoilt_is_named(kind: str) -> None:
    story = Story()
    SPOILT[kind](story)
    assert kind in story.found()


def consumed(story: Story, tx: str, start: int, end: int, *reads: str) -> None:
    """A transaction that moves a group."""
    story.add("consumed", tx=tx, group="g", ranges=[["a", 0, start, end]], reads=list(reads))


@pytest.mark.parametrize(
    ("ranges", "stands", "kind"),
    [
        ([(0, 1), (1, 2)], 2, None),
        ([(0, 1), (0, 2)], 2, "offset overlap"),
        ([(0, 1), (2, 3)], 3, "offset range gap"),
        ([(0, 1), (1, 2)], 3, "offset range gap"),
    ],
)
def test_I6_ranges_of_a_group_follow_each_other(
    ranges: list[tuple[int, int]], stands: int, kind: str | None
) -> None:
    story = Story()
    for tx, (start, end) in zip((TX, OTHER), ranges, strict=True):
        consumed(story, tx, start, end)
    story.add("position", group="g", topic="a", topic_id="1", partition=0, offset=stands)
    assert story.found() == ({kind} if kind else set())


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
def test_I6_what_wrote_nothing_may_lie_between_two_ranges(
    unknown: list[tuple[int, int]], kind: str | None
) -> None:
    """Of several attempts any may have committed."""
    story = Story()
    consumed(story, TX, 0, 1)
    consumed(story, OTHER, 3, 4)
    for number, (start, end) in enumerate(unknown):
        tx = f"empty {number}"
        story.add("consumed", tx=tx, group="g", ranges=[["a", 0, start, end]], reads=[])
        story.add("outcome", tx=tx, outcome="UNKNOWN")
    story.add("position", group="g", topic="a", topic_id="1", partition=0, offset=4)
    assert story.found() == ({kind} if kind else set())


@pytest.mark.parametrize(
    ("copies", "kind"),
    [
        (["c1<x1"], None),
        ([], "lost update"),
        (["c1<x1", "c2<x1"], "duplicate copy"),
        (["c1<x1", "c2<y1"], "duplicate copy"),
    ],
)
def test_I10_each_record_below_the_position_is_copied_once(
    copies: list[str], kind: str | None
) -> None:
    story = Story()
    story.add("copies", group="g", sources=["a"], sinks=["c"])
    story.add("position", group="g", topic="a", topic_id="1", partition=0, offset=1)
    story.add("send", tx=None, topic="c", values=copies)
    records = [["c", 0, number, value] for number, value in enumerate(copies)]
    for isolation in ("read_uncommitted", "read_committed"):
        story.add("final", topic="c", isolation=isolation, records=records)
    assert story.found() == ({kind} if kind else set())


def test_G1c_nobody_reads_from_whoever_read_from_him() -> None:
    story = Story()
    consumed(story, TX, 0, 1, "y1")
    consumed(story, OTHER, 1, 2, "x1")
    story.add("position", group="g", topic="a", topic_id="1", partition=0, offset=2)
    assert story.found() == {"G1c circular information flow"}


# Where records and topics are deleted.


class StoryOfDeletion(Story):
    """Of topic `c`, which is compacted, offsets 0 and 1 are deleted, and 2 is superseded."""

    def __init__(self) -> None:
        super().__init__()
        values = ["z0", "z1", *_of_one_key(2)]
        self.ever = [["c", 0, offset, value] for offset, value in enumerate(values)]
        self.add("send", tx=None, topic="c", values=values)
        self.add("written", tx=None, records=self.ever)
        self.add("poll", who="early#0", isolation="read_committed", records=self.ever)
        for isolation in ("read_uncommitted", "read_committed"):
            self.add("final", topic="c", isolation=isolation, records=self.ever[3:])
        for topic in "ab":
            self.stored(topic, [record for record in self.records if record[0] == topic])
        self.stored("c", self.ever, log_starts={"0": 2})

    def stored(self, topic: str, records: list[list[Any]], **facts: Any) -> None:
        """What a topic ever held."""
        known: dict[str, Any] = {
            "is_closed": False,
            "log_starts": {},
            "violations": [],
            "topic_id": topic,
            "keeps_ms": 100,
            "keeps_tombstones_ms": 5_000,
            "deletions": [],
            "gone": {},
        }
        self.add("stored", topic=topic, records=records, **known | facts)

    def recreated(self, reads: str, start: int, position: int) -> None:
        """`a` was deleted before, with other records in it; a group goes on in the new one."""
        self.add("send", tx=None, topic="a", values=["old"])
        self.add("written", tx=None, records=[["a", 0, 0, "old"]])
        self.history.events.insert(0, self.history.events[-1])
        first = next(n for n, e in enumerate(self.history.events) if e["what"] == "stored")
        self.stored("a", [["a", 0, 0, "old"]], is_closed=True, topic_id="older")
        self.history.events.insert(first, self.history.events.pop())
        self.add("consumed", tx=OTHER, group="g", ranges=[["a", 0, start, 1]], reads=[reads])
        where: dict[str, Any] = {"topic": "a", "topic_id": "a", "partition": 0}
        self.add("position", group="g", offset=position, **where)


def _of_one_key(count: int) -> list[str]:
    values = [f"v{number}" for number in range(100)]
    key = key_of("c", values[0])
    return [v for v in values if key_of("c", v) == key and not is_tombstone("c", v)][:count]


def test_I12_what_may_be_deleted_may_be_gone() -> None:
    assert StoryOfDeletion().found() == set()


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"log_starts": {}}, "wrong deletion"),
        ({"log_starts": {"0": 4}}, "wrong deletion"),
        ({"violations": [[7, "below an open transaction"]]}, "wrong deletion"),
        ({"records": []}, "lost write"),
    ],
)
def test_I12_what_may_not_be_deleted_and_is_gone_is_found(
    changes: dict[str, Any], kind: str
) -> None:
    assert kind in StoryOfDeletion().change("stored", 2, **changes).found()


def test_I12_the_newest_record_of_a_key_may_not_go() -> None:
    story = StoryOfDeletion()
    for nth in (4, 5):
        story.change("final", nth, records=story.ever[2:3])
    assert "wrong deletion" in story.found()


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
def test_I12_a_record_is_deleted_after_its_time_or_if_somebody_asks_for_it(
    age_ms: int, faults: list[str], asked: int, kind: str | None
) -> None:
    story = StoryOfDeletion().change("stored", 2, deletions=[[8, age_ms, {"0": 2}]])
    story.add("conditions", faults=faults)
    story.add("deleting", topic="c", partition=0, offset=asked)
    assert story.found() == ({kind} if kind else set())


class StoryOfATombstone(StoryOfDeletion):
    """Behind the records of topic `c` comes a tombstone of the key of the last two."""

    def __init__(self, gone_ms: int, kept: list[int]) -> None:
        super().__init__()
        last = self.ever[-1][3]
        values = [f"t{number}" for number in range(1_000)]
        same = [v for v in values if key_of("c", v) == key_of("c", last) and is_tombstone("c", v)]
        self.add("send", tx=None, topic="c", values=same[:1])
        ever = [*self.ever, ["c", 0, 4, same[0]]]
        self.change("stored", 2, records=ever, gone={same[0]: [9, gone_ms]})
        for nth in (4, 5):
            self.change("final", nth, records=[ever[offset] for offset in kept])
        self.add("conditions", faults=[])


@pytest.mark.parametrize(
    ("gone_ms", "kept", "kind"),
    [
        (5_000, [], None),
        (5_000, [3], "wrong deletion"),
        (2_000, [], "wrong deletion"),
    ],
)
def test_I12_a_tombstone_goes_after_its_time_and_nothing_comes_back(
    gone_ms: int, kept: list[int], kind: str | None
) -> None:
    assert StoryOfATombstone(gone_ms, kept).found() == ({kind} if kind else set())


def test_R11_topics_of_one_name_are_told_apart() -> None:
    story = StoryOfDeletion()
    story.recreated("x1", 0, 1)
    assert story.found() == set()


def test_R11_a_position_in_a_deleted_topic_that_counts_in_the_next_is_found() -> None:
    story = StoryOfDeletion()
    story.recreated("old", 0, 1)
    assert "offset overlap" not in story.found()
    story.add("copies", group="g", sources=["a"], sinks=["b"])
    assert "lost update" in story.found()
