"""Every stored kind, damaged in every way: an error that names the object, or the original
content."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bad_input.fuzzing import answer, arrow_file, fuzz, journal_of, look, snapshot_of
from tests.bad_input.small_log import KINDS, copy, everything, expected, objects, paths
from tests.unit.segments import scanned
from txlog.catalog.cluster_file import decode_cluster_file
from txlog.errors import CorruptData, NotATxlog, UnsupportedFormat
from txlog.journal.audit import Finding
from txlog.journal.boundaries.boundary import decode_boundary
from txlog.journal.entry import decode_entry, seal
from txlog.journal.snapshot import decode_snapshot
from txlog.topic.batch_index import ChunkRef, decode_batches, decode_refs
from txlog.verify.log_audit import JournalReport, LogReport

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

DAMAGE = (CorruptData, NotATxlog, UnsupportedFormat)


# Accidents: any change of the bytes.


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


def check_named(changed: Mapping[str, bytes], *folders: str) -> None:
    """A user gets the original content, or an error that names a changed object or one of these
    folders; the audit reports one, unless the change is never read."""
    changed = {path: data for path, data in changed.items() if data != objects()[path]}
    found = answer(everything, copy(changed))
    report = answer(look, copy(changed))
    check_answers(found, report, {*changed, *folders})
    if isinstance(report, LogReport) and not report.findings:
        assert all(is_harmless(path, data) for path, data in changed.items())


def check_answers(found: object, report: object, changed: set[str]) -> None:
    """`found` is what a user sees; `changed` are paths."""
    if isinstance(found, DAMAGE):
        assert names_any(changed, found.message)
    else:
        assert found == expected()
    if isinstance(report, DAMAGE):
        assert names_any(changed, report.message)
        return
    assert isinstance(report, LogReport)
    sentences = [finding.sentence for finding in report.findings]
    if isinstance(found, DAMAGE) or sentences:
        assert any(names_any(changed, sentence) for sentence in sentences), sentences


def names_any(paths_: Iterable[str], text: str) -> bool:
    return any(path in text for path in paths_)


def is_harmless(path: str, data: bytes) -> bool:
    """Whether the parts that are read are unchanged: hints are not trusted, and of a segment only
    the batches are read, which have their own checksums."""
    if path.endswith("hint.json") or "/segments/" in path:
        return True
    if "/boundaries/" in path:
        was = decode_boundary(objects()[path], path)
        return decode_boundary(data, path).snapshot_slot == was.snapshot_slot
    return "/snapshots/" in path and decode_snapshot(data, path) == decode_snapshot(
        objects()[path], path
    )


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@fuzz(40)
def test_I15_damaged_object_of_any_kind_is_named_or_harmless(
    kind: str, data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from(paths(kind)))
    check_named({path: data.draw(damaged(objects()[path]))})


@pytest.mark.parametrize("kind", ["entry", "snapshot", "chunk", "segment"])
@given(data=st.data())
@fuzz(20)
def test_I15_swapped_objects_of_one_journal_give_no_wrong_records(
    kind: str, data: st.DataObject
) -> None:
    """Two objects of one journal are swapped, or one is restored under another's name."""
    pairs = [(p, q) for p in paths(kind) for q in paths(kind) if p != q]
    beside = [(p, q) for p, q in pairs if journal_of(p) == journal_of(q)]
    first, second = data.draw(st.sampled_from(beside))
    both = {first: objects()[second], second: objects()[first]}
    if data.draw(st.booleans()):
        del both[second]
    check_named(both)


@given(data=st.data())
@fuzz(20)
def test_R11_swapped_objects_of_two_topics_give_no_wrong_records(
    data: st.DataObject,
) -> None:
    kind = data.draw(st.sampled_from(["entry", "snapshot", "chunk", "segment", "boundary"]))
    of_u = [path for path in paths(kind) if path.startswith("topics/u/")]
    of_v = [path for path in paths(kind) if path.startswith("topics/v/")]
    first, second = data.draw(st.sampled_from(of_u)), data.draw(st.sampled_from(of_v))
    both = {first: objects()[second], second: objects()[first]}
    check_named(both, *(f"{path} does not belong to this journal" for path in both))


@pytest.mark.parametrize("kind", ["segment", "entry", "boundary"])
def test_check_answers_fails_for_an_audit_that_misses_the_damage(kind: str) -> None:
    """The checks above can fail: here with an audit that finds nothing, and one that skips
    objects."""
    path = paths(kind)[0]
    found = CorruptData(f"{path} is damaged")
    elsewhere = JournalReport("u", findings=[Finding(journal_of(path), "I15", "is damaged")])
    for report in (LogReport(()), LogReport((elsewhere,))):
        with pytest.raises(AssertionError):
            check_answers(found, report, {path})
    with pytest.raises(AssertionError):
        check_answers(expected(), LogReport((elsewhere,)), {path})


def test_R11_topic_folder_copied_over_another_topic_is_refused() -> None:
    u, v = (next(journal_of(p) for p in paths("entry") if f"topics/{n}/" in p) for n in "uv")
    moved = {p.replace(v, u): data for p, data in objects().items() if p.startswith(f"{v}/")}
    log = copy(moved)
    for path in objects():
        if path.startswith(f"{u}/") and path not in moved:
            log.memory.delete(path)
    with pytest.raises(CorruptData, match=f"{u}/.* does not belong to this journal but to '{v}'"):
        log.values("u")


# Decoders alone, with any bytes.

REF = ChunkRef(0, 9, 1, 0, 0, ())
BOUNDARY = "t/boundaries/00000000000000000003.json"
DECODERS: dict[str, Callable[[bytes], object]] = {
    "entry": lambda data: decode_entry(data, "some/object", 3),
    "boundary": lambda data: decode_boundary(data, "some/object"),
    "cluster file": lambda data: decode_cluster_file(data, "some/object"),
    "snapshot": lambda data: decode_snapshot(data, "some/object"),
    "segment": lambda data: scanned(data, "some/object"),
    "leaf": lambda data: decode_batches(data, _ref_of(data), "some/object"),
    "node": lambda data: decode_refs(data, _ref_of(data), "some/object"),
}


def _ref_of(data: bytes) -> ChunkRef:
    """A reference with a valid checksum, as if the chunk were forged together with it."""
    return ChunkRef(0, 9, 1, len(data), zlib.crc32(data), ())


NO_PAGE = st.binary(max_size=300).filter(lambda data: not data.lstrip().startswith(b"<"))
"""Data that begins like a web page gets another error: the answer did not come from a store."""


@pytest.mark.parametrize("name", DECODERS)
@given(data=NO_PAGE, is_sealed=st.booleans())
@fuzz(100)
def test_I15_decoding_arbitrary_bytes_raises_corrupt_data_naming_the_object(
    name: str, data: bytes, is_sealed: bool
) -> None:
    with pytest.raises(CorruptData, match="some/object"):
        DECODERS[name](seal(data) if is_sealed else data)


DEEP = "[" * 100_000
HEAD = '{"format": 3, "slot": 3, "crc32": 0, "boundary": -1}'


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
def test_I16_deeply_nested_or_malformed_json_raises_corrupt_data(name: str, data: bytes) -> None:
    with pytest.raises(CorruptData, match="some/object"):
        DECODERS[name](data)


@pytest.mark.parametrize("length", [10**18, -1, "9", None])
def test_I16_wrong_length_in_a_header_raises_corrupt_data(length: object) -> None:
    data = seal(b"{}").replace(b'"length":2', b'"length":' + json.dumps(length).encode())
    for name in ("entry", "boundary", "cluster file"):
        with pytest.raises(CorruptData, match="some/object"):
            DECODERS[name](data)


def test_R14_boundary_stored_under_another_number_is_refused() -> None:
    path = paths("boundary")[0]
    data = objects()[path]
    following = path.replace("0.json", "1.json")
    assert decode_boundary(data, path).ordinal == 0
    with pytest.raises(CorruptData, match=f"{following} is not a boundary.*number 0"):
        decode_boundary(data, following)
    report = look(copy({following: data}))
    assert any(following in finding.sentence for finding in report.findings)


@pytest.mark.parametrize(
    ("version", "remedy"),
    [(2, "before the first release.* create the log anew"), (4, "use a newer txlog")],
)
@pytest.mark.parametrize("kind", ["entry", "boundary", "cluster file", "snapshot"])
def test_other_format_version_is_refused_with_a_remedy(
    kind: str, version: int, remedy: str
) -> None:
    """The error must not call the object damaged, as a backup would not help."""
    path = paths(kind)[-1]
    other = objects()[path].replace(b'{"format":3,', b'{"format":%d,' % version, 1)
    if kind == "snapshot":
        other = snapshot_of(("journal", HEAD.replace("3", str(version), 1)))
    error = NotATxlog if kind == "cluster file" else UnsupportedFormat
    with pytest.raises(error, match=f"some/object.* has format version {version}; .*{remedy}"):
        DECODERS[kind](other)


# Names: other programs can put anything into a bucket.

STRANGE = [
    "topics/u/notes.txt",
    "topics/.../x",
    "cluster/ID/entries/99999999999999999999.json",
    "cluster/ID/entries/00000000000000000001.json.bak",
    "cluster/ID/entries/\u0660\u0660\u0660.json",
    "cluster/ID/entries/sub/00000000000000000002.json",
    "cluster/entries/00000000000000000001.json",
    f"cluster/{'20' * 16}/entries/00000000000000000001.json",
    "transactions/ID/x/hint.json",
    "transactions/ID/-1/entries/00000000000000000000.json",
]


@pytest.mark.parametrize("path", STRANGE)
def test_object_with_an_unexpected_name_is_ignored_but_reported(path: str) -> None:
    log = copy({})
    path = path.replace("ID", log.connection.cluster.log_id)
    log.memory.put_new(path, b"?")
    assert everything(log) == expected()
    report = look(log)
    unreferenced = {stored.path for found in report.unreferenced for stored in found.objects}
    named = "".join(finding.sentence for finding in report.findings)
    assert path in unreferenced or path in named
