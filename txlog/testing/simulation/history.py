"""What actors of a world did and were answered: JSON lines, one event each.

Checkers read only this and the stored bytes. An event is a dictionary with
`at` (request number, the step), `ms` (virtual time), `who` (actor and life) and `what`; the other
keys belong to its kind:

    send        tx topic values         records that will be written; before the first request
    staged      tx                      its records go in with its decision, not before; one without
                                        this has them in the log as soon as they are flushed
    committing  tx values               about to commit these of the records; before the request
                                        of a micro-batch also query batch label reads: whose it
                                        is, and the texts that it was made from
    commit      tx answer               answer: ok, failed (nothing is or will be seen), unknown,
                                        expired (failed, as it waited for too long)
    abort       tx answer
    written     tx records              acknowledged, [topic, partition, offset, value]
    consumed    tx group ranges reads   ranges [topic, partition, start, end] that tx moves the
                                        group by, and the values that it was made from: read
                                        before it wrote anything
    copies      group sources sinks     each record of a source goes once into each sink; its text
                                        is `name<text of the source's record`
    began       group starts            where its first query begins, [topic, partition, offset]:
                                        what is below is not to be copied
    local       tx decision             the local transaction of a half transaction has ended so
    counts      sinks                   what follows `<` in their records are numbers from 0 on
    batch_done  query batch label reads wrote   the sink said that this micro-batch is in
    mistaken    tx                      it contains a mistake, for which it must be refused
    poll        isolation records       what a reader received, in order; `reader` names it if
                                        there are several in one life, `group` what it is of
    cut         topics records limit    what a reader received up to its next consistent cut, and
                                        the number of records that it asked for
    witnessed   tx group applied        the group's last offsets are of tx, which these topics have
                                        applied a moment later
    joining     group reader            a consumer of a group is about to ask for its position
    joined      group reader positions  where it begins, [topic, partition, offset]
    moving      move group reader positions         a group is about to be moved there
    moved       move group answer       answer: ok, failed (its position is unchanged), unknown
    caught_up   isolation topics        a reader found nothing more, long after the last work
    stuck       isolation topics        a reader never reached the end
    maintained  tasks                   a pass of maintenance did these
    died                                the process has died
    ended       text                    it met an error that ends a program: a missing topic
    failure     text                    an actor met an error that it may not meet
    lived_with  text                    the product logged an error and went on, as it may
    holds       transactional_id        under which it commits from now on
    answered    tx answer               the product was told how a local transaction ended
    deleting    topic partition offset  about to delete the records below it
    ending      tx                      about to abort it, whichever actor owns it
    conditions  faults                  what went wrong in this world, by name; noted at the end
    final       topic isolation records the whole topic at the end
    stored      topic topic_id is_closed closed_at log_starts records violations keeps_ms
                keeps_tombstones_ms deletions gone
                                        what a topic, or one of that name, ever held; the step at
                                        which it was deleted, or -1; which entries ([step, ms])
                                        raised its log starts, and took which record away by
                                        rewriting; only where something is deleted
    placed      steps                   text of each record -> the step at which it was uploaded
    letters     letters                 the dead letters: [tx, topic, text]
    outcome     tx outcome              how it ended, asked at the end
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
