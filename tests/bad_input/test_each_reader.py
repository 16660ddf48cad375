"""A changed byte in each part of what a small and a large transaction store, on a disk and in a
bucket: each reader and the audit name the object, and no record comes from elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from spark_plugin.datasource import TxlogDataSource
from tests.bad_input.small_log import KINDS, opened
from tests.logs.memory_log import MemoryLog
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.clock import Runtime
from txlog.engine.connection import Connection, open_connection
from txlog.errors import CorruptData
from txlog.journal.entry import RECORDS_START
from txlog.storage import open_store
from txlog.testing.s3_server import S3Server
from txlog.ui.records import records_document
from txlog.verify.log_audit import audit_log, stored_objects

VALUES = [b"small", b"large 0", b"large 1"]

PARTS: dict[str, tuple[str, Callable[[bytes], int]]] = {
    "header of an entry": ("entry", lambda _: 20),
    "records in an entry": ("entry", lambda data: RECORDS_START + 8),
    "last records in an entry": ("entry", lambda data: RECORDS_START + len(opened(data)[1]) - 1),
    "events of an entry": ("entry", lambda data: data.index(b'"marker_written"')),
    "names in a manifest": ("manifest", lambda data: data.index(b"/segments/")),
    "start of a manifest": ("manifest", lambda _: 0),
    "end of a manifest": ("manifest", lambda data: len(data) - 1),
    "records that a manifest names": ("segment", lambda data: data.index(b"large 0")),
}
"""Part -> the kind of object, and the byte to change."""


@cache
def objects() -> Mapping[str, bytes]:
    """A log with a small transaction, whose records are in entries, and one with a manifest."""
    log = MemoryLog()
    log.admin.create_topic("a", 1)
    producer = log.producer("id")
    for values in (VALUES[:1], VALUES[1:]):
        with producer.transaction():
            for value in values:
                producer.send("a", value)
                # An upload, so that the manifest names two segments.
                if len(values) > 1:
                    producer.flush()
        log.connection.entry_batches_max = 0
    producer.close()
    return log.objects()


def damaged(part: str) -> tuple[str, bytes]:
    """The first object of the topic that has this part, and what it is then."""
    kind, position = PARTS[part]
    for path, data in sorted(objects().items()):
        is_meant = path.startswith("topics/a/") and re.fullmatch(KINDS[kind], path)
        if is_meant and (kind != "entry" or opened(data)[1]):
            at = position(data)
            return path, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    raise AssertionError(f"nothing has {part}")


@dataclass(frozen=True)
class Place:
    """Where the log is, and how a process opens it."""

    root: str
    options: dict[str, object]

    def process(self) -> Connection:
        """A new one."""
        runtime = Runtime()
        return open_connection(open_store(self.root, runtime, self.options), runtime)

    def fill(self, changed: Mapping[str, bytes]) -> Place:
        """Store the log with some objects changed."""
        store = open_store(self.root, Runtime(), self.options)
        for path, data in {**objects(), **changed}.items():
            store.create(path, data)
        return self


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server.start() as server:
        yield server


@pytest.fixture(params=["disk", pytest.param("bucket", marks=pytest.mark.s3)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty one."""
    if request.param == "disk":
        return Place(str(tmp_path / "log"), {"durable": False})
    server: S3Server = request.getfixturevalue("server")
    return Place(server.url(tmp_path.name), server.storage_options)


def consumed(place: Place, found: list[bytes]) -> None:
    consumer = Consumer("a", root=place.process(), auto_offset_reset="earliest")
    while polled := consumer.poll(max_records=1):
        found += [record.value for records in polled.values() for record in records]


def read_by_spark(place: Place, found: list[bytes]) -> None:
    given = {
        f"storage.{name}": value if isinstance(value, str) else json.dumps(value)
        for name, value in place.options.items()
    }
    source = TxlogDataSource({"root": place.root, "subscribe": "a", **given})
    reader = source.reader(source.schema())
    for task in reader.partitions():
        for batch in reader.read(task):
            found += batch.column("value").to_pylist()


def shown_on_a_page(place: Place, found: list[bytes]) -> None:
    shown = records_document(Admin(place.process()), "a", {})["records"]
    found += [str(record["value"]).encode() for record in shown]


READERS = [consumed, read_by_spark, shown_on_a_page]


@pytest.mark.parametrize("reader", READERS)
def test_sound_log_is_read(place: Place, reader: Callable[[Place, list[bytes]], None]) -> None:
    """A control for the tests below."""
    found: list[bytes] = []
    reader(place.fill({}), found)
    assert found == VALUES


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("part", PARTS)
def test_I15_reader_names_the_object_and_serves_what_was_before_it(
    place: Place, part: str, reader: Callable[[Place, list[bytes]], None]
) -> None:
    path, data = damaged(part)
    place.fill({path: data})
    found: list[bytes] = []
    with pytest.raises(CorruptData, match=path):
        reader(place, found)
    assert found == VALUES[: len(found)]
    process = place.process()
    named = [finding.path for finding in audit_log(process, (), stored_objects(process)).findings]
    assert path in named
