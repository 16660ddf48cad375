"""Stores that a Python worker of Spark keeps from task to task."""

import os
from pathlib import Path

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
