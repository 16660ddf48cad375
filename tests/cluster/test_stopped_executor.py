"""An executor that stands still, as one behind a broken network, until Spark gives it up."""

from pathlib import Path

import psutil

from tests.cluster.cluster import ADDRESSES, MARKS, Cluster
from tests.cluster.stream import seconds_of, stream_on
from tests.spark.drill import until
from txlog.testing.s3_server import S3Server

pytestmark = MARKS

SHORT_TIMES = {
    "spark.executor.heartbeatInterval": "2s",
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "2s",
}
"""By default Spark waits two minutes for a heartbeat."""


def test_I5_I10_executor_that_is_given_up_and_goes_on_later_doubles_nothing(tmp_path: Path) -> None:
    with (
        S3Server.start() as server,
        Cluster.start(tmp_path / "cluster", server.env) as cluster,
        stream_on(cluster, server, tmp_path) as stream,
    ):
        stream.start(SHORT_TIMES)
        stream.put()
        stream.settle()
        stream.stop_at("rows staged")
        stream.put()
        stream.await_stop()
        batch = stream.planned
        until(lambda: stream.addresses(batch) == set(ADDRESSES), "a task on each worker")
        (executor,) = cluster.workers[ADDRESSES[1]].executors
        stopped = [executor, *executor.children(recursive=True)]
        for process in stopped:
            process.suspend()

        def recover() -> None:
            stream.driver.pauses.release("point")
            until(lambda: stream.has_committed(batch), "the commit without the executor")

        print(f"\nexecutor stands still: {seconds_of(recover):.1f} s until the next commit")
        tried = [one["partition"] for one in stream.attempts() if one["batch"] == batch]
        assert len(tried) > len(set(tried))
        for process in stopped:
            if process.is_running():
                process.resume()
        psutil.wait_procs(stopped, timeout=60)
        stream.put()
        stream.settle()
        stream.judge()
