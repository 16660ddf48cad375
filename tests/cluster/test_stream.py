"""A query on a standalone cluster with its log in a bucket, without faults."""

from pathlib import Path

from tests.cluster.cluster import ADDRESSES, MARKS, Cluster
from tests.cluster.stream import stream_on
from txlog.testing.s3_server import S3Server

pytestmark = MARKS


def test_query_on_two_workers_writes_each_record_once(tmp_path: Path) -> None:
    with (
        S3Server.start() as server,
        Cluster.start(tmp_path / "cluster", server.env) as cluster,
        stream_on(cluster, server, tmp_path) as stream,
    ):
        stream.put()
        stream.start()
        for _ in range(3):
            stream.settle()
            stream.judge()
            stream.put()
        stream.settle()
        stream.judge()
        assert stream.addresses(0) == set(ADDRESSES)
