"""A bucket that another user can write to: harmful objects with valid checksums.

Each is refused by name, or costs no more than its size justifies: neither a reader nor an audit
hangs, uses up all memory, or ends with a plain Python error (I15, I16).
"""

from __future__ import annotations

import json
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.bad_input.fuzzing import answer, arrow_file, journal_of, look, snapshot_of
from tests.bad_input.small_log import copy, everything, objects, opened, paths
from tests.bad_input.test_forgeries import snapshot_rows, with_references
from tests.logs.memory_log import MemoryLog
from txlog.coordinator.coordinator import coordinator_number_of as coordinator_of
from txlog.errors import CorruptData, IncompatibleSchema, InternalError, TxlogError
from txlog.journal.arrow_ipc import NotAnArrowFile, decode_file
from txlog.journal.entry import seal
from txlog.journal.snapshot import decode_snapshot
from txlog.layout import parse_number, segment_id_at
from txlog.model import TopicPartition
from txlog.topic.batch_index import (
    ChunkKey,
    ChunkRef,
    PartitionSpan,
    chunk_ref,
    decode_refs,
    encode_refs,
)
from txlog.topic.read.reader import DECODED_FETCH_BYTES_MAX
from txlog.topic.records.schema import decode_schema, encode_schema, validate_schema

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SECONDS_MAX = 20
"""The limit of a use or an audit of the small log on a busy machine; a sound log takes less than
one."""
MEMORY_MAX = 300 << 20


@contextmanager
def bounded() -> Iterator[None]:
    """Limits the time and the memory of a block."""
    pool = pa.default_memory_pool()
    before, begun = pool.bytes_allocated(), time.monotonic()
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.monotonic() - begun < SECONDS_MAX
    assert peak < MEMORY_MAX
    assert pool.bytes_allocated() - before < MEMORY_MAX


def seen(log: MemoryLog, use: Callable[[MemoryLog], object] = everything) -> object:
    """What a user reads from it, within bounds; never an error that asks to be reported."""
    with bounded():
        found = answer(use, log)
    assert not isinstance(found, InternalError), found
    return found


def damage(log: MemoryLog) -> list[str]:
    """The findings of an audit, within bounds."""
    with bounded():
        report = answer(look, log)
    assert not isinstance(report, InternalError), report
    if isinstance(report, TxlogError):
        return [report.message]
    return [finding.sentence for finding in report.findings]  # type: ignore[attr-defined]


def newest(kind: str, folder: str) -> str:
    return [path for path in paths(kind) if path.startswith(folder)][-1]


def snapshot_with(path: str, change: Callable[[str, Any], Any]) -> dict[str, bytes]:
    """The snapshot with changed rows, and a hint that points to it."""
    rows = [
        (section, json.dumps(change(section, json.loads(text))))
        for section, text in snapshot_rows(path)
    ]
    hint = {f"{journal_of(path)}/hint.json": b'{"snapshot":%d}' % parse_number(path)}
    return {path: snapshot_of(*rows), **hint}


def next_entry(folder: str, *events: dict[str, Any]) -> dict[str, bytes]:
    """An entry that a stranger writes after the last one of a journal."""
    path = newest("entry", folder)
    body, records = opened(objects()[path])
    slot = (parse_number(path) or 0) + 1
    changes = {"slot": slot, "prior_crc32": zlib.crc32(records + body), "events": events}
    entry = {**json.loads(body), "token": "stranger", **changes}
    return {f"{journal_of(path)}/entries/{slot:020d}.json": seal(json.dumps(entry).encode())}


# Trees and footers.


def test_I16_a_snapshot_that_claims_a_billion_levels_is_refused() -> None:
    path = newest("snapshot", "topics/u/")

    def change(section: str, row: Any) -> Any:
        return {**row, "level_count": 10**9} if section == "topic" else row

    changed = snapshot_with(path, change)
    assert len(changed[path]) < 10_000
    assert any(path in text for text in damage(copy(changed)))
    seen(copy(changed))


SPANS = (PartitionSpan(0, 0, 9, 0, 10),)


def node(*refs: ChunkRef) -> tuple[bytes, ChunkRef]:
    """A node of the slots 0 to 9, with a valid reference to it."""
    data = encode_refs(refs)
    return data, chunk_ref(data, ChunkKey(0, 9), 1, SPANS)


def leaf(first: int, last: int, level: int = 0) -> ChunkRef:
    return ChunkRef(first, last, level, 100, 1, SPANS)


@pytest.mark.parametrize(
    "refs",
    [
        (leaf(0, 4), leaf(0, 4)),
        (leaf(5, 9), leaf(0, 4)),
        (leaf(0, 5), leaf(5, 9)),
        (leaf(0, 4), leaf(5, 10)),
        (leaf(4, 0),),
        (leaf(0, 9, level=1),),
        (leaf(0, 9, level=2),),
        (replace(leaf(0, 9), spans=()),),
        (),
    ],
    ids=[
        "twice",
        "backwards",
        "overlapping",
        "beyond",
        "negative",
        "same-level",
        "up",
        "empty",
        "none",
    ],
)
def test_I16_index_node_with_invalid_child_references_is_refused(
    refs: tuple[ChunkRef, ...],
) -> None:
    data, ref = node(*refs)
    with pytest.raises(CorruptData, match="some/node"):
        decode_refs(data, ref, "some/node")


@pytest.mark.parametrize("copies", [2, 2_000])
def test_I16_snapshot_file_with_more_than_one_batch_is_refused(copies: int) -> None:
    """Arrow's own reader would decode every batch that the footer names."""
    batch = pa.record_batch({"section": ["journal"] * 300, "row": ["x" * 100] * 300})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        for _ in range(copies):
            writer.write_batch(batch.slice(0, 1))
    data = bytes(sink.getvalue())
    with pytest.raises(NotAnArrowFile, match="more than one batch"):
        decode_file(data, batch.schema)
    with pytest.raises(CorruptData, match="some/object"):
        decode_snapshot(data, "some/object")


def compressed(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def test_I16_a_compressed_snapshot_or_chunk_is_refused_before_it_is_decoded() -> None:
    data = compressed(pa.record_batch({"section": ["journal"], "row": ["x" * (200 << 20)]}))
    assert len(data) < 100_000
    with bounded(), pytest.raises(CorruptData, match="some/object.*one plain record batch"):
        decode_snapshot(data, "some/object")
    for kind, folder in (("snapshot", "topics/u/"), ("chunk", "topics/v/")):
        path = newest(kind, folder)
        changed = {path: data} if kind == "snapshot" else with_references(path, data)
        assert any(path in text for text in damage(copy(changed)))
        seen(copy(changed))


# Numbers, times, names.

HUGE = 10**30
FAR_MS = 253_402_300_800_000
"""The first millisecond of the year 10000."""


COORDINATORS = journal_of(newest("entry", "transactions/")).rpartition("/")[0]
OF_A = f"{COORDINATORS}/{coordinator_of('a', 8)}"
"""The coordinator of producer `a`, which every use of the log opens."""
TOPIC_ID = "0123456789abcdef"


def participant(path: str) -> dict[str, Any]:
    batch = [0, 1, 8, 100, 0, 0, 0]
    segment = {"path": path, "schema_id": 0, "batches": [batch]}
    return {"topic_id": TOPIC_ID, "topic": "w", "partitions": [], "segments": [segment]}


HOSTILE_EVENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "producer ids": ("cluster/", {"type": "producer_ids_allocated", "next_producer_id": HUGE}),
    "negative producer ids": (
        "cluster/",
        {"type": "producer_ids_allocated", "next_producer_id": -1},
    ),
    "producer ids that were given out": (
        "cluster/",
        {"type": "producer_ids_allocated", "next_producer_id": 1},
    ),
    "the deletion of another incarnation": (
        "cluster/",
        {"type": "topic_deleted", "name": "u", "topic_id": "0" * 16},
    ),
    "a far horizon": (
        OF_A,
        {"type": "staging_horizon_advanced", "segment_id": segment_id_at(FAR_MS)},
    ),
    "a horizon of no digits": (
        "topics/u/",
        {"type": "horizon_advanced", "segment_id": "zzzzzzzzzzzzzzzz"},
    ),
    "the year 100000": (
        OF_A,
        {
            "type": "producer_initialised",
            "transactional_id": "a",
            "producer_id": 0,
            "producer_epoch": 9,
            "instance": "i",
            "timeout_ms": 1,
            "at_ms": 3_093_527_980_800_000,
        },
    ),
    "an epoch that no producer has": (
        OF_A,
        {
            "type": "producer_initialised",
            "transactional_id": "a",
            "producer_id": 0,
            "producer_epoch": 1 << 40,
            "instance": "i",
            "timeout_ms": 1,
            "at_ms": 1,
        },
    ),
    "fewer partitions": ("topics/u/", {"type": "partitions_added", "partition_count": 1}),
    "a log start beyond the end": (
        "topics/u/",
        {"type": "log_start_advanced", "log_start_offsets": [[0, 10**12]]},
    ),
    "a staged segment of another topic": (
        OF_A,
        {
            "type": "commit_prepared",
            "transactional_id": "a",
            "tx_id": {"producer_id": 0, "epoch": 0, "number": 99},
            "at_ms": 1,
            "participants": [participant("topics/u/other/segments/" + "0" * 32 + ".arrow")],
        },
    ),
}


@pytest.mark.parametrize("case", HOSTILE_EVENTS)
def test_I15_implausible_event_is_refused_with_its_entry_named(case: str) -> None:
    folder, event = HOSTILE_EVENTS[case]
    changed = next_entry(folder, event)
    (path,) = changed
    assert any(path in text for text in damage(copy(changed)))
    found = seen(copy(changed))
    assert isinstance(found, CorruptData)
    assert path in found.message


def test_I15_an_entry_that_names_another_topics_segment_is_refused() -> None:
    """If the entry were accepted, the other topic's records would be read as this topic's own."""
    mine, others = newest("entry", "topics/u/"), newest("segment", "topics/v/")
    batch = [0, 1, 8, 100, 0, 0, 0]
    event = {
        "type": "batches_appended",
        "segments": [{"path": others, "schema_id": 0, "batches": [batch]}],
        "base_offsets": [[0, 7]],
    }
    changed = next_entry("topics/u/", event)
    (path,) = changed
    assert journal_of(path) == journal_of(mine)
    found = seen(copy(changed), lambda log: log.values("u"))
    assert isinstance(found, CorruptData)
    assert path in found.message
    assert "is not a segment of topic 'u'" in found.message
    assert any(path in text for text in damage(copy(changed)))


def test_I15_index_row_that_names_another_topics_segment_is_refused() -> None:
    chunk, others = newest("chunk", "topics/u/"), newest("segment", "topics/v/")
    table = pa.ipc.open_file(objects()[chunk]).read_all()
    place = table.schema.get_field_index("segment")
    column = pa.array([others] * table.num_rows)
    (batch,) = table.set_column(place, table.schema.field(place), column).to_batches()
    changed = with_references(chunk, arrow_file(batch))
    found = seen(copy(changed), lambda log: log.values("u"))
    assert isinstance(found, CorruptData)
    assert chunk in found.message


NAMES = ["a\x1b[31mred", "tab\tbed", "line\nfeed", "\u202eesrever", "\u2066isolated", "nul\0"]
NAMES += [
    "\u200b",
    *(f"a{unseen}b" for unseen in "\u200b\u200d\u00ad\u2060\ufeff\u3164\ufe0f\U000e0041"),
]


@pytest.mark.parametrize("name", NAMES)
def test_column_name_with_control_or_unseen_characters_is_refused(name: str) -> None:
    """When the topic is created, and when its schema is read."""
    for schema in (
        pa.schema([(name, pa.int64())]),
        pa.schema([("s", pa.struct([(name, pa.int64())]))]),
        pa.schema([("s", pa.list_(pa.struct([(name, pa.int64())])))]),
    ):
        with pytest.raises(IncompatibleSchema, match="control characters") as caught:
            validate_schema(schema)
        assert name not in caught.value.message
        assert caught.value.message.isascii()
        with pytest.raises(CorruptData):
            decode_schema(encode_schema(schema))


@pytest.mark.parametrize("name", ["grün", "日本", "a b", "é", "שלום", "emoji 🙂"])
def test_column_names_with_spaces_and_any_script_are_accepted(name: str) -> None:
    assert validate_schema(pa.schema([(name, pa.int64())])).names == [name]


# Limits of decoding.


def test_I16_poll_bounds_the_memory_of_decoded_records() -> None:
    """Compressed records can take a thousand times as much space in memory as in the store."""
    log = MemoryLog()
    log.admin.create_topic("z", 1, config={"compression.type": "zstd"})
    producer = log.producer()
    for _ in range(200):
        producer.send("z", b"x" * 1_000_000)
        producer.flush()
    stored = sum(len(data) for path, data in log.objects().items() if "/segments/" in path)
    assert stored < 1_000_000
    consumer = log.consumer("z")
    pool = pa.default_memory_pool()
    before, count = pool.bytes_allocated(), 0
    while polled := consumer.poll(timeout_ms=30, max_records=1):
        assert pool.bytes_allocated() - before < 2 * DECODED_FETCH_BYTES_MAX
        count += len(polled[TopicPartition("z", 0)])
        del polled
    assert count == 200


def test_I7_audit_reports_a_batch_that_is_indexed_repeatedly() -> None:
    path = next(
        path for path in paths("entry")[::-1] if path.startswith("topics/v/") and _appends(path)
    )
    appended = _appends(path)[-1]
    again = {"type": "batches_appended", "segments": appended["segments"]}
    forged = [{**again, "base_offsets": [[0, 13 + n]]} for n in range(300)]
    texts = damage(copy(next_entry(f"{journal_of(path)}/", *forged)))
    assert any("is in the index twice" in text for text in texts)


def _appends(path: str) -> list[dict[str, Any]]:
    """Events of an entry that name segments. Batches in an entry are named by that entry only."""
    events = json.loads(opened(objects()[path])[0])["events"]
    found = [event for event in events if event.get("segments")]
    return [event for event in found if event["segments"][0]["path"].endswith(".arrow")]


# Comparisons of an audit.


def test_I15_audit_names_a_segment_with_extra_or_missing_bytes() -> None:
    """Like a file with a hole of 100 GB: every batch is there, but no Arrow reader opens it."""
    path = newest("segment", "topics/u/")
    data = objects()[path]
    for changed in (data + bytes(100_000), data[:-10] + bytes(1000) + data[-10:], data[:-1]):
        assert any(path in text for text in damage(copy({path: changed})))


def test_I15_audit_names_a_segment_whose_footer_omits_batches() -> None:
    path = newest("segment", "topics/u/")
    sink = pa.BufferOutputStream()
    reader = pa.ipc.open_file(pa.py_buffer(objects()[path]))
    pa.ipc.new_file(sink, reader.schema).close()
    empty = bytes(sink.getvalue())
    footer = empty[empty.index(b"\xff\xff\xff\xff\x00\x00\x00\x00") :]
    data = objects()[path]
    at = data.rindex(b"\xff\xff\xff\xff\x00\x00\x00\x00")
    changed = {path: data[:at] + footer}
    assert any(path in text for text in damage(copy(changed)))


def test_I2_audit_reports_a_snapshot_with_fewer_partitions_than_its_index() -> None:
    """The journal is pruned, so that nothing else gives the number of partitions."""
    path = newest("snapshot", "topics/u/")
    rows = snapshot_rows(path)
    partitions = [at for at, (section, _) in enumerate(rows) if section == "partition"]
    assert len(partitions) == 2
    del rows[partitions[-1]]
    changed = {path: snapshot_of(*rows)}
    assert any("partitions beyond the last" in text for text in damage(copy(changed)))


def test_I2_audit_reports_a_chunk_reference_with_wrong_offsets() -> None:
    path = newest("snapshot", "topics/v/")

    def change(section: str, row: Any) -> Any:
        if section != "chunk":
            return row
        level, ref = row
        spans = [[p, first, last + 5, *rest] for p, first, last, *rest in ref["spans"]]
        return [level, {**ref, "spans": spans}]

    texts = damage(copy(snapshot_with(path, change)))
    assert any("covers other offsets" in text for text in texts)
