"""The part that is quick: a cluster in which master and workers are threads of the driver's JVM."""

from pathlib import Path

import psutil
import pytest

from tests.cluster.cluster import Cluster, words
from tests.cluster.stream import seconds_of, stream_on
from tests.spark.drill import until
from txlog.testing.s3_server import S3Server

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.spark,
    pytest.mark.s3,
    pytest.mark.slow,
    pytest.mark.timeout(400),
]


def test_I5_I10_query_with_two_executors_of_which_one_is_killed_writes_each_record_once(
    tmp_path: Path,
) -> None:
    with (
        S3Server.start() as server,
        stream_on(Cluster(tmp_path, server.env), server, tmp_path) as stream,
    ):
        stream.put()
        stream.start({"spark.master": "local-cluster[2,1,1024]"})
        stream.stop_at("rows staged")
        stream.await_stop()
        below = psutil.Process(stream.driver.process.pid).children(recursive=True)
        executors = [p for p in below if "CoarseGrainedExecutorBackend" in " ".join(words(p))]
        assert len(executors) == 2

        def recover() -> None:
            executors[0].kill()
            stream.driver.pauses.release("point")
            until(lambda: stream.has_committed(0), "the first commit")

        print(f"\nexecutor killed: {seconds_of(recover):.1f} s until the next commit")
        stream.settle()
        stream.judge()
