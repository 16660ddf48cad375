"""The final state as a reader finds it: the last events of a history.

It checks nothing: see `history_checks.py`. It uses the archive only for records that the log no
longer has, and for the time at which objects were stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.simulator.environment.archive import incarnations, uploaded
from tests.simulator.environment.process import SimulatedProcess
from tests.simulator.topics import as_history, config_of, is_mortal, text_of
from txlog.client.consumer.consumer import Consumer
from txlog.client.half_messages.dead_letter import DEAD_LETTER_TOPIC, pending_letters
from txlog.errors import UnknownTopic
from txlog.model import TransactionOutcome, TxId

BATCH = "batch "
"""First part of the name of an attempt to commit a micro-batch. Its transaction is unknown: it
counts as committed if any of its records is visible, and then all of them must be."""

LETTERS_MAX = 100_000

_UNKNOWN = TransactionOutcome.UNKNOWN_ID


def is_deleted_from(topic: str) -> bool:
    """Whether the topic or its records may be deleted."""
    return bool(config_of(topic)) or is_mortal(topic)


def note_final_state(process: SimulatedProcess, topics: Mapping[str, int]) -> None:
    """Note all records, and when they were stored."""
    faults = sorted(name for name, count in process.network.world_state.counts.items() if count)
    process.note("conditions", faults=faults)
    for isolation in ("read_uncommitted", "read_committed"):
        for topic in topics:
            records = list(_whole(process, topic, isolation))
            process.note("final", topic=topic, isolation=isolation, records=records)
    archive = process.network.world_state.service.archive
    placed = {text: archive[path].step for text, path in uploaded(archive, topics).items()}
    for one in incarnations(archive, topics):
        if any(map(is_deleted_from, topics)):
            process.note("stored", **one.facts(archive))
        # Before they were moved into a segment.
        placed |= {text: archive[path].step for text, path in one.in_entries.items()}
    process.note("placed", steps=placed)
    _note_outcomes(process)
    _note_letters(process)
    _note_positions(process)


def _whole(process: SimulatedProcess, topic: str, isolation: str) -> Iterator[list[object]]:
    consumer = Consumer(
        topic,
        root=process.connection,
        isolation_level=isolation,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    while polled := consumer.poll(max_records=100_000):
        yield from as_history(polled)


def _note_outcomes(process: SimulatedProcess) -> None:
    history = process.network.world_state.history
    shown = {
        record[3]
        for event in history.of("final")
        if event["isolation"] == "read_committed"
        for record in event["records"]
    }
    for event in list(history.of("committing")):
        if event["tx"].startswith(BATCH):
            is_shown = bool(shown & set(event["values"]))
            outcome = "COMMITTED" if is_shown else "ABORTED"
            found = outcome if event["values"] else "UNKNOWN"
            process.note("outcome", tx=event["tx"], outcome=found)
    named = {e["tx"] for e in history.events if e.get("tx") is not None}
    for tx in sorted(name for name in named if not name.startswith(BATCH)):
        process.note("outcome", tx=tx, outcome=str(outcome_of(process, tx)))


def outcome_of(process: SimulatedProcess, tx: str) -> TransactionOutcome:
    """The outcome of a transaction according to its coordinator. A coordinator calls one OPEN of
    which nothing is written; it blocks no reader."""
    group, is_half, tag = tx.partition("/")
    if is_half:
        return process.connection.coordinator_of(group).outcome_of_tag(tag)
    tx_id = TxId.parse(tx)
    found = process.connection.outcome(tx_id)
    return found if found is not TransactionOutcome.OPEN or _is_begun(process, tx_id) else _UNKNOWN


def _is_begun(process: SimulatedProcess, tx_id: TxId) -> bool:
    opened = (c.state.open_transactions() for c in process.connection.coordinators())
    return any(known.tx_id == tx_id for found in opened for _, known in found)


def _note_letters(process: SimulatedProcess) -> None:
    """Note the dead letters. Without half messages there are none."""
    try:
        found = pending_letters(process.connection, DEAD_LETTER_TOPIC, LETTERS_MAX)
    except UnknownTopic:
        found = []
    letters = [
        [f"{one.producer_group}/{one.transaction_id}", one.message.topic, text_of(one.message)]
        for one in found
    ]
    process.note("letters", letters=letters)


def _note_positions(process: SimulatedProcess) -> None:
    for name, group in process.connection.offsets.groups().items():
        for where, at in sorted(group.committed.items()):
            process.note(
                "position",
                group=name,
                topic=where[0],
                topic_id=at.topic_id,
                partition=where[1],
                offset=at.offset,
            )
