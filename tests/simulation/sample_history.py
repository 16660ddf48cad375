"""Hand-made sound histories and changes to them, for tests of the checks."""

from typing import Any

from tests.simulator.checks.history_checks import anomalies
from tests.simulator.history import History
from tests.simulator.topics import is_tombstone, key_of

TX, OTHER = "1-0-0", "2-0-0"


class SampleHistory:
    """A sound history of two transactions over topics a and b, and changes to it."""

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
        """Add an event."""
        self.history.note(len(self.history.events), 0.0, who, what, **facts)

    def finals(self, records: list[list[Any]]) -> None:
        """The history of the whole log."""
        for isolation in ("read_uncommitted", "read_committed"):
            for topic in "ab":
                mine = [record for record in records if record[0] == topic]
                self.add("final", topic=topic, isolation=isolation, records=mine)

    def change(self, what: str, nth: int = 0, **facts: Any) -> "SampleHistory":
        """Alter the nth event of a kind."""
        list(self.history.of(what))[nth].update(facts)
        return self

    def found(self) -> set[str]:
        """The kinds of its anomalies."""
        return {anomaly.kind for anomaly in anomalies(self.history)}


# Where records and topics are deleted.


class HistoryOfDeletion(SampleHistory):
    """In the compacted topic `c` offsets 0 and 1 are deleted, and 2 is superseded."""

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
        """All records that a topic ever had."""
        known: dict[str, Any] = {
            "is_closed": False,
            "closed_at": -1,
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
        """An earlier topic `a` with other records was deleted; a group continues in the new one."""
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


class HistoryOfATombstone(HistoryOfDeletion):
    """After the records of topic `c` there is a tombstone of the key of the last two.

    It is removed at step 9. The record that it hides is removed at step 8, unless it is kept.
    """

    def __init__(self, gone_ms: int, kept: list[int], hidden_at: int = 8) -> None:
        super().__init__()
        last = self.ever[-1][3]
        values = [f"t{number}" for number in range(1_000)]
        same = [v for v in values if key_of("c", v) == key_of("c", last) and is_tombstone("c", v)]
        self.add("send", tx=None, topic="c", values=same[:1])
        ever = [*self.ever, ["c", 0, 4, same[0]]]
        hidden = {self.ever[n][3]: [hidden_at, 0] for n in (2, 3) if n not in kept}
        self.change("stored", 2, records=ever, gone={**hidden, same[0]: [9, gone_ms]})
        for nth in (4, 5):
            self.change("final", nth, records=[ever[offset] for offset in kept])
        self.add("conditions", faults=[])
