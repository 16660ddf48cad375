"""Connections: one log per root and process, and what happens when the root is emptied."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.logs.empty_log import empty_log
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer
from txlog.engine import connection
from txlog.engine.connection import connect
from txlog.errors import InvalidConfig, NotATxlog, UnknownTopic
from txlog.settings import ProcessSettings
from txlog.storage.open import open_store
from txlog.storage.store import Store
from txlog.verify.invariants import check_log


def test_connect_returns_one_connection_per_root_and_options(tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    first = connect(root, create=True)
    assert connect(root) is first
    assert connect(root, create=True) is first
    assert connect(root, storage_options={"durable": False}) is not first


def test_connection_has_the_settings_it_is_opened_with(tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    first = connect(root, create=True, log_config={"transaction.state.log.num.partitions": 3})
    assert first.cluster.file.settings.transaction_state_log_num_partitions == 3
    assert first.cluster.process == ProcessSettings()
    second = connect(root, process=ProcessSettings(publish_batch_max=7))
    assert second is not first
    assert second.cluster.process.publish_batch_max == 7
    assert connect(root, process=ProcessSettings(publish_batch_max=7)) is second
    with pytest.raises(InvalidConfig):
        connect(root, log_config={"transaction.state.log.num.partitions": 4})


def test_log_that_another_process_has_read_is_opened_as_it_was_there(tmp_path: Path) -> None:
    """A task of Spark gets the driver's cluster file: it asks nothing, and takes no other log."""
    root = str(tmp_path / "log")
    here = connect(root, create=True)
    assert connect(root, cluster_file=here.cluster.file) is here
    elsewhere = replace(here.cluster.file, log_id="ab" * 16)
    with pytest.raises(NotATxlog, match=f"log {here.cluster.log_id} is there now"):
        connect(root, cluster_file=elsewhere)
    absent = str(tmp_path / "absent")
    with pytest.raises(NotATxlog):
        connect(absent, cluster_file=elsewhere)
    assert not Path(absent).exists()


def test_newest_connections_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_connections", {})
    monkeypatch.setattr(connection, "CONNECTIONS_MAX", 3)
    roots = [empty_log(tmp_path / str(number)) for number in range(4)]
    opened = [connect(root) for root in roots]
    assert [connect(root) for root in roots[1:]] == opened[1:]
    assert connect(roots[0]) is not opened[0]
    assert connect(roots[1]) is not opened[1]


def test_removed_log_is_created_again_if_create_is_set(tmp_path: Path) -> None:
    """With the cached state of the removed log, the new log would lack its first entries."""
    root = str(tmp_path / "log")
    for attempt in (b"first", b"second"):
        admin = Admin(root, create=True)
        assert admin.list_topics() == []
        admin.create_topic("t")
        Producer(root).send("t", attempt).get()
        consumer = Consumer("t", root=root, auto_offset_reset="earliest")
        assert [record.value for found in consumer.poll().values() for record in found] == [attempt]
        assert check_log(admin.connection) == []
        shutil.rmtree(root)


def test_log_is_created_again_while_so_many_others_are_opened_that_it_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECTIONS_MAX", 2)
    root = str(tmp_path / "log")
    before = connect(root, create=True)
    shutil.rmtree(root)

    def open_others_first(url: str, *arguments: Any) -> Store:
        monkeypatch.setattr(connection, "open_store", open_store)
        for number in range(2):
            connect(str(tmp_path / f"other-{number}"), create=True)
        return open_store(url, *arguments)

    monkeypatch.setattr(connection, "open_store", open_others_first)
    after = connect(root, create=True)
    assert after.cluster.log_id != before.cluster.log_id
    assert connect(root) is after


def test_connect_refuses_folder_without_log_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a log")
    for root in (tmp_path, tmp_path / "nothing" / "here"):
        with pytest.raises(NotATxlog, match="there is no log at .*no txlog.json there"):
            connect(str(root))
    assert sorted(tmp_path.iterdir()) == [tmp_path / "notes.txt"]


def test_logs_in_sibling_folders_are_independent(tmp_path: Path) -> None:
    for name in ("a", "b"):
        Admin(str(tmp_path / name), create=True).create_topic(f"only-{name}")
    assert (
        connect(str(tmp_path / "a")).cluster.log_id != connect(str(tmp_path / "b")).cluster.log_id
    )
    with pytest.raises(UnknownTopic):
        Producer(str(tmp_path / "a")).send("only-b", b"x")


def test_relative_root_is_resolved_in_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Admin("here", create=True)
    assert (tmp_path / "here" / "txlog.json").is_file()
