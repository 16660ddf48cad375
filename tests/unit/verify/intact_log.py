"""A small sound log, and ways to damage its objects."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.protocol.steps import (
    GROUP,
    TIMEOUT_MS,
    append,
    coordinator,
    finish,
    participant,
    pend,
    prepare,
    register,
    tx_of,
)
from tests.protocol.world import NAMES, World
from txlog.coordinator.events import (
    OffsetRange,
    ReplayMark,
)
from txlog.groups.machine import CoordinatorMachine
from txlog.journal.entry import GENESIS_CRC32, Entry, decode_entry, encode_entry
from txlog.journal.machine import Machine
from txlog.layout import JournalLayout
from txlog.model import Decision
from txlog.topic.events import AppendBatches
from txlog.topic.machine import TopicMachine
from txlog.verify.invariants import check_log

Events = list[list[Any]]
"""The events of each entry of a journal; edits change them in place."""

COORDINATOR = NAMES.transactions(0)


class IntactLog:
    """An intact log: two commits of a query over two topics, a producer's commit and its abort."""

    def __init__(self) -> None:
        self.world = World()
        self.world.create_topics("src", "a", "b")
        process = self.process = self.world.process()
        process.topic("src").execute(AppendBatches((process.stage("src", range(9)),)))
        self.query = register(process, "run", is_run=True, groups=(GROUP,))
        self.commit(0, 2, "a", "b")
        self.commit(2, 3, "a")
        self.producer = register(process, "i", "p")
        self.logged(0, (0, 1), Decision.COMMIT)
        self.logged(1, (2,), Decision.ABORT)

    @property
    def store(self) -> Any:
        """The store of the log."""
        return self.world.store

    def commit(self, start: int, end: int, *topics: str) -> None:
        """Commit a micro-batch completely."""
        tx = tx_of(self.query, start)
        pend(self.process, tx, start, end)
        staged = [participant(self.process, topic, *range(start, end)) for topic in topics]
        ranges = (OffsetRange(GROUP, "src", 0, start, end),)
        prepare(self.process, tx, *staged, mark=ReplayMark("q", start, ranges))
        finish(self.process, tx)

    def logged(self, number: int, sequences: tuple[int, ...], decision: Decision) -> None:
        """A transaction with records in the log of topic b."""
        tx, process = tx_of(self.producer, number), self.process
        declared = participant(process, "b", logged=True)
        coordinator(process).begin("p", tx, TIMEOUT_MS, (declared,))
        for sequence in sequences:
            append(process, "b", tx, sequence, sequence)
        if decision is Decision.COMMIT:
            prepare(process, tx, name="p", groups=())
            finish(process, tx, "p")
        else:
            coordinator(process).abort("p", tx)

    def topic(self, name: str) -> JournalLayout:
        """The journal of a topic."""
        return NAMES.topic(name, self.process.topic(name).topic_id)

    def paths(self, folder: str) -> list[str]:
        """Paths of the objects in a folder, in order."""
        return [stored.path for stored in self.store.list_after(folder)]

    def edit(self, layout: JournalLayout, change: Callable[[Events], object]) -> None:
        """Write a journal again as if these had been its events from the start."""
        machine = self._machine(layout)
        events: Events = []
        for slot, path in enumerate(self.paths(layout.entries)):
            values = decode_entry(self.store.get(path), path, slot)[0].events
            events.append([machine.decode_event(value) for value in values])
        change(events)
        for path in self.paths(f"{layout.root}/"):
            if not path.startswith(layout.segments):
                self.store.delete(path)
        prior = GENESIS_CRC32
        for slot, found in enumerate(entry for entry in events if entry):
            values = tuple(machine.encode_event(event) for event in found)
            data, crc32 = encode_entry(
                Entry(
                    slot,
                    f"token {slot}",
                    "w",
                    0,
                    prior,
                    values,
                    journal=layout.root,
                    log_id=layout.log_id,
                )
            )
            self.store.create(layout.entry(slot), data)
            prior = crc32

    def _machine(self, layout: JournalLayout) -> Machine[Any]:
        if layout == COORDINATOR:
            return CoordinatorMachine()
        return TopicMachine(4)


def invariants(log: IntactLog) -> set[str]:
    """Numbers of the invariants that `check_log` reports as broken."""
    return {finding.invariant for finding in check_log(log.store)}


def first(events: Events, kind: type, nth: int = 0) -> tuple[list[Any], int]:
    """The entry and the place in it of the nth event of that kind."""
    found = [(e, i) for e in events for i, event in enumerate(e) if isinstance(event, kind)]
    return found[nth]


def changing(kind: type, nth: int = 0, **changes: Any) -> Callable[[Events], None]:
    """An edit that changes fields of one event."""

    def change(events: Events) -> None:
        entry, index = first(events, kind, nth)
        entry[index] = replace(entry[index], **changes)

    return change


def dropping(kind: type, nth: int = 0) -> Callable[[Events], None]:
    """An edit that removes one event."""

    def change(events: Events) -> None:
        entry, index = first(events, kind, nth)
        del entry[index]

    return change


def adding(event: Any) -> Callable[[Events], None]:
    """An edit that adds an entry at the end."""
    return lambda events: events.append([event])
