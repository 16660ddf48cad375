"""Stores that a Python worker of Spark keeps from task to task."""

import os
from pathlib import Path

import pytest

from spark_plugin import connections
from spark_plugin.connections import open_kept, open_log
from spark_plugin.options import ReaderOptions, WriterOptions
from txlog.errors import NotATxlog, TxlogError

KEYS = {"key": "AKIAEXAMPLE", "secret": "first", "endpoint_url": "http://127.0.0.1:1"}


def test_log_is_created_only_where_the_caller_asks_for_it(tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    with pytest.raises(NotATxlog):
        open_log(WriterOptions(root))
    assert list(tmp_path.iterdir()) == []
    made = open_log(WriterOptions(root), create=True)
    assert open_log(ReaderOptions(root)).cluster.log_id == made.cluster.log_id


def test_other_log_than_the_driver_has_opened_is_refused(tmp_path: Path) -> None:
    first, second = (WriterOptions(str(tmp_path / name)) for name in "ab")
    file = open_log(first, create=True).cluster.file
    open_log(second, create=True)
    assert open_log(first, cluster_file=file).cluster.log_id == file.log_id
    with pytest.raises(NotATxlog):
        open_log(second, cluster_file=file)


def test_log_is_opened_with_the_options_of_its_store(tmp_path: Path) -> None:
    options = ReaderOptions(str(tmp_path / "log"), storage={"no_such_option": "x"})
    with pytest.raises(TxlogError, match="no_such_option"):
        open_log(options, create=True)
    with pytest.raises(TxlogError, match="no_such_option"):
        open_kept(options.root, options.storage)


def test_store_is_kept_for_its_url_and_its_options() -> None:
    """With other credentials or another endpoint, an executor must use those."""
    kept = open_kept("s3://lake/log", KEYS)
    assert open_kept("s3://lake/log", dict(reversed(KEYS.items()))) is kept
    assert open_kept("s3://lake/log", {**KEYS, "secret": "second"}) is not kept
    assert open_kept("s3://lake/log", {**KEYS, "endpoint_url": "http://127.0.0.1:2"}) is not kept
    assert open_kept("s3://lake/other", KEYS) is not kept


def test_store_of_a_forked_worker_is_its_own(tmp_path: Path) -> None:
    """A child has none of its parent's threads, and may not share its connections."""
    kept = open_kept(str(tmp_path), {})
    child = os.fork()
    if child == 0:
        os._exit(int(open_kept(str(tmp_path), {}) is kept))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_only_the_newest_stores_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_kept", {})
    monkeypatch.setattr(connections, "STORES_MAX", 2)
    first, second, third = (open_kept(str(tmp_path / name), {}) for name in "abc")
    assert list(connections._kept.values()) == [second, third]
    assert open_kept(str(tmp_path / "b"), {}) is second
    assert open_kept(str(tmp_path / "a"), {}) is not first
