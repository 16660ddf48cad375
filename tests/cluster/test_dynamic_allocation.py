"""Executors that Spark takes away from an idle query, and gives to it again for its next batch."""

from pathlib import Path

from tests.cluster.cluster import MARKS, Cluster
from tests.cluster.stream import seconds_of, stream_on
from tests.spark.drill import until
from txlog.testing.s3_server import S3Server

pytestmark = MARKS

DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
}


def test_I5_I10_query_whose_executors_come_and_go_writes_each_record_once(tmp_path: Path) -> None:
    with (
        S3Server.start() as server,
        Cluster.start(tmp_path / "cluster", server.env) as cluster,
        stream_on(cluster, server, tmp_path) as stream,
    ):
        stream.start(DYNAMIC)
        for _ in range(3):
            stream.put()
            print(f"\ncommit with new executors: {seconds_of(stream.settle):.1f} s")
            stream.judge()
            until(lambda: cluster.executors() == [], "the loss of all idle executors")
