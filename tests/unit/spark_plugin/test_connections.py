"""Stores that a Python worker of Spark keeps from task to task."""

import os
from pathlib import Path

import pytest

from spark_plugin import connections
from spark_plugin.connections import open_kept

KEYS = {"key": "AKIAEXAMPLE", "secret": "first", "endpoint_url": "http://127.0.0.1:1"}


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
