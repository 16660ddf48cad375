"""The request budget of docs/dev/request-counts.md for a micro-batch in Spark, counted on the line.

Each row names its topic: the tasks know these topics from the driver, and read no journal.
"""

from dataclasses import replace
from pathlib import Path

from benchmarks.processes import owners
from tests.cluster.cluster import MARKS, Cluster
from tests.cluster.stream import stream_on
from tests.docs.test_request_budget import budget
from txlog.testing.proxy_process import ProxyProcess
from txlog.testing.s3_server import S3Server

pytestmark = MARKS

PARTITIONS, TASKS, TOPICS = 64, 16, 20


def test_micro_batch_of_16_tasks_to_20_topics_matches_the_budget(tmp_path: Path) -> None:
    with S3Server.start() as near, ProxyProcess.to(near.endpoint_url) as line:
        far = replace(near, endpoint_url=line.endpoint_url)
        with (
            Cluster.start(tmp_path / "cluster", far.env) as cluster,
            stream_on(
                cluster, near, tmp_path, partitions=PARTITIONS // 2, outputs=TOPICS
            ) as stream,
        ):
            # What the test itself asks is not counted.
            stream.server = far
            stream.put(PARTITIONS)
            stream.start(read={"minPartitions": str(TASKS)})
            stream.settle()
            line.logged()
            first = stream.planned + 1
            stream.put(PARTITIONS)
            stream.settle()
            requests = line.logged()
            roles = owners(request.port for request in requests)
            batches = stream.committed - first + 1
            tasks = len([one for one in stream.attempts() if one["batch"] >= first])
            stream.server = near
            stream.judge()
    puts = [request for request in requests if request.verb == "PUT"]
    gets = [request for request in requests if request.verb == "GET"]
    print(f"\n{batches} batches, {tasks} tasks: {len(puts)} PUTs, {len(gets)} GETs")
    read_by_tasks = [r.path for r in gets if roles.get(r.port, "").startswith("task")]
    # Small records come with the plan; a process that begins looks whether the log is there.
    assert {path.rpartition("/")[2] for path in read_by_tasks} <= {"txlog.json"}
    assert (batches, tasks) == (1, TASKS)
    allowed, _ = budget("Spark micro-batch, 1 group or none", topics=TOPICS, groups=0, tasks=TASKS)
    assert len(puts) == allowed
