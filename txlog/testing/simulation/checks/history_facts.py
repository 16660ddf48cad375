"""A history, indexed, with every record under the topic that it was really in.

Where records, or whole topics, are deleted meanwhile, `stored` events tell what there ever was:
then `final` is that, and `kept` is what could still be read at the end. A topic that was deleted
and created again is several topics here, told apart by the record: `x`, `x@1`. It must not judge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from txlog.testing.simulation.history import Event, History, Record

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
        """Topic -> what was ever stored in it; empty if nothing was deleted in this world."""
        self.history = _relabelled(history, self.stored)
        self.writer: dict[str, str | None] = {}
        """Value -> the transaction that writes it."""
        self.sent_to: dict[str, str] = {}
        """Value -> the topic that it is sent to, by name."""
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
        """Transactions whose records are in no topic before they were asked to commit."""
        self.faults: set[str] | None = None
        """What went wrong in this world; None if unknown."""
        for event in history.of("conditions"):
            self.faults = set(event["faults"])
        self.outcomes: dict[str, str] = {e["tx"]: e["outcome"] for e in history.of("outcome")}
        self.kept: _Topics = {
            (e["isolation"], e["topic"]): e["records"] for e in self.history.of("final")
        }
        """What can be read at the end."""
        self.final: _Topics = dict(self._ever()) if self.stored else self.kept
        """What could be read if nothing had been deleted."""
        self.shown = _by_value(self.final)
        """Value -> its record, of all that is committed at the end."""
        self.kept_shown = _by_value(self.kept)
        """Of those, what was not deleted."""
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
        """When a record was stored, or at least sent."""
        sent: Event = self.sent.get(value, {"at": -1})
        return self._placed.get(value, int(sent["at"]))

    def begun(self, tx: str) -> int:
        """When a transaction was sent, or asked to commit."""
        return self._begun.get(tx, -1)

    def values(self, tx: str) -> list[str]:
        """What it was asked to commit."""
        return list(self.asked.get(tx, {"values": ()})["values"])

    def is_committed(self, tx: str | None) -> bool:
        """Whether it ended so; what is in no transaction is committed when it is stored."""
        return tx is None or self.outcomes.get(tx) == COMMITTED

    def went_with_its_topic(self, value: str) -> bool:
        """Whether it may never have been stored, as a topic of its name was deleted since.

        A producer looks up the topic after the record was sent.
        """
        sent: Event = self.sent.get(value, {"topic": ""})
        topics = [e for e in self.stored.values() if e["topic"] == sent["topic"]]
        return any(sent["at"] <= e["closed_at"] for e in topics)

    def is_of_the_deleted(self, value: str) -> bool:
        """Whether it was stored in a topic that was deleted."""
        record = self.shown.get(value)
        return record is not None and self.is_closed(record[0])

    def is_closed(self, topic: str) -> bool:
        """Whether it was deleted."""
        return bool(self.stored.get(topic, _OPEN)["is_closed"])

    def is_whole(self, topic: str) -> bool:
        """Whether nothing committed of a topic was deleted."""
        mine = [record[3] for record in self.final.get((READ_COMMITTED, topic), ())]
        return not self.is_closed(topic) and all(value in self.kept_shown for value in mine)

    def newest(self, name: str) -> str:
        """The topic that had that name last."""
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
    """With the label of its own topic in every record, where a name stood for several."""
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
