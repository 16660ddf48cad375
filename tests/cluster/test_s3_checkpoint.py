"""A query whose checkpoint is in the bucket, too: Spark writes it by Hadoop's S3A."""

import subprocess
from pathlib import Path

from tests.cluster.cluster import MARKS, SPARK_HOME, Cluster
from tests.cluster.stream import seconds_of, stream_on
from tests.spark.drill import until
from tests.spark.test_s3_checkpoint import HADOOP_AWS, s3a_settings
from txlog.testing.s3_server import S3Server

pytestmark = MARKS

JARS = ("hadoop-aws-3.5.0", "bundle-*", "analyticsaccelerator-s3-*", "wildfly-openssl-*")
CACHE = Path.home() / ".ivy2.5.2" / "cache"


def class_path(folder: Path) -> str:
    """hadoop-aws and what it needs, as they would be installed in an image: sent by `--packages`,
    each executor would copy 700 MB."""
    if not list(CACHE.rglob("hadoop-aws-3.5.0.jar")):
        program = folder / "empty.py"
        program.touch()
        submit = [SPARK_HOME / "bin" / "spark-submit", "--packages", HADOOP_AWS, program]
        subprocess.run(submit, check=True)
    return ":".join(str(file) for name in JARS for file in CACHE.rglob(f"{name}.jar"))


def test_I5_I6_I10_query_with_its_checkpoint_on_s3_goes_on_elsewhere(tmp_path: Path) -> None:
    jars = class_path(tmp_path)
    with (
        S3Server.start() as server,
        Cluster.start(tmp_path / "cluster", server.env) as cluster,
        stream_on(cluster, server, tmp_path) as stream,
    ):
        stream.checkpoint_url = f"s3a://{server.bucket}/checkpoint"
        places = {f"spark.{kind}.extraClassPath": jars for kind in ("driver", "executor")}
        conf = {**places, **s3a_settings(server)}
        stream.put()
        stream.start(conf)
        stream.settle()
        stream.judge()
        stream.stop_at("after the first marker")
        stream.put()
        stream.await_stop()
        batch = stream.planned

        def restart() -> None:
            stream.driver.kill()
            stream.start(conf)
            until(lambda: stream.has_committed(batch), "the next commit")

        print(f"\ndriver killed, checkpoint on S3: {seconds_of(restart):.1f} s")
        stream.put()
        stream.settle()
        stream.judge()
