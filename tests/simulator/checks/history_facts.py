"""An index of a history, with every record under the incarnation of its topic.

If records or whole topics are deleted meanwhile, `stored` events have every record that was ever
stored: then `final` has these, and `kept` those that could be read at the end. The incarnations of
a topic that was deleted and created again have different labels: `x`, `x@1`. It must not judge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.simulator.history import Event, History, Record

COMMITTED = "COMMITTED"
READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"

_Topics = dict[tuple[str, str], list[Record]]
"""(isolation level, topic) -> its records, by partition and offset."""


_OPEN: Event = {"is_closed": False}


class HistoryFacts:
    """A history, indexed."""

    def __init__(self, history: History) -> None:
        self.stored: dict[str, Event] = dict(_incarnations(history))
        """Topic -> all records ever stored in it; empty if nothing was deleted in this world."""
        self.history = _relabelled(history, self.stored)
        self.writer: dict[str, str | None] = {}
        """Value -> the transaction that wrote it."""
        self.sent_to: dict[str, str] = {}
        """Value -> name of the topic to which it was sent."""
        for event in history.of("send"):
            self.writer.update(dict.fromkeys(event["values"], event["tx"]))
            self.sent_to.update(dict.fromkeys(event["values"], event["topic"]))
        self.sent: dict[str, Event] = {v: e for e in history.of("send") for v in e["values"]}
        """Value -> its `send`."""
        self._placed: dict[str, int] = {}
        for event in history.of("placed"):
            self._placed.update(event["steps"])
        self._begun: dict[str, int] = {
            e["tx"]: e["at"] for e in history.of("send", "committing") if e["tx"] is not None
        }
        self.staged: set[str] = {event["tx"] for event in history.of("staged")}
        """Transactions whose records are in no topic before the request to commit."""
        self.faults: set[str] | None = None
        """The faults of this world; None if unknown."""
        for event in history.of("conditions"):
            self.faults = set(event["faults"])
        self.outcomes: dict[str, str] = {e["tx"]: e["outcome"] for e in history.of("outcome")}
        self.kept: _Topics = {
            (e["isolation"], e["topic"]): e["records"] for e in self.history.of("final")
        }
        """Records that can be read at the end."""
        self.final: _Topics = dict(self._ever()) if self.stored else self.kept
        """Records that could be read if nothing had been deleted."""
        self.shown = _by_value(self.final)
        """Value -> its record, if it is committed at the end."""
        self.kept_shown = _by_value(self.kept)
        """The same without deleted records."""
        self.asked: dict[str, Event] = {e["tx"]: e for e in history.of("committing")}
        labels = {e["topic_id"]: label for label, e in self.stored.items()}
        self.positions: dict[tuple[str, str, int], int] = {
            (e["group"], str(labels.get(e["topic_id"], e["topic"])), e["partition"]): e["offset"]
            for e in history.of("position")
        }
        self.begins: dict[tuple[str, str, int], int] = {
            (e["group"], topic, partition): offset
            for e in history.of("began")
            for topic, partition, offset in e["starts"]
        }

    def step(self, value: str) -> int:
        """The step at which a record was stored, or else sent."""
        sent: Event = self.sent.get(value, {"at": -1})
        return self._placed.get(value, int(sent["at"]))

    def begun(self, tx: str) -> int:
        """The step at which a transaction was first sent, or asked to commit."""
        return self._begun.get(tx, -1)

    def values(self, tx: str) -> list[str]:
        """The values that the transaction was asked to commit."""
        return list(self.asked.get(tx, {"values": ()})["values"])

    def is_committed(self, tx: str | None) -> bool:
        """Whether the transaction committed. A record without a transaction is committed when it is
        stored."""
        return tx is None or self.outcomes.get(tx) == COMMITTED

    def went_with_its_topic(self, value: str) -> bool:
        """Whether the record may never have been stored because a topic of its name was deleted.

        A producer looks the topic up after the record was sent.
        """
        sent: Event = self.sent.get(value, {"topic": ""})
        topics = [e for e in self.stored.values() if e["topic"] == sent["topic"]]
        return any(sent["at"] <= e["closed_at"] for e in topics)

    def is_of_the_deleted(self, value: str) -> bool:
        """Whether the record was stored in a topic that was deleted."""
        record = self.shown.get(value)
        return record is not None and self.is_closed(record[0])

    def is_closed(self, topic: str) -> bool:
        """Whether the topic was deleted."""
        return bool(self.stored.get(topic, _OPEN)["is_closed"])

    def is_whole(self, topic: str) -> bool:
        """Whether no committed record of the topic was deleted."""
        mine = [record[3] for record in self.final.get((READ_COMMITTED, topic), ())]
        return not self.is_closed(topic) and all(value in self.kept_shown for value in mine)

    def newest(self, name: str) -> str:
        """The newest topic of that name."""
        return _newest(self.stored, name)

    def _ever(self) -> Iterator[tuple[tuple[str, str], list[Record]]]:
        for label, event in self.stored.items():
            records = [[label, *record[1:]] for record in event["records"]]
            yield (READ_UNCOMMITTED, label), records
            committed = [r for r in records if self.is_committed(self.writer.get(r[3]))]
            yield (READ_COMMITTED, label), committed


def _by_value(topics: _Topics) -> dict[str, Record]:
    return {
        record[3]: record
        for (isolation, _), records in topics.items()
        if isolation == READ_COMMITTED
        for record in records
    }


def _incarnations(history: History) -> Iterator[tuple[str, Event]]:
    counts: dict[str, int] = {}
    for event in history.of("stored"):
        name = event["topic"]
        counts[name] = counts.get(name, -1) + 1
        yield (f"{name}@{counts[name]}" if counts[name] else name), event


def _newest(stored: Mapping[str, Event], name: str) -> str:
    labels = [label for label, event in stored.items() if event["topic"] == name]
    return labels[-1] if labels else name


def _relabelled(history: History, stored: Mapping[str, Event]) -> History:
    """The records with the labels of their own topics, if a name had several."""
    several = {e["topic"] for label, e in stored.items() if "@" in label}
    if not several:
        return history
    labels = {
        record[3]: label
        for label, event in stored.items()
        for record in event["records"]
        if event["topic"] in several
    }
    found = History()
    for event in history.events:
        changed = dict(event)
        if "records" in event and event["what"] != "stored":
            changed["records"] = [[labels.get(r[3], r[0]), *r[1:]] for r in event["records"]]
        if event["what"] == "final":
            changed["topic"] = _newest(stored, event["topic"])
        if event["what"] == "consumed" and event["reads"]:
            changed["ranges"] = [
                [labels.get(event["reads"][0], r[0]), *r[1:]] for r in event["ranges"]
            ]
        found.events.append(changed)
    return found
