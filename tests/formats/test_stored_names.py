"""The golden log holds every event and field that exists, and docs/dev/format.md names them."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from tests.formats.stored_kinds import (
    EVENTS,
    SECTIONS,
    Said,
    all_fields,
    all_kinds,
    said,
    shown,
    tables,
)
from tests.formats.test_golden import golden_objects
from txlog.catalog.cluster_file import ClusterFile
from txlog.coordinator.outcomes import OutcomeColumns
from txlog.journal.boundaries.boundary import Boundary
from txlog.journal.snapshot import SnapshotHead, decode_snapshot
from txlog.stored import stored_form
from txlog.testing.counting_store import object_kind
from txlog.topic.batch_index import ChunkRef, IndexedBatch

HOW = "run python -m tests.formats.v3.make_golden, once it makes one"


def body(data: bytes) -> Any:
    """The body of a small object of a journal."""
    head, rest = data.split(b"\n", 1)
    return json.loads(rest[json.loads(head).get("records", 0) :])


def said_by_entry(folder: str, data: bytes) -> Iterator[Said]:
    """The fields of an entry's events."""
    kinds = {stored_form(kind).name: kind for kind in EVENTS[folder]}
    for event in body(data)["events"]:
        yield event["type"], ""
        yield from said(kinds[event["type"]], event)


def said_by_snapshot(folder: str, path: str, data: bytes) -> Iterator[Said]:
    """The fields of a snapshot's head and rows, and for outcomes also those of their text."""
    rows = pa.ipc.open_file(data).read_all().to_pylist()
    yield from said(SnapshotHead, json.loads(rows[0]["row"]))
    _, sections = decode_snapshot(data, path)
    for name, values in sections.items():
        for value in values:
            yield from said(SECTIONS[folder][name], value)
            if name == "outcomes":
                yield from said(OutcomeColumns, json.loads(value))


def said_by_chunk(data: bytes) -> Iterator[Said]:
    """The fields of a chunk's batches, or of its references."""
    for row in pa.ipc.open_file(data).read_all().to_pylist():
        if "ref" in row:
            yield from said(ChunkRef, json.loads(row["ref"]))
        else:
            yield from said(IndexedBatch, list(row.values()))


@cache
def said_by_golden_log() -> frozenset[Said]:
    """Each event, with an empty field, and each field that is not at its default."""
    found: set[Said] = set()
    for path, data in golden_objects().items():
        folder = path.split("/")[0]
        match object_kind(path):
            case "entry":
                found.update(said_by_entry(folder, data))
            case "snapshot":
                found.update(said_by_snapshot(folder, path, data))
            case "chunk":
                found.update(said_by_chunk(data))
            case "boundary":
                found.update(said(Boundary, body(data)))
            case "cluster-file":
                found.update(said(ClusterFile, body(data)))
    return frozenset(found)


def test_golden_log_contains_every_event() -> None:
    every = {stored_form(kind).name for kinds in EVENTS.values() for kind in kinds}
    assert {name for name, field in said_by_golden_log() if not field} == every, HOW


def test_golden_log_contains_every_field_with_a_non_default_value() -> None:
    found = {(name, field) for name, field in said_by_golden_log() if field}
    assert sorted(all_fields() - found) == [], HOW
    assert found == all_fields()


def test_event_names_are_unique_across_kinds_of_journals() -> None:
    names = [stored_form(kind).name for kinds in EVENTS.values() for kind in kinds]
    assert len(set(names)) == len(names)
    assert set(names) <= set(all_kinds())


@pytest.mark.parametrize("name", tables())
def test_format_page_tables_match_the_code(name: str) -> None:
    assert shown().get(name) == tables()[name], "run python -m tests.formats.stored_kinds"


def test_format_page_has_no_other_tables_of_stored_names() -> None:
    assert shown().keys() == tables().keys()
