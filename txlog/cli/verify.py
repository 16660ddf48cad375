"""`txlog verify`: read every object that the log refers to, and name those that are damaged.

It guards I15 for people: journals are walked entry by entry (checksums, links, gaps), and every
stored batch is decoded. It repairs nothing. Listings are used here, as this decides nothing (I14).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

import typer

from txlog.cli.exit_codes import FAILED
from txlog.cli.output import Grid, Section
from txlog.cli.session import Session, topic_names, with_session
from txlog.clients.segment_references import unreferenced_segments
from txlog.errors import CorruptData
from txlog.journal.boundary import NO_BOUNDARY, read_newest
from txlog.journal.entry import GENESIS_CRC32, decode_entry
from txlog.journal.snapshot import decode_snapshot
from txlog.layout import (
    JournalLayout,
    cluster_journal,
    offsets_journal,
    parse_number,
    transactions_journal,
)
from txlog.log.cluster import Cluster
from txlog.log.index import IndexedBatch
from txlog.log.reader import RowSource, read_rows, row_source
from txlog.log.topic_log import TopicLog
from txlog.storage.store import Store, StoredObject

EXAMPLES = "Example: txlog --root ./data verify && echo whole"


@dataclass(slots=True)
class Findings:
    """What was read of one journal, and of the records that it refers to."""

    name: str
    entries: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    damage: list[str] = field(default_factory=list)


@with_session
def verify(
    session: Session,
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC]...",
            help="Only these; without any the whole log.",
            autocompletion=topic_names,
        ),
    ] = None,
) -> None:
    """Read the log and name every damaged or missing object; exit code 1 if there is one.

    It reads all records, so it takes as long as reading them. It repairs nothing. Segments that
    nothing refers to are counted: they are left by failed tasks, aborted writes and deleted topics,
    or are being written just now.
    """
    connection = session.admin().connection
    cluster = connection.cluster
    names = list(topics or sorted(cluster.state().topics))
    logs = [cluster.topic(name) for name in names]
    found = [] if topics else [_walked(cluster.store, layout) for layout in _journals(cluster)]
    found += [_topic(log) for log in logs]
    litter = [] if topics or _is_damaged(found) else list(unreferenced_segments(connection))
    session.show(_document(found, litter), _sections(found, litter))
    if _is_damaged(found):
        raise typer.Exit(FAILED)


def _is_damaged(found: list[Findings]) -> bool:
    return any(findings.damage for findings in found)


def _journals(cluster: Cluster) -> list[JournalLayout]:
    """All but those of the topics."""
    settings = cluster.file.settings
    return [
        cluster_journal(),
        *map(transactions_journal, range(settings.transaction_state_log_num_partitions)),
        *map(offsets_journal, range(settings.offsets_topic_num_partitions)),
    ]


def _walked(store: Store, layout: JournalLayout) -> Findings:
    """Every live entry and snapshot of a journal."""
    found = Findings(layout.root)
    try:
        lowest = read_newest(store, layout, NO_BOUNDARY).lowest_slot
    except CorruptData as error:
        found.damage.append(error.message)
        lowest = 0
    _walk_entries(store, layout, lowest, found)
    for stored in store.list_after(layout.snapshots):
        data = store.get(stored.path)
        try:
            if data is not None:
                decode_snapshot(data, stored.path)
        except CorruptData as error:
            found.damage.append(error.message)
    return found


def _walk_entries(store: Store, layout: JournalLayout, lowest: int, found: Findings) -> None:
    """Entries from the boundary on follow each other, and each names its predecessor's checksum."""
    expected, link = lowest, GENESIS_CRC32 if lowest == 0 else None
    for stored in store.list_after(layout.entries):
        slot, data = parse_number(stored.path), store.get(stored.path)
        if slot is None or slot < lowest or data is None:
            continue
        # A listing may be stale, so the gap is looked at before it is believed.
        if slot != expected and store.get(layout.entry(expected)) is None:
            found.damage.append(f"{layout.entry(expected)} is missing, and later entries exist.")
        link = link if slot == expected else None
        expected = slot + 1
        found.entries += 1
        found.bytes += len(data)
        link = _checked_link(found, stored.path, slot, data, link)


def _checked_link(
    found: Findings, path: str, slot: int, data: bytes, link: int | None
) -> int | None:
    """The checksum that the next entry should name; None if this one tells nothing."""
    try:
        entry, crc32 = decode_entry(data, path, slot)
    except CorruptData as error:
        found.damage.append(error.message)
        return None
    if link is not None and entry.prior_crc32 != link:
        found.damage.append(f"{path} does not follow the entry before it: one was replaced.")
    return crc32


def _topic(log: TopicLog) -> Findings:
    found = _walked(log.store, log.layout)
    found.name = log.name
    try:
        state = log.catch_up()
        source = row_source(log, state)
        for partition, bounds in enumerate(state.partitions):
            for row in log.batches(state, partition, bounds.log_start, bounds.next_offset):
                if row.record_count:
                    _read(source, row, found)
    except CorruptData as error:
        found.damage.append(error.message)
    found.damage[:] = dict.fromkeys(found.damage)
    return found


def _read(source: RowSource, row: IndexedBatch, found: Findings) -> None:
    found.batches += 1
    found.bytes += row.length
    try:
        found.records += sum(fetched.batch.num_rows for fetched in read_rows(source, [row]))
    except CorruptData as error:
        found.damage.append(error.message)


def _rows(found: list[Findings]) -> list[tuple[str, int, int, int, int, int]]:
    return [(f.name, f.entries, f.batches, f.records, f.bytes, len(f.damage)) for f in found]


def _document(found: list[Findings], litter: list[StoredObject]) -> dict[str, object]:
    names = ("journal", "entries", "batches", "records", "bytes", "damaged")
    return {
        "journals": [dict(zip(names, row, strict=True)) for row in _rows(found)],
        "damage": [line for findings in found for line in findings.damage],
        "unreferenced": {
            "segments": len(litter),
            "bytes": sum(stored.size_bytes for stored in litter),
        },
    }


def _sections(found: list[Findings], litter: list[StoredObject]) -> Iterator[Section]:
    headers = ("JOURNAL", "ENTRIES", "BATCHES", "RECORDS", "BYTES", "DAMAGED")
    yield Grid(headers, _rows(found))
    damage = [(line,) for findings in found for line in findings.damage]
    if damage:
        yield Grid(("DAMAGE",), damage)
    if litter:
        size = sum(stored.size_bytes for stored in litter)
        yield Grid(("UNREFERENCED SEGMENTS", "BYTES"), [(len(litter), size)])
