"""`txlog backup` and `txlog restore`, as an operator uses them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.processes.command_line import run
from txlog import Admin, Consumer, Producer
from txlog.errors import NotATxlog


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log with a topic and a record in it."""
    root = tmp_path / "log"
    Admin(root, create=True).create_topic("orders")
    with Producer(root) as producer:
        producer.send("orders", b"before")
    return root


def values(root: Path) -> list[bytes]:
    with Consumer("orders", root=root, auto_offset_reset="earliest") as consumer:
        return [record.value for record in consumer.read_to_end()]


def test_restored_log_is_whole_and_refuses_producers_of_the_lost_one(
    root: Path, tmp_path: Path
) -> None:
    producer = Producer(root, transactional_id="p")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("orders", b"open")
    producer.flush()
    backup = tmp_path / "backup"
    copied = json.loads(run("backup", "--root", root, "--to", backup, "-o", "json").out)
    assert (copied["topics"], copied["objects"]) == (1, 0)  # Its record is in an entry.
    producer.commit_transaction()
    assert run("verify", backup, "--at-rest").code == 0
    root.rename(tmp_path / "lost")
    assert run("restore", "--from", backup, "--root", root).code == 0
    producer.begin_transaction()
    producer.send("orders", b"after")
    with pytest.raises(NotATxlog):
        producer.commit_transaction()
    assert values(root) == [b"before"]
    with Producer(root, transactional_id="p") as restarted:
        restarted.init_transactions()
        with restarted.transaction():
            restarted.send("orders", b"again")
    assert values(root) == [b"before", b"again"]
    assert run("verify", root, "--at-rest").code == 0


def test_copy_is_refused_where_a_log_or_other_files_are_and_changes_nothing(
    root: Path, tmp_path: Path
) -> None:
    other, files = tmp_path / "other", tmp_path / "files"
    Admin(other, create=True)
    files.mkdir()
    (files / "notes.txt").write_text("mine")
    for place, said in (
        (other, "is not empty"),
        (root, "is not empty"),
        (root / "backup", "is within the log at"),
        (files, "files that belong to no log"),
    ):
        found = run("backup", "--root", root, "--to", place)
        assert (found.code, said in found.err) == (2, True), found.err
    assert [path.name for path in files.iterdir()] == ["notes.txt"]
    assert run("restore", "--from", files, "--root", tmp_path / "new").code != 0
    assert not (tmp_path / "new" / "txlog.json").exists()
