"""Changed values under valid checksums give an error of txlog, or a log that can be used.

Checksums detect accidents. Users of the store can write anything. A plausible value is accepted; an
implausible one must not lead to another exception, to an endless loop, or to "please report this".
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bad_input.fuzzing import answer, arrow_file, fuzz, journal_of, look, snapshot_of
from tests.bad_input.small_log import copy, everything, expected, objects, opened, paths
from txlog.errors import CorruptData, InternalError, TxlogError
from txlog.journal.entry import seal
from txlog.layout import parse_number

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

HOSTILE: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    1 << 63,
    10**30,
    99_999_999,
    1.5,
    float("inf"),
    "",
    "../../etc/passwd",
    "x" * 5_000,
    "\x1b[31m",
    "0-0-0",
    [],
    [None],
    [[0] * 8] * 3,
    {},
    {"type": "topic_closed"},
]


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value."""
    yield place
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for name, part in items:
        yield from places(part, (*place, name))


def replaced(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    """The value with a different part at that place."""
    if not place:
        return new
    found = value.copy()
    found[place[0]] = replaced(value[place[0]], place[1:], new)
    return found


def forged(draw: st.DrawFn, value: Any) -> Any:
    place = draw(st.sampled_from(list(places(value))))
    return replaced(value, place, draw(st.sampled_from(HOSTILE)))


@st.composite
def forgeries(draw: st.DrawFn) -> tuple[str, dict[str, bytes], list[str]]:
    """A path, its changed content, and the objects removed so that the change is read."""
    kind = draw(st.sampled_from(["entry", "boundary", "cluster file", "snapshot", "chunk"]))
    path = draw(st.sampled_from(paths(kind)))
    folder = f"{journal_of(path)}/"
    if kind == "snapshot":
        rows = snapshot_rows(path)
        number = draw(st.integers(0, len(rows) - 1))
        section, text = rows[number]
        rows[number] = (section, json.dumps(forged(draw, json.loads(text))))
        hint = {f"{folder}hint.json": b'{"snapshot":%d}' % parse_number(path)}
        return path, {path: snapshot_of(*rows), **hint}, []
    if kind == "chunk":
        return path, with_references(path, forged_chunk(draw, objects()[path])), []
    body, records = opened(objects()[path])
    changed = {path: seal(json.dumps(forged(draw, json.loads(body))).encode(), records)}
    gone = without_what_covers(path) if kind == "entry" else []
    return path, changed, gone


def snapshot_rows(path: str) -> list[tuple[str, str]]:
    """Section and row of a snapshot, without the checksum."""
    table = pa.ipc.open_file(objects()[path]).read_all().to_pylist()
    return [(row["section"], row["row"]) for row in table[:-1]]


def without_what_covers(path: str) -> list[str]:
    """The later entries, and snapshots from which the journal would be opened instead."""
    folder = f"{journal_of(path)}/"
    gone = [p for p in objects() if p.startswith(f"{folder}entries/") and p > path]
    if any(p.startswith(f"{folder}boundaries/") for p in objects()):
        return gone  # Objects that the boundary names must exist.
    return gone + [p for p in objects() if p.startswith((f"{folder}snapshots/", f"{folder}hint"))]


def forged_chunk(draw: st.DrawFn, data: bytes) -> bytes:
    """Give one cell another value of its column's type."""
    table = pa.ipc.open_file(data).read_all()
    number = draw(st.integers(0, table.num_columns - 1))
    column = table.column(number)
    fitting = [value for value in HOSTILE if can_be(value, column.type)]
    cells = column.to_pylist()
    cells[draw(st.integers(0, len(cells) - 1))] = draw(st.sampled_from(fitting))
    fields = [column.combine_chunks() for column in table.columns]
    fields[number] = pa.array(cells, column.type)
    (batch,) = pa.Table.from_arrays(fields, schema=table.schema).to_batches()
    return arrow_file(batch)


def can_be(value: Any, kind: pa.DataType) -> bool:
    try:
        return value is not None and pa.array([value], kind).to_pylist() == [value]
    except (pa.ArrowException, OverflowError, TypeError):
        return False


def with_references(path: str, data: bytes) -> dict[str, bytes]:
    """A chunk, and every snapshot with the chunk's new length and checksum."""
    first, last = (int(part) for part in path.rsplit("/", 1)[1].split(".")[0].split("-"))
    new = {"length": len(data), "crc32": zlib.crc32(data)}
    changed = {path: data}
    for other in paths("snapshot"):
        if journal_of(other) == journal_of(path):
            rows = [
                (section, json.dumps(referring(json.loads(text), first, last, new)))
                for section, text in snapshot_rows(other)
            ]
            changed[other] = snapshot_of(*rows)
    return changed


def referring(value: Any, first: int, last: int, new: dict[str, int]) -> Any:
    """The value with its reference to that chunk replaced."""
    if isinstance(value, dict):
        found = {name: referring(part, first, last, new) for name, part in value.items()}
        is_it = (found.get("first_slot"), found.get("last_slot")) == (first, last)
        return found | new if is_it and "crc32" in found else found
    return (
        [referring(part, first, last, new) for part in value] if isinstance(value, list) else value
    )


def test_forged_chunk_with_matching_references_is_read() -> None:
    """A control for the forgeries below: the log accepts a chunk that its references match."""
    for path in paths("chunk"):
        table = pa.ipc.open_file(objects()[path]).read_all()
        times = pa.array([7] * table.num_rows, pa.int64())
        number = table.schema.get_field_index("timestamp_min_ms")
        (batch,) = table.set_column(number, table.field(number), times).to_batches()
        changed = with_references(path, arrow_file(batch))
        assert changed[path] != objects()[path]
        assert everything(copy(changed)) == expected()


def test_I15_audit_names_a_snapshot_with_unreadable_outcomes() -> None:
    """Outcomes are decoded on request only, not together with the snapshot."""
    path = next(path for path in paths("snapshot") if path.startswith("transactions/"))
    rows = [
        (section, json.dumps("{") if section == "outcomes" else text)
        for section, text in snapshot_rows(path)
    ]
    (finding,) = look(copy({path: snapshot_of(*rows)})).findings
    assert finding.path == path
    assert "outcomes that cannot be read" in finding.sentence


def test_I15_audit_reports_a_snapshot_that_refers_to_a_missing_boundary() -> None:
    """A reader continues at the boundary that a snapshot names."""
    for path in paths("snapshot"):
        rows = [
            (section, json.dumps(json.loads(text) | {"boundary": 7}) if at == 0 else text)
            for at, (section, text) in enumerate(snapshot_rows(path))
        ]
        findings = look(copy({path: snapshot_of(*rows)})).findings
        assert [f.path for f in findings if "boundaries/00000000000000000007.json" in f.sentence]


@pytest.mark.parametrize("end", [5, 90])
def test_I2_audit_reports_a_snapshot_with_a_wrong_log_end_offset(end: int) -> None:
    """The snapshot cannot be compared with anything: the entries below it are pruned."""
    path = next(path for path in paths("snapshot") if path.startswith("topics/u/"))
    rows = snapshot_rows(path)
    place, text = next(
        (at, text) for at, (section, text) in enumerate(rows) if "partition" in section
    )
    rows[place] = ("partition", json.dumps(json.loads(text) | {"log_end_offset": end}))
    (finding,) = look(copy({path: snapshot_of(*rows)})).findings
    assert finding.invariant == "I2"
    assert finding.sentence.endswith(f"partition 0 ends at 7, not {end}")


@given(forgeries())
@fuzz(200)
def test_I15_forged_value_raises_a_txlog_error_or_leaves_a_usable_log(
    forgery: tuple[str, dict[str, bytes], list[str]],
) -> None:
    _, changed, gone = forgery
    found, report = (answer(use, copy(changed, gone)) for use in (everything, look))
    assert not isinstance(report, InternalError), report
    assert not isinstance(found, InternalError), found
    if isinstance(found, CorruptData) and "never registered" not in found.message:
        # That finding takes two journals: the audit reads each by itself.
        is_seen = isinstance(report, TxlogError) or bool(report.findings)
        assert is_seen, "the audit is to find it, too"
