"""A log in a bucket whose past is taken away under a live producer, and its backup, on a real S3
server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.command_line import run
from txlog import Admin, Consumer, Producer
from txlog.clock import Runtime
from txlog.engine.connection import connect
from txlog.errors import NotATxlog, OutcomeUnknown
from txlog.settings import ProcessSettings
from txlog.storage import Store, open_store
from txlog.testing.s3_server import S3Server

pytestmark = pytest.mark.s3


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server.start() as server:
        yield server


@pytest.fixture
def root(server: S3Server, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A log in the bucket, with a topic."""
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    root = server.url(request.node.name)
    Admin(root, create=True).create_topic("orders")
    return root


def stored(store: Store) -> dict[str, bytes]:
    objects = {found.path: store.get(found.path) for found in store.list_after("")}
    return {path: data for path, data in objects.items() if data is not None}


def values(root: str) -> list[bytes]:
    with Consumer(
        "orders", root=root, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        return [record.value for record in consumer.read_to_end()]


def test_R62_producer_is_refused_once_an_older_state_of_the_bucket_is_back(root: str) -> None:
    """What `aws s3 sync --delete` does with an older copy, while the producer lives."""
    often = ProcessSettings(log_presence_interval_ms=1)
    producer = Producer(connect(root, process=often), transactional_id="p")
    producer.init_transactions()
    store = open_store(root, Runtime())
    with producer.transaction():
        producer.send("orders", b"kept")
    before = stored(store)
    for number in range(3):
        with producer.transaction():
            producer.send("orders", b"%d" % number)
    producer.flush()
    for path, data in stored(store).items():
        if path not in before:
            store.delete(path)
        elif before[path] != data:
            store.replace(path, before[path])
    producer.begin_transaction()
    producer.send("orders", b"after")
    with pytest.raises((NotATxlog, OutcomeUnknown)):
        producer.commit_transaction()
    with pytest.raises(NotATxlog):
        producer.commit_transaction()
    assert values(root) == [b"kept"]


def test_backup_of_a_bucket_is_restored_to_a_disk_and_back(
    root: str, server: S3Server, tmp_path: Path
) -> None:
    producer = Producer(root, transactional_id="p")
    producer.init_transactions()
    for number in range(5):
        with producer.transaction():
            producer.send("orders", b"%d" % number)
    disk, again = tmp_path / "backup", server.url("restored")
    assert run("backup", "--root", root, "--to", disk).code == 0
    with producer.transaction():
        producer.send("orders", b"later")
    copied = json.loads(run("restore", "--from", disk, "--root", again, "-o", "json").out)
    assert copied["objects"] == 1  # The backup has the records of five entries in one segment.
    assert values(again) == [b"0", b"1", b"2", b"3", b"4"]
    assert run("verify", again, "--at-rest").code == 0
