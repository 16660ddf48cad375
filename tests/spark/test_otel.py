"""Spans of Spark's own Python processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_plugin.python_worker import SETUP
from tests.source_tree import ROOT
from tests.spark.traced import FOLDER

pytestmark = [pytest.mark.spark, pytest.mark.extra, pytest.mark.timeout(300)]


def test_planner_tasks_and_committer_tell_their_spans(tmp_path: Path) -> None:
    spans = tmp_path / "spans"
    spans.mkdir()
    set_up = {SETUP: "tests.spark.traced:set_up", FOLDER: str(spans), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.traced", str(tmp_path)],
        env={**os.environ, **set_up},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [
        (file.name, json.loads(line))
        for file in spans.iterdir()
        for line in file.read_text().splitlines()
    ]
    by_name = {name: [s for _, s in found if s["name"] == name] for name in
               ("plan numbers", "poll numbers", "stage out", "send out")}  # fmt: skip
    counted = "messaging.batch.message_count"
    read = sum(span["attributes"][counted] for span in by_name["poll numbers"])
    staged = sum(span["attributes"][counted] for span in by_name["stage out"])
    sent = [span["attributes"] for span in by_name["send out"]]
    assert (read, staged) == (10, 10)
    assert sorted(span["attributes"][counted] for span in by_name["plan numbers"]) == [4, 6]
    assert sorted((each["txlog.batch.id"], each[counted]) for each in sent) == [(0, 4), (1, 6)]
    assert {each["txlog.transaction.outcome"] for each in sent} == {"COMMITTED"}
    assert {each["messaging.consumer.group.name"] for each in sent} == {"g"}
    assert len({process for process, _ in found}) > 1, "planner, tasks and committer are several"
