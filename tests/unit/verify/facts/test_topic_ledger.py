"""Each event of a topic that could not have been written where it stands is reported.

The events are given to the ledger directly, so that a finding can only come from it. The segments
that they name do not exist, which I15 reports, and is left out here.
"""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import pytest

from tests.unit.segments import segment
from tests.unit.topic_commands import OPENED
from txlog.journal.audit import Audit, Finding, Step
from txlog.layout import LogLayout
from txlog.model import Decision, TxId
from txlog.storage.memory import MemoryStore
from txlog.testing.clock import manual_runtime
from txlog.topic.events import (
    BatchesAppended,
    MarkerWritten,
    PartitionsAdded,
    ProducersRetired,
    TopicClosed,
    TopicEvent,
)
from txlog.topic.records.batch import Segment
from txlog.topic.state import TopicState, apply
from txlog.verify.facts.journal_walk import Walk
from txlog.verify.facts.topic_facts import TopicFacts, topic_facts

LAYOUT = LogLayout("10" * 16).topic("t", OPENED.topic_id)
COMMIT, ABORT = Decision.COMMIT, Decision.ABORT
DONE, OPEN, NEXT = (TxId(7, 0, number) for number in range(3))
OTHER = TxId(9, 4, 0)
_names = (f"{number:06x}f" for number in count(1))


def rows(counts: Mapping[int, Any]) -> Segment:
    """A segment of its own: partition -> row count, or row counts of batches."""
    return segment(counts, next(_names))


def appended(
    base_offset: int,
    *counts: int,
    tx: TxId | None = None,
    pid: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    partition: int = 0,
    **changes: Any,
) -> BatchesAppended:
    """Batches in one partition, by a producer or in a transaction."""
    if tx is not None:
        pid, epoch = tx.pid, tx.epoch
    values: dict[str, Any] = {
        "segments": (rows({partition: counts or (1,)}),),
        "base_offsets": {partition: base_offset},
        "pid": pid,
        "epoch": epoch,
        "tx_id": tx,
        "base_sequences": {} if sequence < 0 else {partition: sequence},
    }
    return BatchesAppended(**{**values, **changes})


def marker(tx: TxId, decision: Decision = COMMIT, **changes: Any) -> MarkerWritten:
    values: dict[str, Any] = {"floor": -1, "coordinator": 0}
    return MarkerWritten(tx, decision, **{**values, **changes})


STORED = rows({0: 2})
BEFORE: tuple[TopicEvent, ...] = (
    OPENED,
    appended(0, pid=8, epoch=0, sequence=0, segments=(STORED,)),
    appended(2, tx=DONE, sequence=0),
    marker(DONE, floor=0),
    appended(3, tx=OPEN, sequence=1),
)
"""Two records of producer 8, and two transactions of producer 7, of which one is open."""


def facts_of(*events: TopicEvent, pruned: Sequence[TopicEvent] = ()) -> TopicFacts:
    """The facts of a journal whose first entries are pruned: a snapshot has the state that they led
    to. The end is unknown, so that only the events are checked."""
    base = TopicState()
    for slot, event in enumerate(pruned):
        base = apply(base, event, slot)
    steps = [
        Step(slot, LAYOUT.entry(slot), event) for slot, event in enumerate(events, len(pruned))
    ]
    audit = Audit(LAYOUT, base, base, len(pruned) - 1, is_whole=False)
    store = MemoryStore(manual_runtime())
    return topic_facts(store, Walk(audit, steps), "t", OPENED.topic_id)


def findings(facts: TopicFacts) -> list[Finding]:
    return [finding for finding in facts.walk.findings if finding.invariant != "I15"]


Findings = list[tuple[str, str]]
CASES: dict[str, tuple[tuple[TopicEvent, ...], Findings]] = {
    "records follow": ((appended(4, pid=8, epoch=0, sequence=2),), []),
    "offsets are left out": (
        (appended(5),),
        [("I2", "partition 0 continues at 4, the event says 5")],
    ),
    "offsets are repeated": (
        (appended(3),),
        [("I2", "partition 0 continues at 4, the event says 3")],
    ),
    "another partition begins at 0": ((appended(0, partition=1),), []),
    "another partition begins later": (
        (appended(1, partition=1),),
        [("I2", "partition 1 continues at 0, the event says 1")],
    ),
    "a partition that the topic does not have": (
        (appended(0, partition=3),),
        [("I2", "partition 3 continues at None, the event says 0")],
    ),
    "a partition that the topic has now": (
        (PartitionsAdded(4), appended(0, partition=3)),
        [],
    ),
    "the other partitions go on": ((PartitionsAdded(4), appended(4)), []),
    "several batches are counted": (
        (
            appended(4, 2, 3, pid=8, epoch=0, sequence=2),
            appended(9, 1, pid=8, epoch=0, sequence=7),
        ),
        [],
    ),
    "several segments and partitions are counted": (
        (
            appended(
                4,
                pid=8,
                epoch=0,
                segments=(rows({0: 2, 1: 1}), rows({0: (1, 1), 1: 5})),
                base_offsets={0: 4, 1: 0},
                base_sequences={0: 2, 1: 0},
            ),
            appended(
                8,
                pid=8,
                epoch=0,
                segments=(rows({0: 1, 1: 1}),),
                base_offsets={0: 8, 1: 6},
                base_sequences={0: 6, 1: 6},
            ),
        ),
        [],
    ),
    "a newer epoch writes": ((appended(4, pid=8, epoch=1, sequence=0),), []),
    "an older epoch writes": (
        (appended(4, pid=8, epoch=2), appended(5, pid=8, epoch=1)),
        [("I8", "epoch 1 of 8 writes after 2")],
    ),
    "an epoch writes that a marker fenced": (
        (marker(OPEN, ABORT, floor=1, fence_epoch=3), appended(4, tx=TxId(7, 2, 0))),
        [("I8", "epoch 2 of 7 writes after 3")],
    ),
    "an epoch writes that a marker's own epoch fenced": (
        (marker(OTHER), appended(4, pid=9, epoch=3)),
        [("I8", "epoch 3 of 9 writes after 4")],
    ),
    "an epoch writes that an append fenced before a marker": (
        (appended(4, pid=9, epoch=5), marker(OTHER), appended(5, pid=9, epoch=4)),
        [("I8", "epoch 4 of 9 writes after 5")],
    ),
    "the epoch of a marker writes": ((marker(OTHER), appended(4, pid=9, epoch=4)), []),
    "a retired producer writes": (
        (ProducersRetired((8,)), appended(4, pid=8, epoch=0)),
        [("I7", "producer 8 writes, and it is retired (rule R11)")],
    ),
    "another producer writes": ((ProducersRetired((9,)), appended(4, pid=8, epoch=0)), []),
    "a producer writes that retired before others": (
        (ProducersRetired((5,)), ProducersRetired((8,)), appended(4, pid=5, epoch=0)),
        [("I7", "producer 5 writes, and it is retired (rule R11)")],
    ),
    "a producer retires with a transaction": (
        (ProducersRetired((7, 8)),),
        [("I9", f"producer 7 retires, and {OPEN} is open")],
    ),
    "a producer retires after its transaction": (
        (marker(OPEN, floor=1), ProducersRetired((7,))),
        [],
    ),
    "a transaction writes more": ((appended(4, tx=OPEN, sequence=2),), []),
    "a transaction writes after its marker": (
        (marker(OPEN, floor=1), appended(4, tx=OPEN, sequence=2)),
        [("I9", f"records of {OPEN} come after its marker (rule R10)")],
    ),
    "a second transaction writes": (
        (appended(4, tx=NEXT, sequence=2),),
        [("I9", f"{OPEN} is open, and {NEXT} writes (rule R10)")],
    ),
    "the next transaction writes": (
        (marker(OPEN, floor=1), appended(4, tx=NEXT, sequence=2)),
        [],
    ),
    "a second transaction writes after another marker": (
        (marker(TxId(7, 0, 5), ABORT), appended(4, tx=NEXT, sequence=2)),
        [("I9", f"{OPEN} is open, and {NEXT} writes (rule R10)")],
    ),
    "a marker comes twice": ((marker(DONE),), [("I9", f"COMMIT of {DONE}")]),
    "both markers come": (
        (marker(OPEN, ABORT, floor=1), marker(OPEN)),
        [("I9", f"COMMIT of {OPEN}")],
    ),
    "staged records follow": (
        (marker(OTHER, segments=(rows({0: (2, 1)}),), base_offsets={0: 4}), appended(7)),
        [],
    ),
    "staged records leave offsets out": (
        (marker(OTHER, segments=(rows({0: 1}),), base_offsets={0: 6}),),
        [("I2", "partition 0 continues at 4, the event says 6")],
    ),
    "sequences are repeated": (
        (appended(4, pid=8, epoch=0, sequence=1),),
        [("I7", "producer 8 epoch 0 partition 0: sequence 1 where 2 is next")],
    ),
    "sequences are left out": (
        (appended(4, pid=8, epoch=0, sequence=3),),
        [("I7", "producer 8 epoch 0 partition 0: sequence 3 where 2 is next")],
    ),
    "sequences of an epoch begin later": (
        (appended(4, pid=8, epoch=1, sequence=1),),
        [("I7", "producer 8 epoch 1 partition 0: sequence 1 where 0 is next")],
    ),
    "sequences of a partition begin later": (
        (appended(0, pid=8, epoch=0, sequence=2, partition=1),),
        [("I7", "producer 8 epoch 0 partition 1: sequence 2 where 0 is next")],
    ),
    "sequences of a producer begin at 0": ((appended(4, pid=5, epoch=0, sequence=0),), []),
}


@pytest.mark.parametrize("is_pruned", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_event_is_reported_if_and_only_if_it_is_impossible_where_it_stands(
    case: str, is_pruned: bool
) -> None:
    """Also if everything before the last event is known from a snapshot only."""
    events, wanted = CASES[case]
    *earlier, last = (*BEFORE, *events)
    facts = facts_of(last, pruned=earlier) if is_pruned else facts_of(*earlier, last)
    path = LAYOUT.entry(len(BEFORE) + len(events) - 1)
    found = findings(facts)
    assert [(one.invariant, one.path) for one in found] == [(number, path) for number, _ in wanted]
    for finding, (_, text) in zip(found, wanted, strict=True):
        assert text in finding.message


@pytest.mark.parametrize("is_pruned", [False, True])
@pytest.mark.parametrize(
    ("named", "invariant", "text"),
    [
        (STORED, "I7", "a batch of it is in the log twice"),
        (segment({0: 2}, folder="topics/t/fedcba9876543210"), "I9", "it lies outside of topic 't'"),
    ],
)
def test_segment_that_cannot_be_named_here_is_reported(
    named: Segment, invariant: str, text: str, is_pruned: bool
) -> None:
    event = appended(4, segments=(named,))
    facts = facts_of(event, pruned=BEFORE) if is_pruned else facts_of(*BEFORE, event)
    (found,) = findings(facts)
    assert (found.invariant, found.path) == (invariant, named.path)
    assert text in found.message


@pytest.mark.parametrize("is_pruned", [False, True])
def test_ledger_knows_the_rows_and_transactions_of_a_topic(is_pruned: bool) -> None:
    staged = marker(OTHER, segments=(rows({0: 2, 1: 1}),), base_offsets={0: 4, 1: 0})
    end = marker(TxId(9, 4, 1), ABORT)
    facts = facts_of(end, pruned=(*BEFORE, staged)) if is_pruned else facts_of(*BEFORE, staged, end)
    assert [(r.slot, r.partition, r.base_offset, r.tx_id, r.base_sequence) for r in facts.rows] == [
        (1, 0, 0, None, 0),
        (2, 0, 2, DONE, 0),
        (4, 0, 3, OPEN, 1),
        (5, 0, 4, OTHER, -1),
        (5, 1, 0, OTHER, -1),
    ]
    assert (facts.rows[0].path, facts.rows[0].batch) == (STORED.path, STORED.batches[0])
    assert facts.written == {DONE: {0}, OPEN: {0}, OTHER: {0, 1}}
    live = {} if is_pruned else {DONE: COMMIT, OTHER: COMMIT}
    assert facts.decisions() == {**live, end.tx_id: ABORT}
    for tx_id, has_marker in ((DONE, True), (OTHER, True), (OPEN, False), (end.tx_id, True)):
        assert facts.has_marker(tx_id) is has_marker
        assert facts.is_finished(tx_id) is has_marker
    assert (facts.name, facts.topic_id, facts.is_closed) == ("t", OPENED.topic_id, False)


def test_retired_producer_and_closed_topic_are_known() -> None:
    facts = facts_of(pruned=(*BEFORE, marker(OPEN, floor=1), ProducersRetired((7,))))
    assert facts.is_finished(NEXT)
    assert not facts.has_marker(NEXT)
    assert not facts.is_finished(TxId(8, 0, 0))
    assert facts_of(pruned=(*BEFORE, TopicClosed())).is_closed


def test_sequences_of_merged_rows_only_have_to_rise() -> None:
    """Merged batches have none any more, so those between two others may be missing."""
    first, *between, last = (appended(n, pid=5, epoch=0, sequence=n) for n in range(4))
    for kept, found in (((first, last), []), ((first, first), ["I7"]), ((last, first), ["I7"])):
        events = [
            appended(n, pid=5, epoch=0, base_sequences=event.base_sequences)
            for n, event in enumerate(kept)
        ]
        facts = facts_of(pruned=(OPENED, *events))
        assert [one.invariant for one in findings(facts)] == found
    assert between


def test_schema_that_cannot_be_read_is_reported_and_ends_no_audit() -> None:
    walk = Walk(Audit(LAYOUT, TopicState(), apply(TopicState(), OPENED, 0), -1, is_whole=False), [])
    found = topic_facts(MemoryStore(manual_runtime()), walk, "t", OPENED.topic_id).walk.findings
    assert [(one.path, one.invariant) for one in found] == [(LAYOUT.root, "I15")]
    assert "a stored schema cannot be read" in found[0].message
