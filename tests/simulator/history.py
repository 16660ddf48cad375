"""The actions of a world's actors and the answers they got: JSON lines, one event each.

Checkers read only this and the stored bytes. An event is a dictionary with
`at` (request number, the step), `ms` (virtual time), `who` (actor and life) and `what`; the other
keys belong to its kind:

    send        tx topic values         records that will be written; before the first request
    staged      tx                      its records enter the topics with its decision; without
                                        this event they are in the log once they are flushed
    committing  tx values               before the request to commit these of the records; for a
                                        micro-batch also query batch label reads: its owner, and
                                        the texts that it was made from
    commit      tx answer               answer: ok, failed (nothing is or will be seen), unknown,
                                        expired (failed, as it waited for too long)
    abort       tx answer
    written     tx records              acknowledged, [topic, partition, offset, value]
    consumed    tx group ranges reads   ranges [topic, partition, start, end] that tx moves the
                                        group by, and the values that it was made from: read
                                        before it wrote anything
    copies      group sources sinks     each sink gets each record of a source once; its text
                                        is `name<text of the source's record`
    began       group starts            the start of its first query, [topic, partition, offset]:
                                        records below it must not be copied
    local       tx decision             the outcome of a half transaction's local transaction
    counts      sinks                   the texts after `<` in their records are numbers from 0 on
    batch_done  query batch label reads wrote   the sink reported this micro-batch as committed
    mistaken    tx                      it contains a mistake and must be refused
    poll        isolation records       the records a reader received, in order; `reader` names it
                                        if one life has several, `group` is its group
    cut         topics records limit    the records a reader received up to its next consistent
                                        cut, and the number of records that it requested
    witnessed   tx group applied        the group's last offsets are of tx, which these topics had
                                        applied shortly after
    joining     group reader            before a consumer of a group requests its position
    joined      group reader positions  its start, [topic, partition, offset]
    moving      move group reader positions         before a group is moved to these positions
    moved       move group answer       answer: ok, failed (its position is unchanged), unknown
    caught_up   isolation topics        a reader found nothing more, long after the last work
    stuck       isolation topics        a reader never reached the end
    maintained  tasks                   the tasks of a pass of maintenance
    died                                the process has died
    ended       text                    it got an error that ends a program: a missing topic
    failure     text                    an actor got an error that must not occur
    lived_with  text                    the product logged an error and continued, as allowed
    holds       transactional_id        the transactional id of its later commits
    answered    tx answer               the product got the outcome of a local transaction
    deleting    topic partition offset  before the records below it are deleted
    ending      tx                      before any actor aborts it
    conditions  faults                  the faults in this world, by name; recorded at the end
    final       topic isolation records the whole topic at the end
    stored      topic topic_id is_closed closed_at log_starts records violations keeps_ms
                keeps_tombstones_ms deletions gone
                                        all records that a topic, or one with its name, ever held;
                                        the step at which it was deleted, or -1; the entries
                                        ([step, ms]) that raised its log starts or removed a
                                        record by rewriting; only in worlds with deletions
    placed      steps                   text of each record -> the step at which it was uploaded
    letters     letters                 the dead letters: [tx, topic, text]
    outcome     tx outcome              its outcome, read at the end
    position    group topic topic_id partition offset        position of a group at the end

A transaction is named `pid-epoch-number`, a half transaction `group/id`; null means none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

Event: TypeAlias = dict[str, Any]
Record: TypeAlias = list[Any]
"""[topic, partition, offset, value]"""


class History:
    """The events of one world, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def note(self, at: int, ms: float, who: str, what: str, **facts: object) -> None:
        """Add an event."""
        self.events.append({"at": at, "ms": round(ms, 3), "who": who, "what": what, **facts})

    def lines(self) -> Iterator[str]:
        """As JSON lines."""
        for event in self.events:
            yield json.dumps(event, separators=(",", ":"))

    def of(self, *kinds: str) -> Iterator[Event]:
        """Events of these kinds, in order."""
        return (event for event in self.events if event["what"] in kinds)


def read_history(lines: Iterable[str]) -> History:
    """The history in these JSON lines."""
    history = History()
    history.events = [json.loads(line) for line in lines if line.strip()]
    return history
