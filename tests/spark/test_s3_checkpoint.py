"""A query whose log and checkpoint are in a bucket; Spark writes the checkpoint by Hadoop's S3A."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from spark_plugin.checkpoints.checkpoint import open_checkpoint
from txlog.cli.drill.drill import BUNDLED_JOB
from txlog.cli.drill.drill_checks import drill_checks
from txlog.cli.drill.drill_log import DrillLog
from txlog.cli.drill.drill_rounds import Drill, DrilledJob, Round
from txlog.cli.spark_environment import spark_environment
from txlog.engine.connection import connect
from txlog.testing.s3_server import ACCESS_KEY, SECRET_KEY, S3Server

pytestmark = [
    pytest.mark.spark,
    pytest.mark.s3,
    pytest.mark.slow,
    pytest.mark.extra,
    pytest.mark.timeout(900),
]

HADOOP_AWS = "org.apache.hadoop:hadoop-aws:3.5.0"
"""The Hadoop version of PySpark 4.2."""

POINTS = ("rows staged", "after PREPARE_COMMIT", "commit returned")
"""The points at which driver, JVM and workers are killed, each in the middle of a batch."""

WAIT_S = 240.0


def test_I5_I6_I10_a_query_with_its_checkpoint_in_a_bucket_survives_kills(tmp_path: Path) -> None:
    with S3Server.start() as server:
        root, checkpoint = server.url("log"), f"s3a://{server.bucket}/checkpoint"
        connection = connect(root, create=True, storage_options=server.storage_options)
        data = DrillLog(connection, "drill")
        data.create()
        places = ["--root", root, "--checkpoint", checkpoint]
        job = DrilledJob(
            [sys.executable, str(BUNDLED_JOB), *places, *data.job_arguments],
            tmp_path,
            environment(server, tmp_path),
            open_checkpoint(checkpoint, connection.runtime, storage_options=server.storage_options),
            WAIT_S,
        )
        drill = Drill(
            connection, job, [Round(point) for point in POINTS], print, data.feed,
            lambda: data.lag() == 0,
        )  # fmt: skip
        try:
            drill.run()
        finally:
            data.close()
        found = list(drill_checks(connection, job.checkpoint, data))
    assert [(kill.point, kill.is_reached) for kill in drill.kills] == [(p, True) for p in POINTS]
    assert [kill.found.is_in_log for kill in drill.kills] == [False, True, True]
    assert [(check.name, check.found) for check in found if not check.is_well] == []


def environment(server: S3Server, folder: Path) -> dict[str, str]:
    """The bucket's address for the driver: variables for txlog, settings for Hadoop."""
    found = {**spark_environment(folder), **server.env}
    settings = {
        "endpoint": server.endpoint_url,
        "endpoint.region": "us-east-1",
        "access.key": ACCESS_KEY,
        "secret.key": SECRET_KEY,
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
    }
    own = [f"--conf {shlex.quote(f'spark.hadoop.fs.s3a.{n}={v}')}" for n, v in settings.items()]
    submit = " ".join([f"--packages {HADOOP_AWS}", *own, found["PYSPARK_SUBMIT_ARGS"]])
    return {**found, "PYSPARK_SUBMIT_ARGS": submit}
