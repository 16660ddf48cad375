"""`spark.python.worker.reuse=false`: a process ends with its commit, and leaves nothing behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_tree import ROOT
from tests.spark.unshared_processes import BATCH, COUNT
from txlog import Consumer
from txlog.engine.connection import connect
from txlog.verify.invariants import check_log

# A Spark of its own, as the setting is read when Spark starts.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.extra]


def test_R61_each_commit_of_a_process_that_ends_with_it_is_complete(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "tests.spark.unshared_processes", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen == {"batches": COUNT // BATCH, "open": 0, "pending": 0, "positions": [COUNT]}
    root = str(tmp_path / "log")
    copies = Consumer("copies", root=root, auto_offset_reset="earliest").read_to_end()
    assert sorted(int(record.value) for record in copies) == list(range(COUNT))
    assert check_log(connect(root)) == []
