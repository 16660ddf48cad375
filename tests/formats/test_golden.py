"""This txlog reads the whole log that the first release wrote, and can use it further."""

import json
import re
import tarfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from spark_plugin.source.offsets import decode, encode
from tests.formats.golden_view import view
from tests.formats.v3.make_golden import FIRST_MS, LONG
from tests.processes.command_line import run
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import Connection, open_connection
from txlog.layout import chunk_name_of
from txlog.model import IsolationLevel, TopicPartition, TransactionOutcome, TxId
from txlog.storage.disk.local import LocalStore
from txlog.testing.clock import ManualClock, manual_runtime
from txlog.testing.counting_store import object_kind
from txlog.verify.invariants import check_log
from txlog.verify.log_audit import audit_log, stored_objects

LOGS = Path(__file__).parent.glob("v*/log.tar.xz")
VERSIONS = sorted((log.parent for log in LOGS), key=lambda folder: int(folder.name[1:]))
BYTES_MAX = 300_000


@cache
def golden_objects(folder: Path = VERSIONS[-1]) -> Mapping[str, bytes]:
    """The objects of a version's log, by path."""
    with tarfile.open(folder / "log.tar.xz") as archive:
        found = ((entry.name, archive.extractfile(entry)) for entry in archive)
        return {name: file.read() for name, file in found if file is not None}


@pytest.fixture(params=VERSIONS, ids=lambda folder: folder.name)
def version(request: pytest.FixtureRequest) -> Path:
    """The folder of one version of the format."""
    folder: Path = request.param
    return folder


@pytest.fixture
def root(version: Path, tmp_path: Path) -> Path:
    """The log of that version on a disk, never opened before."""
    with tarfile.open(version / "log.tar.xz") as archive:
        archive.extractall(tmp_path / "log", filter="data")
    return tmp_path / "log"


@pytest.fixture
def connection(root: Path) -> Connection:
    """A second after the log was written: none of its open transactions has timed out."""
    runtime = manual_runtime(999, ManualClock(FIRST_MS + 1000.0))
    return open_connection(LocalStore(root, Runtime(), durable=False), runtime)


@pytest.fixture
def expected(version: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((version / "expected.json").read_text(encoding="utf-8"))
    return found


def test_golden_log_is_small_and_holds_every_kind_of_object(
    version: Path, connection: Connection
) -> None:
    assert sum(file.stat().st_size for file in version.glob("*.*")) < BYTES_MAX
    listed = [stored.path for stored in stored_objects(connection)]
    kinds = {object_kind(path) for path in listed}
    data = {"chunk", "entry", "manifest", "segment"}
    assert kinds == {"boundary", "cluster-file", "hint", "snapshot", *data}
    spans = [re.findall(r"\d{20}", path)[:2] for path in listed if "/chunks/" in path]
    assert any(int(last) - int(first) > LONG // 2 for first, last in spans), "a node of the index"
    assert any(chunk_name_of(path) for path in listed if "/chunks/" in path), "a rewritten chunk"


def test_golden_log_view_matches_the_recorded_view(
    connection: Connection, expected: dict[str, Any]
) -> None:
    found = json.loads(json.dumps(view(connection, expected["asked"])))
    for part, value in expected["view"].items():
        assert found[part] == value, part


def test_golden_log_keeps_all_invariants_and_has_no_damage(connection: Connection) -> None:
    report = audit_log(connection, (), stored_objects(connection))
    assert report.findings == []
    assert {found.kind for found in report.unreferenced} == {
        "index chunk",
        "of a deleted topic",
        "segment",
    }, "a half message was rolled back, a topic was compacted and one was merged"
    assert check_log(connection) == []


def test_verify_of_the_golden_log_changes_no_byte(root: Path) -> None:
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    done = run("verify", root, "--at-rest", "-o", "json")
    assert (done.code, done.json["damage"]) == (0, [])
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_spark_checkpoint_line_round_trips(
    expected: dict[str, Any],
) -> None:
    assert encode(decode(expected["offset"], "the golden log")) == expected["offset"]


def test_golden_log_is_writable_and_open_transactions_are_ended(
    connection: Connection, expected: dict[str, Any]
) -> None:
    decided = TxId(*map(int, expected["asked"][6].split("-")))
    coordinator, name = connection.coordinator_with(decided)
    coordinator.finish(name, decided)
    assert coordinator.outcome(decided) is TransactionOutcome.COMMITTED
    late = Producer(connection, transactional_id="late")
    late.init_transactions()
    connection.offsets.resolve_and_fetch("reader", [TopicPartition("long", 0)])
    shop = Producer(connection, transactional_id="shop")
    shop.init_transactions()
    with shop.transaction():
        shop.send("plain", b"and more", partition=1)
        shop.send("typed", {"id": 8})
    shop.close()
    found = view(connection, [])
    committed = str(IsolationLevel.READ_COMMITTED)
    before = expected["view"]["topics"]
    for topic, count in (("plain", 2), ("typed", 1), ("long", 0)):
        assert len(found["topics"][topic][committed]) == len(before[topic][committed]) + count
    assert found["groups"]["copier"]["pending"] == []
    assert found["groups"]["reader"]["pending"] == []
    assert check_log(connection) == []
