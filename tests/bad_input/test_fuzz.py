"""Every stored kind, damaged in every way: an error that names it, or exactly what was there."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.bad_input.small_log import KINDS, copy, everything, expected, objects, paths
from tests.memory_log import MemoryLog
from txlog.clients.log_audit import LogReport, audit_log, stored_objects
from txlog.errors import CorruptData, InternalError, NotATxlog, TxlogError, UnsupportedFormat
from txlog.journal.boundary import decode_boundary
from txlog.journal.entry import decode_entry, seal
from txlog.journal.snapshot import decode_snapshot
from txlog.log.cluster import decode_cluster_file
from txlog.log.index import ChunkRef, decode_refs, decode_rows
from txlog.log.segment_scan import scan_segment

pytestmark = pytest.mark.slow

FUZZ = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
Bytes = st.SearchStrategy[bytes]


def journal_of(path: str) -> str:
    """The folder of the journal; errors may name the object beside the one that was changed."""
    return re.sub(r"/(entries|snapshots|chunks|boundaries|segments)/.*|/hint.json", "", path)


# Accidents: whatever happens to the bytes.


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Cut, flipped, overwritten, grown, repeated."""
    size = len(data)
    start = draw(st.integers(0, size - 1))
    end = draw(st.integers(start + 1, size))
    piece = draw(st.binary(min_size=1, max_size=40))
    match draw(st.sampled_from(["cut", "flip", "zero", "overwrite", "insert", "drop", "repeat"])):
        case "cut":
            return data[:start]
        case "flip":
            bit = draw(st.integers(0, 7))
            return data[:start] + bytes([data[start] ^ (1 << bit)]) + data[start + 1 :]
        case "zero":
            return data[:start] + bytes(end - start) + data[end:]
        case "overwrite":
            return data[:start] + piece + data[start + len(piece) :]
        case "insert":
            return data[:start] + piece + data[start:]
        case "drop":
            return data[:start] + data[end:]
        case _:
            return data + data[start:end]


def answer(use: Callable[[MemoryLog], object], log: MemoryLog) -> object:
    """What it gives, or the error of txlog that it raises; any other error fails the test."""
    try:
        return use(log)
    except TxlogError as error:
        return error


def look(log: MemoryLog) -> object:
    """As `txlog verify` does: what is wrong, object by object."""
    connection = log.process()
    return audit_log(connection, (), stored_objects(connection))


def check_named(log: MemoryLog, path: str) -> None:
    """Exactly what was there, or an error that names the object, for users and for the audit."""
    found = answer(everything, log)
    if isinstance(found, CorruptData | NotATxlog):
        assert journal_of(path) in found.message
    else:
        assert found == expected()
    report = answer(look, log)
    if isinstance(report, CorruptData | NotATxlog):
        assert path in report.message or "format version" in report.message
        return
    assert isinstance(report, LogReport)
    assert all(journal_of(path) in finding.sentence for finding in report.findings)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@FUZZ
def test_I15_damaged_bytes_of_any_kind_are_named_or_harmless(
    kind: str, data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from(paths(kind)))
    check_named(copy({path: data.draw(damaged(objects()[path]))}), path)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(FUZZ, max_examples=30)
def test_I15_an_object_in_anothers_place_gives_no_wrong_record(
    kind: str, data: st.DataObject
) -> None:
    """Two objects of one journal change places, or one is restored under another's name."""
    first = data.draw(st.sampled_from(paths(kind)))
    beside = [p for p in paths(kind) if journal_of(p) == journal_of(first)]
    second = data.draw(st.sampled_from(beside))
    both = {first: objects()[second], second: objects()[first]}
    if data.draw(st.booleans()):
        del both[second]
    check_named(copy(both), first)


@given(data=st.data())
@settings(FUZZ, max_examples=30)
def test_R11_objects_of_two_topics_that_were_swapped_give_no_wrong_record(
    data: st.DataObject,
) -> None:
    kind = data.draw(st.sampled_from(["entry", "snapshot", "chunk", "segment", "boundary"]))
    of_u = [path for path in paths(kind) if path.startswith("topics/u/")]
    of_v = [path for path in paths(kind) if path.startswith("topics/v/")]
    first, second = data.draw(st.sampled_from(of_u)), data.draw(st.sampled_from(of_v))
    log = copy({first: objects()[second], second: objects()[first]})
    found = answer(everything, log)
    if isinstance(found, CorruptData):
        assert journal_of(first) in found.message or journal_of(second) in found.message
    else:
        assert found == expected()


def test_R11_a_topics_whole_folder_in_anothers_place_is_named() -> None:
    u, v = (next(journal_of(p) for p in paths("entry") if f"topics/{n}/" in p) for n in "uv")
    moved = {p.replace(v, u): data for p, data in objects().items() if p.startswith(f"{v}/")}
    log = copy(moved)
    for path in objects():
        if path.startswith(f"{u}/") and path not in moved:
            log.memory.delete(path)
    with pytest.raises(CorruptData, match=f"{u} holds the journal of topic 'v'"):
        log.values("u")


# Decoders alone: any bytes at all.

REF = ChunkRef(0, 9, 1, 0, 0, ())
BOUNDARY = "t/boundaries/00000000000000000003.json"
DECODERS: dict[str, Callable[[bytes], object]] = {
    "entry": lambda data: decode_entry(data, "some/object", 3),
    "boundary": lambda data: decode_boundary(data, "some/object"),
    "cluster file": lambda data: decode_cluster_file(data, "some/object"),
    "snapshot": lambda data: decode_snapshot(data, "some/object"),
    "segment": lambda data: scan_segment(data, "some/object"),
    "leaf": lambda data: decode_rows(data, _ref_of(data), "some/object"),
    "node": lambda data: decode_refs(data, _ref_of(data), "some/object"),
}


def _ref_of(data: bytes) -> ChunkRef:
    """A reference whose checksum is right, as if the chunk were forged together with it."""
    return ChunkRef(0, 9, 1, len(data), zlib.crc32(data), ())


@pytest.mark.parametrize("name", DECODERS)
@given(data=st.binary(max_size=300), is_sealed=st.booleans())
@settings(FUZZ, max_examples=150)
def test_I15_any_bytes_are_corrupt_data_that_names_the_object(
    name: str, data: bytes, is_sealed: bool
) -> None:
    with pytest.raises(CorruptData, match="some/object"):
        DECODERS[name](seal(data) if is_sealed else data)


def snapshot_of(*rows: tuple[str, str]) -> bytes:
    """A snapshot of these rows with a right checksum."""
    names, texts = [name for name, _ in rows], [text for _, text in rows]
    names.append("checksum")
    crc32 = zlib.crc32("\n".join(texts).encode(), zlib.crc32("\n".join(names).encode()))
    texts.append(str(crc32))
    return arrow_file(pa.record_batch({"section": names, "row": texts}))


def arrow_file(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


DEEP = "[" * 100_000
HEAD = '{"format": 1, "slot": 3, "crc32": 0, "boundary": -1}'


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("entry", seal(DEEP.encode())),
        ("entry", seal(b'{"slot":3,"token":' + DEEP.encode())),
        ("boundary", seal(DEEP.encode())),
        ("cluster file", seal(DEEP.encode())),
        ("snapshot", snapshot_of(("journal", DEEP))),
        ("snapshot", snapshot_of(("journal", HEAD), ("thing", DEEP))),
        ("snapshot", snapshot_of(("journal", HEAD), ("thing", "{"))),
        ("node", arrow_file(pa.record_batch({"ref": [DEEP]}))),
        ("node", arrow_file(pa.record_batch({"ref": pa.array([None], pa.string())}))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_I16_deep_nesting_is_corrupt_data(name: str, data: bytes) -> None:
    with pytest.raises(CorruptData, match="some/object"):
        DECODERS[name](data)


@pytest.mark.parametrize("length", [10**18, -1, "9", None])
def test_I16_a_length_that_is_claimed_is_not_believed(length: object) -> None:
    data = seal(b"{}").replace(b'"length":2', b'"length":' + json.dumps(length).encode())
    for name in ("entry", "boundary", "cluster file"):
        with pytest.raises(CorruptData, match="some/object"):
            DECODERS[name](data)


def test_R14_a_boundary_that_bears_anothers_number_does_not_lead_in_a_circle() -> None:
    path = paths("boundary")[0]
    data = objects()[path]
    following = path.replace("0.json", "1.json")
    assert decode_boundary(data, path).ordinal == 0
    with pytest.raises(CorruptData, match=f"{following} is no boundary.*number 0"):
        decode_boundary(data, following)
    check_named(copy({following: data}), following)


@pytest.mark.parametrize("kind", ["entry", "boundary", "cluster file", "snapshot"])
def test_another_version_asks_for_a_newer_txlog(kind: str) -> None:
    """Not called damaged: nobody shall restore it from a backup."""
    path = paths(kind)[-1]
    newer = objects()[path].replace(b'{"format":1,', b'{"format":7,', 1)
    if kind == "snapshot":
        newer = snapshot_of(("journal", HEAD.replace("1", "7", 1)))
    with pytest.raises(UnsupportedFormat, match="some/object.* has format version 7.*newer txlog"):
        DECODERS[kind](newer)


# Forgeries: other values under right checksums. An error of txlog, or a log that can be used.

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
    """The value with another part at that place."""
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
    """A path, what is changed, and what is taken away so that the change is met."""
    kind = draw(st.sampled_from(["entry", "boundary", "cluster file", "snapshot"]))
    path = draw(st.sampled_from(paths(kind)))
    data = objects()[path]
    folder = f"{journal_of(path)}/"
    if kind == "snapshot":
        table = pa.ipc.open_file(data).read_all().to_pylist()
        rows = [(row["section"], row["row"]) for row in table[:-1]]
        number = draw(st.integers(0, len(rows) - 1))
        section, text = rows[number]
        rows[number] = (section, json.dumps(forged(draw, json.loads(text))))
        hint = {f"{folder}hint.json": b'{"snapshot":%d}' % int(path[-26:-6])}
        return path, {path: snapshot_of(*rows), **hint}, []
    body = json.loads(data.split(b"\n")[1])
    changed = {path: seal(json.dumps(forged(draw, body)).encode())}
    if kind != "entry":
        return path, changed, []
    gone = [p for p in objects() if p.startswith(f"{folder}entries/") and p > path]
    gone += [p for p in objects() if p.startswith((f"{folder}snapshots/", f"{folder}hint"))]
    return path, changed, gone


@given(forgeries())
@settings(FUZZ, max_examples=400)
def test_I15_a_forged_value_is_an_error_of_txlog_or_a_log_that_can_be_used(
    forgery: tuple[str, dict[str, bytes], list[str]],
) -> None:
    """Never another exception, nor our own "please report this" for what a name or number says."""
    path, changed, gone = forgery
    log = copy(changed, gone)
    for use in (everything, look):
        found = answer(use, log)
        if isinstance(found, InternalError):
            assert "was never given out" in found.message or journal_of(path) in found.message


# Names: anybody can put anything into a bucket.

STRANGE = [
    "topics/u/notes.txt",
    "topics/.../x",
    "cluster/entries/99999999999999999999.json",
    "cluster/entries/00000000000000000001.json.bak",
    "cluster/entries/\u0660\u0660\u0660.json",
    "cluster/entries/sub/00000000000000000002.json",
    "transactions/x/hint.json",
    "__consumer_offsets/-1/entries/00000000000000000000.json",
]


@pytest.mark.parametrize("path", STRANGE)
def test_an_object_of_a_strange_name_changes_nothing(path: str) -> None:
    log = copy({})
    log.memory.put_new(path, b"?")
    assert everything(log) == expected()
    report = look(log)
    assert isinstance(report, LogReport)
    unreferenced = {stored.path for found in report.unreferenced for stored in found.objects}
    named = "".join(finding.sentence for finding in report.findings)
    assert path in unreferenced or path in named
