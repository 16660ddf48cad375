"""What a newer txlog wrote is refused with the release that reads it.

These tests build objects of a later release by hand, since an old program meets only their bytes.
"""

import json
import zlib
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from spark_plugin.source import offsets
from tests.formats.test_golden import golden_objects
from tests.logs.memory_log import MemoryLog
from tests.unit.journal.shelf_machine import ShelfMachine
from txlog.catalog.cluster_file import decode_cluster_file
from txlog.distribution import VERSION
from txlog.errors import CorruptData, NotATxlog, UnsupportedFormat
from txlog.groups.machine import CoordinatorMachine
from txlog.journal.boundaries.boundary import decode_boundary
from txlog.journal.entry import decode_entry, written_by
from txlog.journal.machine import Machine, decoded_events, decoded_state
from txlog.journal.snapshot import decode_snapshot, snapshot_release
from txlog.layout import CLUSTER_FILE
from txlog.testing.counting_store import object_kind

NEWER = "7.3.1rc1"
REMEDY = f"txlog {NEWER} wrote it, and this is {VERSION}: use {NEWER} or a newer txlog."
ENTRY = "topics/t/1/entries/00000000000000000007.json"
BOUNDARY = "topics/t/1/boundaries/00000000000000000000.json"
SNAPSHOT = "topics/t/1/snapshots/00000000000000000007.arrow"


def sealed(body: Mapping[str, Any], txlog: object = NEWER, version: int = 3) -> bytes:
    """An entry as docs/dev/format.md describes it."""
    text = json.dumps(body).encode()
    crc32 = zlib.crc32(str(txlog).encode() + text)
    header = {"format": version, "txlog": txlog, "length": len(text), "crc32": crc32}
    return json.dumps(header).encode() + b"\n" + text + b"\n"


def entry_with(*events: Any) -> dict[str, Any]:
    names = {"log_id": "x", "journal": "j", "token": "t", "writer": "w", "carries": False}
    return {**names, "slot": 7, "written_at_ms": 1, "prior_crc32": 2, "events": list(events)}


def use_entry(data: bytes) -> None:
    entry, _ = decode_entry(data, ENTRY, 7)
    list(decoded_events(ShelfMachine(), entry, ENTRY))


def message_of(data: bytes) -> str:
    """The message of the error that reading the entry raises."""
    with pytest.raises(UnsupportedFormat) as caught:
        use_entry(data)
    return caught.value.message


@pytest.mark.parametrize(
    "event", [{"type": "thing_painted"}, {"type": "thing_put", "name": "x", "colour": "red"}]
)
def test_newer_event_or_field_is_unsupported_and_names_its_release(event: dict[str, str]) -> None:
    with pytest.raises(UnsupportedFormat) as caught:
        use_entry(sealed(entry_with(event)))
    assert caught.value.message.startswith(f"{ENTRY} contains an event that this txlog cannot read")
    assert caught.value.message.endswith(REMEDY)
    assert caught.value.facts == {"path": ENTRY, "txlog": NEWER}


def test_newer_entry_format_with_unknown_body_names_its_release() -> None:
    assert message_of(sealed({"pages": []}, version=4)).endswith(REMEDY)


@pytest.mark.parametrize("field", ["shards", "settings"])
def test_newer_cluster_file_is_not_a_txlog_and_names_its_release(field: str) -> None:
    made = next(data for path, data in golden_objects().items() if path.endswith(CLUSTER_FILE))
    body = json.loads(made.split(b"\n")[1])
    later = body | ({"shards": 1} if field == "shards" else {"format_version": 4})
    with pytest.raises(NotATxlog) as caught:
        decode_cluster_file(sealed(later), "root")
    assert caught.value.message.endswith(REMEDY)


def test_newer_boundary_is_unsupported_and_names_its_release() -> None:
    body = {"ordinal": 0, "lowest_slot": 0, "snapshot_slot": -1, "token": "t", "reason": "age"}
    with pytest.raises(UnsupportedFormat, match="a boundary that this txlog cannot") as caught:
        decode_boundary(sealed(body), BOUNDARY)
    assert caught.value.message.endswith(REMEDY)


def later_snapshot(head: Mapping[str, Any], *rows: tuple[str, str]) -> bytes:
    """A snapshot of the newer txlog: this version's with other rows and a checksum over them."""
    first = {"format": 3, "slot": 7, "crc32": 4, "boundary": -1, "txlog": NEWER, **head}
    names, texts = map(list, zip(("journal", json.dumps(first)), *rows, strict=True))
    names.append("checksum")
    texts.append(str(zlib.crc32("\n".join(texts).encode(), zlib.crc32("\n".join(names).encode()))))
    schema = pa.schema([("section", pa.string()), ("row", pa.string())])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.record_batch([names, texts], schema=schema))
    return bytes(sink.getvalue())


@pytest.mark.parametrize("head", [{"format": 4}, {"shards": 4}])
def test_snapshot_with_newer_head_is_unsupported_and_names_its_release(
    head: dict[str, int],
) -> None:
    with pytest.raises(UnsupportedFormat) as caught:
        decode_snapshot(later_snapshot(head), SNAPSHOT)
    assert caught.value.message.endswith(REMEDY)


@pytest.mark.parametrize("machine", [ShelfMachine(), CoordinatorMachine()], ids=["one", "shared"])
def test_snapshot_with_unknown_section_is_unsupported_and_names_its_release(
    machine: Machine[Any],
) -> None:
    data = later_snapshot({}, ("paint", "[]"))
    _, sections = decode_snapshot(data, SNAPSHOT)
    with pytest.raises(UnsupportedFormat, match=r"a state .*'paint'") as caught:
        decoded_state(machine, sections, SNAPSHOT, data)
    assert caught.value.message.endswith(REMEDY)


def test_newer_checkpoint_line_is_unsupported_and_names_its_release() -> None:
    value = {"type": offsets.OFFSET_TYPE, "version": 2, "txlog": NEWER, "shards": []}
    with pytest.raises(UnsupportedFormat) as caught:
        offsets.from_json(value, "offsets/3")
    assert caught.value.message.endswith(REMEDY)


def test_checkpoint_line_names_its_release_only_above_offset_version_1() -> None:
    """Spark compares lines as texts, so that a release in them would look new to each query."""
    line = offsets.to_json(offsets.SourceOffset("10" * 16, "g", {}))
    assert ("txlog" in line) == (offsets.OFFSET_VERSION > 1)


@pytest.mark.parametrize("txlog", ["", "\x1b[31m1.2", "9" * 50, "1.2 or rm -rf", VERSION, 7])
def test_invalid_or_not_newer_release_is_omitted_from_the_message(txlog: object) -> None:
    message = message_of(sealed(entry_with({"type": "thing_painted"}), txlog))
    assert message.endswith(f"A newer txlog than {VERSION} wrote it: use a newer txlog.")


def test_I15_altered_release_in_the_header_fails_the_crc() -> None:
    data = sealed(entry_with()).replace(NEWER.encode(), b"7.3.2rc1")
    with pytest.raises(CorruptData, match="its CRC32 is"):
        use_entry(data)


def test_every_written_object_names_its_release() -> None:
    log = MemoryLog()
    log.admin.create_topic("t", 1)
    assert log.connection.cluster.topic("t").journal.prune(keep_entries=0)
    sealed_ones = {
        path: data for path, data in log.objects().items() if data.startswith(b'{"format":3')
    }
    kinds = {"cluster-file", "entry", "boundary"}
    assert {object_kind(path) for path in sealed_ones} == kinds
    assert set(map(written_by, sealed_ones.values())) == {VERSION}
    snapshots = [data for path, data in log.objects().items() if "/snapshots/" in path]
    assert set(map(snapshot_release, snapshots)) == {VERSION}
