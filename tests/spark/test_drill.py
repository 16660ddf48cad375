"""`txlog drill` with Spark: two kills of the bundled job, on a log that is used for more."""

from pathlib import Path

import pytest

from tests.command_line import run
from txlog.clients.admin import Admin

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


def test_I5_I6_I10_the_bundled_job_survives_a_drill_and_leaves_no_topics(tmp_path: Path) -> None:
    root, report = tmp_path / "log", tmp_path / "drill.html"
    Admin(str(root), create=True).create_topic("of-somebody-else")
    done = run("drill", "--kills", 2, "--seed", 11, "--report", report, "-o", "json", root=root)
    assert done.code == 0, done.out + done.err
    found = done.json
    assert [(c["name"], c["found"]) for c in found["checks"] if not c["is_well"]] == []
    points = [kill["point"] for kill in found["kills"]]
    assert points == ["after PREPARE_COMMIT", "at random"]
    in_log = {kill["point"]: kill["found"]["is_in_log"] for kill in found["kills"]}
    assert in_log[points[0]], "a batch that is decided is in"
    assert found["kills"][0]["outcome"] == "replayed: was in the log"
    assert all(kill["recovery_ms"] > 0 for kill in found["kills"])
    assert found["replays"] >= 1
    assert "Nothing was lost, doubled or torn." in report.read_text()
    assert Admin(str(root)).list_topics() == ["of-somebody-else"]
    assert done.err.count("kill ") >= 2
