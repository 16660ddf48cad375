"""A query whose log and checkpoint are in a bucket; Spark writes the checkpoint by Hadoop's S3A."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.drilled_checkpoint import assert_exactly_once, with_settings
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


def test_I5_I6_I10_a_query_with_its_checkpoint_in_a_bucket_survives_kills(tmp_path: Path) -> None:
    with S3Server.start() as server:
        assert_exactly_once(
            server.url("log"),
            f"s3a://{server.bucket}/checkpoint",
            with_settings({"spark.jars.packages": HADOOP_AWS, **s3a_settings(server)}, tmp_path),
            tmp_path,
            server.storage_options,
        )


def s3a_settings(server: S3Server) -> dict[str, str]:
    """The bucket's address for Hadoop's S3A."""
    settings = {
        "endpoint": server.endpoint_url,
        "endpoint.region": "us-east-1",
        "access.key": ACCESS_KEY,
        "secret.key": SECRET_KEY,
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
    }
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}
