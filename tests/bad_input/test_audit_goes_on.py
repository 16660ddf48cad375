"""An audit ends, and lists all damage: an object that cannot be read does not stop it (I15, I16).

Each test puts something unreadable in one place of a log on a disk, and damages a segment of
another topic. The audit names both.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tests.bad_input.fuzzing import journal_of
from tests.bad_input.small_log import KINDS, objects, paths
from tests.bad_input.test_hostile_objects import bounded, newest, next_entry
from txlog.clock import Runtime
from txlog.coordinator.coordinator import coordinator_number_of as journal_of_key
from txlog.engine.connection import open_connection
from txlog.layout import LogLayout
from txlog.storage.disk.local import LocalStore
from txlog.verify.invariants import check_log
from txlog.verify.log_audit import audit_log, stored_objects

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

ELSEWHERE = next(path for path in paths("segment") if path.startswith("topics/v/"))
"""A damaged segment, which an audit that ends early does not reach."""
READ_KINDS = [kind for kind in KINDS if kind not in ("cluster file", "hint")]
FOLDERS = sorted(
    {
        folder
        for path in objects()
        for folder in (str(parent) for parent in Path(path).parents)
        if folder not in (".", "topics") and not folder.startswith("topics/v")
    }
)


def stored_in(folder: Path) -> Path:
    """The small log on a disk, with a damaged segment."""
    store = LocalStore(folder, Runtime(), durable=False)
    for path, data in objects().items():
        store.put_new(path, data)
    _spoil(folder / ELSEWHERE)
    return folder


def _spoil(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))


def audited(root: Path) -> str:
    """All findings of `txlog verify`, in one text; and `--at-rest` ends, too."""
    connection = open_connection(LocalStore(root, Runtime(), durable=False), Runtime())
    report = audit_log(connection, (), stored_objects(connection))
    assert check_log(connection)
    return "\n".join(finding.sentence for finding in report.findings)


def sparse(size_bytes: int) -> Callable[[Path], None]:
    def replace(file: Path) -> None:
        file.unlink()
        file.touch()
        os.truncate(file, size_bytes)

    return replace


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def link(place: Path) -> None:
    kept = place.with_name(f"kept-{place.name}")
    place.rename(kept)
    place.symlink_to(kept)


def file_in_place(place: Path) -> None:
    shutil.rmtree(place)
    place.write_bytes(b"mine")


@pytest.mark.parametrize("harm", [sparse(100 << 30), folder, pipe, link])
@pytest.mark.parametrize("kind", READ_KINDS)
def test_I15_audit_names_an_unreadable_object_and_the_damage_elsewhere(
    kind: str, harm: Callable[[Path], None], tmp_path: Path
) -> None:
    root = stored_in(tmp_path / "log")
    path = next(path for path in reversed(paths(kind)) if not path.startswith("topics/v/"))
    harm(root / path)
    found = audited(root)
    assert path in found
    assert ELSEWHERE in found


@pytest.mark.parametrize("harm", [link, file_in_place])
@pytest.mark.parametrize("name", FOLDERS)
def test_I15_audit_names_what_is_in_place_of_a_folder_and_the_damage_elsewhere(
    name: str, harm: Callable[[Path], None], tmp_path: Path
) -> None:
    root = stored_in(tmp_path / "log")
    harm(root / name)
    found = audited(root)
    assert name in found
    assert ELSEWHERE in found


def staged(path: str, length: int) -> dict[str, bytes]:
    """A decided transaction of producer `b` that awaits its marker in topic `u`."""
    where = LogLayout("").topic("u", path.split("/")[2])
    batch = [0, 1, 8, length, 0, 0, 0]
    topic = {
        "topic_id": where.root.split("/")[2],
        "topic": "u",
        "segments": [{"path": path, "schema_id": 0, "batches": [batch]}],
    }
    tx_id = [1, 0, 99]
    event = {"type": "commit_prepared", "transactional_id": "b", "tx_id": tx_id, "at_ms": 1}
    coordinators, _ = journal_of(newest("entry", "transactions/")).rsplit("/", 1)
    return next_entry(
        f"{coordinators}/{journal_of_key('b', 8)}", {**event, "participants": [topic]}
    )


@pytest.mark.parametrize("length", [1 << 30, (100 << 30) - 1000])
def test_I16_audit_bounds_the_memory_of_a_staged_segment_of_any_size(
    length: int, tmp_path: Path
) -> None:
    root = stored_in(tmp_path / "log")
    path = newest("segment", "topics/u/").replace("0.arrow", "1.arrow")
    (entry, data) = next(iter(staged(path, length).items()))
    (root / entry).write_bytes(data)
    _huge(root / path, length)
    with bounded():
        found = audited(root)
    assert (entry if length > 1 << 31 else path) in found
    assert ELSEWHERE in found


def _huge(file: Path, length: int) -> None:
    """A sparse Arrow file whose footer names a batch of that length."""
    schema = pa.ipc.open_file(pa.py_buffer(objects()[newest("segment", "topics/u/")])).schema
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(
            pa.record_batch([pa.array([None], f.type) for f in schema], schema=schema)
        )
    data = bytes(sink.getvalue())
    start = 8 + len(schema.serialize())
    end = data.rindex(b"\xff\xff\xff\xff\0\0\0\0")
    footer = bytearray(data[end:])
    old = struct.pack("<q", end - start - struct.unpack_from("<i", data, start + 4)[0] - 8)
    head = end - start - struct.unpack("<q", old)[0]
    at = bytes(footer).index(struct.pack("<qi", start, head)) + 16
    footer[at : at + 8] = struct.pack("<q", length - head)
    file.write_bytes(data[:end])
    os.truncate(file, start + length)
    with file.open("ab") as opened:
        opened.write(footer)
