"""Tasks of a real Spark that see another disk than the driver: every job fails, and says why."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.logs.empty_log import empty_log
from tests.source_tree import ROOT
from txlog.client.admin import Admin
from txlog.client.producer.producer import Producer

SAID = "this executor does not see the driver's log (another disk?): use an object store or a "


@pytest.mark.extra  # A JVM of its own; tests/integration/test_other_disk.py shows the same.
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_jobs_and_queries_whose_tasks_see_another_disk_fail_and_say_so(tmp_path: Path) -> None:
    home = tmp_path / "home"
    root = empty_log(home / "log")
    admin = Admin(root)
    admin.create_topic("in", 1)
    with Producer(root) as producer:
        producer.send("in", b"1")
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.other_disk", "~/log", str(tmp_path / "checkpoints")],
        env={**os.environ, "HOME": str(home)},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    ended = dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    assert len(ended) == 5, done.stderr
    for name, said in ended.items():
        assert f"on host {socket.gethostname()} (" in said, name
        assert SAID in said, name
    ends = {t.name: sum(p.end_offset for p in t.partitions) for t in admin.describe_topics()}
    assert ends.pop("in") == 1
    assert not any(ends.values())
