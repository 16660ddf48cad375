"""`txlog drill` with Spark: the bundled job on a log with other topics, and a user's job."""

from pathlib import Path

import pytest

from tests.processes.command_line import run
from txlog.cli.drill.drill_rounds import plan_rounds
from txlog.cli.spark_environment import spark_environment
from txlog.client.admin import Admin
from txlog.client.consumer.consumer import Consumer
from txlog.client.producer.producer import Producer

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]


def test_I5_I6_I10_the_bundled_job_survives_a_drill_and_leaves_no_topics(tmp_path: Path) -> None:
    root, report = tmp_path / "log", tmp_path / "drill.html"
    Admin(str(root), create=True).create_topic("of-another-user")
    seed = seed_of("before the first marker")
    done = run("drill", "--kills", 1, "--seed", seed, "--report", report, "-o", "json", root=root)
    assert done.code == 0, done.out + done.err
    found = done.json
    assert [(c["check"], c["found"]) for c in found["checks"] if c["status"] != "ok"] == []
    (kill,) = found["kills"]
    assert kill["found"]["is_in_log"], "a batch that is decided is in"
    assert kill["outcome"] == "replayed: was in the log"
    assert kill["recovery_ms"] > 0
    assert found["replays"] >= 1
    assert "Nothing was lost, duplicated or torn." in report.read_text()
    assert Admin(str(root)).list_topics() == ["of-another-user"]
    assert Admin(str(root)).list_groups() == []
    assert done.err.count("kill ") >= 1


def seed_of(point: str) -> int:
    """A seed for which a drill of one kill kills at this point."""
    return next(seed for seed in range(99) if plan_rounds(1, seed)[0].point == point)


PLAIN_JOB = """
import sys
from pyspark.sql import SparkSession

root, checkpoint = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
letters = spark.readStream.format("txlog").option("subscribe", "letters")
letters = letters.option("group.id", "copier").option("startingOffsets", "earliest")
letters = letters.option("maxOffsetsPerTrigger", "10").load(root)
sink = letters.select("value").writeStream.format("txlog").option("topic", "copies")
sink.option("checkpointLocation", checkpoint).start(root).awaitTermination()
"""
"""A job that handles no signal, like most. Its batches are small, so that one is always running."""

LETTERS = [b"%d" % number for number in range(1_000)]


def test_I5_I6_I10_drill_of_a_user_job_without_signal_handling_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, job, checkpoint = tmp_path / "log", tmp_path / "job.py", tmp_path / "checkpoint"
    monkeypatch.chdir(tmp_path)
    job.write_text(PLAIN_JOB)
    admin = Admin(str(root), create=True)
    admin.create_topic("letters", 1)
    admin.create_topic("copies", 1)
    with Producer(str(root)) as producer:
        for letter in LETTERS:
            producer.send("letters", letter)
    seed = seed_of("after PREPARE_COMMIT")
    done = run(
        *("drill", "--job", job, "--checkpoint", checkpoint, "--kills", 1, "--seed", seed),
        *("-o", "json", "--", root, checkpoint),
        root=root,
        env=spark_environment(tmp_path),
    )
    assert done.code == 0, done.out + done.err
    (kill,) = done.json["kills"]
    assert (kill["is_reached"], kill["outcome"]) == (True, "replayed: was in the log")
    assert done.json["checks"][0]["check"] == "batches in the log"
    (position,) = admin.describe_group("copier").partitions
    copies = Consumer("copies", root=str(root), auto_offset_reset="earliest")
    found: list[bytes] = []
    while (table := copies.poll_arrow()) is not None:
        found += table["value"].to_pylist()
    assert found == LETTERS[: position.current_offset]
    assert len(found) >= 20, "a batch before the kill, and the one that was killed"
