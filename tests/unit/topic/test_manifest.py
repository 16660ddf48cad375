"""Manifests as values: what a decision, a marker and the index say about them (R66)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from txlog.errors import CorruptData
from txlog.journal.arrow_ipc import encode_file
from txlog.layout import LogLayout, is_manifest, is_segment, segment_id_of
from txlog.topic import manifest as manifest_module
from txlog.topic.batch_index import IndexedBatch, encode_batches
from txlog.topic.manifest import Manifest, decoded, listed_segments, manifest_of
from txlog.topic.records.batch import Segment, SegmentBatch

LAYOUT = LogLayout("").topic("t", "00000000abcdef01")
OTHER = LogLayout("").topic("u", "00000001abcdef01")
IDS = ["0197b7a30400" + digit * 20 for digit in "abc"]


def segment(number: int, *partitions: int, schema_id: int = 0) -> Segment:
    """A segment with a batch of each of these partitions; batch k has k + 1 records."""
    batches = [
        SegmentBatch(
            partition, k + 1, 8 + 100 * k, 100, 1_000 * number + k, 10 * k, 10 * k + number
        )
        for k, partition in enumerate(partitions)
    ]
    return Segment(LAYOUT.segment(IDS[number]), schema_id, tuple(batches))


SEGMENTS = [segment(0, 2, 0), segment(1, 0, 1), segment(2, 1, 1, schema_id=1)]


def part_row(part: SegmentBatch, base_offset: int, path: str) -> IndexedBatch:
    """The row that a topic's index has for a part."""
    return IndexedBatch(
        slot=7,
        partition=part.partition,
        base_offset=base_offset,
        row_count=part.row_count,
        segment=path,
        position=part.position,
        length=part.length,
        crc32=part.crc32,
        schema_id=1,
        timestamp_min_ms=part.timestamp_min_ms,
        timestamp_max_ms=part.timestamp_max_ms,
        pid=3,
        epoch=0,
        number=5,
        base_sequence=-1,
        first_slot=7,
        decided_slot=7,
        topic_ids=("x", "y"),
    )


def test_decision_names_all_bytes_and_the_number_of_records() -> None:
    manifest, data = manifest_of(LAYOUT, SEGMENTS)
    whole = manifest.whole
    assert (whole.path, whole.schema_id) == (manifest.path, 1)
    assert [(b.row_count, b.length, b.crc32) for b in whole.batches] == [
        (9, len(data), manifest.crc32)
    ]
    assert (whole.batches[0].timestamp_min_ms, whole.batches[0].timestamp_max_ms) == (0, 12)
    assert is_manifest(manifest.path)
    assert not is_segment(manifest.path)


def test_marker_names_a_part_for_each_partition() -> None:
    manifest, _ = manifest_of(LAYOUT, SEGMENTS)
    parts = manifest.parts.batches
    found = [(p.partition, p.row_count, p.position, p.length) for p in parts]
    assert found == [(0, 3, 0, 200), (1, 5, 2, 300), (2, 1, 5, 100)]
    assert {part.crc32 for part in parts} == {manifest.crc32}


def test_large_part_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_module, "PART_BYTES_MAX", 250)
    manifest, _ = manifest_of(LAYOUT, SEGMENTS)
    found = [(p.partition, p.row_count, p.position) for p in manifest.parts.batches]
    assert found == [(0, 3, 0), (1, 3, 2), (1, 2, 4), (2, 1, 5)]


def test_records_beyond_one_batch_are_counted_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_module, "ROWS_MAX", 4)
    manifest, _ = manifest_of(LAYOUT, SEGMENTS)
    assert [(b.row_count, b.position) for b in manifest.whole.batches] == [(4, 0), (4, 1), (1, 2)]
    assert [p.row_count for p in manifest.parts.batches] == [3, 3, 2, 1]
    assert manifest.parts.agrees_with(manifest.whole)


def test_unfolded_part_has_its_batches_in_order_of_sending_with_its_owner() -> None:
    manifest, _ = manifest_of(LAYOUT, SEGMENTS)
    part = part_row(manifest.parts.batches[1], 40, manifest.path)
    assert part.is_folded
    rows = list(manifest.unfolded(part))
    assert [(r.base_offset, r.row_count, r.segment) for r in rows] == [
        (40, 2, LAYOUT.segment(IDS[1])),
        (42, 1, LAYOUT.segment(IDS[2])),
        (43, 2, LAYOUT.segment(IDS[2])),
    ]
    assert [row.schema_id for row in rows] == [0, 1, 1]
    assert {(r.slot, r.tx_id, r.decided_slot, r.topic_ids) for r in rows} == {
        (7, part.tx_id, 7, ("x", "y"))
    }
    assert [r.crc32 for r in rows] == [1_001, 2_000, 2_001]
    assert not any(row.is_folded for row in rows)


def test_part_with_one_time_gives_it_to_its_batches() -> None:
    """As with LogAppendTime, where the index has the time of the append."""
    manifest, _ = manifest_of(LAYOUT, SEGMENTS)
    part = part_row(manifest.parts.batches[1], 0, manifest.path)
    part = replace(part, timestamp_min_ms=99, timestamp_max_ms=99)
    times = {(r.timestamp_min_ms, r.timestamp_max_ms) for r in manifest.unfolded(part)}
    assert times == {(99, 99)}


def test_read_manifest_is_the_written_one() -> None:
    manifest, data = manifest_of(LAYOUT, SEGMENTS)
    assert decoded(data, manifest.path, manifest.crc32, LAYOUT) == manifest
    assert sorted(listed_segments(manifest.rows), key=lambda one: one.path) == SEGMENTS


def test_R35_equal_batches_have_one_name_and_others_another() -> None:
    first, _ = manifest_of(LAYOUT, SEGMENTS)
    again, _ = manifest_of(LAYOUT, SEGMENTS)
    other, _ = manifest_of(LAYOUT, SEGMENTS[:2])
    assert first.path == again.path != other.path
    assert first.whole.content == again.whole.content != other.whole.content


def test_R66_manifest_falls_below_the_horizon_with_its_oldest_segment() -> None:
    manifest, _ = manifest_of(LAYOUT, SEGMENTS)
    time = IDS[0][:12]
    assert segment_id_of(manifest.path)[:12] == time
    for horizon in (f"{int(time, 16) + change:012x}" + "0" * 20 for change in (-1, 0, 1)):
        assert (segment_id_of(manifest.path) < horizon) == (IDS[0] < horizon)


def test_topic_named_as_the_folder_of_manifests_has_plain_segments() -> None:
    layout = LogLayout("").topic("manifests", "00000000abcdef01")
    row = part_row(SEGMENTS[0].batches[0], 0, layout.segment(IDS[0]))
    assert not row.is_folded
    assert is_segment(row.segment)


Forgery = Callable[[tuple[IndexedBatch, ...]], list[IndexedBatch]]

FORGED: dict[str, tuple[Forgery, str]] = {
    "another topic's segment": (
        lambda rows: [replace(rows[0], segment=OTHER.segment(IDS[0])), *rows[1:]],
        "is not a segment in",
    ),
    "another manifest": (
        lambda rows: [replace(rows[0], segment=LAYOUT.manifest(IDS[0])), *rows[1:]],
        "is not a segment in",
    ),
    "a batch twice": (
        lambda rows: [*rows, replace(rows[-1], base_offset=rows[-1].next_offset)],
        "names a batch twice",
    ),
    "a gap": (
        lambda rows: [rows[0], replace(rows[1], base_offset=9), *rows[2:]],
        "not consecutive",
    ),
    "a first offset": (
        lambda rows: [*rows[:-1], replace(rows[-1], base_offset=1)],
        "not consecutive",
    ),
    "a batch without records": (
        lambda rows: [replace(rows[0], stored_rows=0), *rows[1:]],
        "has no records",
    ),
    "older segments than its name says": (
        lambda rows: [replace(rows[0], segment=LAYOUT.segment("0" * 32)), *rows[1:]],
        "another time",
    ),
    "a slot": (lambda rows: [replace(rows[0], slot=4), *rows[1:]], "other slots"),
}


@pytest.mark.parametrize("forgery", FORGED)
def test_I15_R66_forged_manifest_is_an_error_that_names_it(forgery: str) -> None:
    manifest, _ = manifest_of(LAYOUT, SEGMENTS)
    change, text = FORGED[forgery]
    data = encode_batches(change(manifest.rows))
    with pytest.raises(CorruptData, match=text) as raised:
        decoded(data, manifest.path, manifest_module.crc32_of(data), LAYOUT)
    assert raised.value.facts["path"] == manifest.path


def test_I15_manifest_without_batches_is_an_error_that_names_it() -> None:
    manifest, data = manifest_of(LAYOUT, SEGMENTS)
    (rows,) = pa.ipc.open_file(pa.py_buffer(data)).read_all().to_batches()
    empty = encode_file(rows.slice(0, 0))
    with pytest.raises(CorruptData, match="has no batches") as raised:
        decoded(empty, manifest.path, manifest_module.crc32_of(empty), LAYOUT)
    assert raised.value.facts["path"] == manifest.path


def test_I15_changed_bytes_are_an_error_that_names_the_manifest() -> None:
    manifest, data = manifest_of(LAYOUT, SEGMENTS)
    for wrong in (data[:-1], b"", data[:200] + b"!" + data[201:]):
        with pytest.raises(CorruptData, match="is damaged") as raised:
            decoded(wrong, manifest.path, manifest.crc32, LAYOUT)
        assert raised.value.facts["path"] == manifest.path


@pytest.mark.parametrize(
    ("field", "value"), [("row_count", 99), ("row_count", 1), ("position", 9), ("partition", 4)]
)
def test_I15_part_that_a_manifest_does_not_have_is_an_error(field: str, value: int) -> None:
    manifest, _ = manifest_of(LAYOUT, SEGMENTS)
    part = replace(part_row(manifest.parts.batches[0], 0, manifest.path), **{field: value})
    with pytest.raises(CorruptData, match="does not have the") as raised:
        list(manifest.unfolded(part))
    assert raised.value.facts["path"] == manifest.path


def test_whole_agrees_with_parts_of_the_same_manifest_only() -> None:
    manifest, _ = manifest_of(LAYOUT, SEGMENTS)
    other, _ = manifest_of(LAYOUT, SEGMENTS[:2])
    less: Manifest = replace(manifest, rows=manifest.rows[1:])
    assert manifest.parts.agrees_with(manifest.whole)
    assert not manifest.parts.agrees_with(other.whole)
    assert not less.parts.agrees_with(manifest.whole)
