"""A worker on a bucket 30 ms away is killed at each step; records ride in segments and in
entries."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.integration import exactly_once_worker as worker
from tests.integration.exactly_once_worker import GROUP, RESULTS, SOURCE, STAGED_STEPS, STEPS
from tests.processes.forked_process import run_forked
from txlog.client.admin import Admin
from txlog.client.producer.producer import Producer
from txlog.clock import Runtime
from txlog.engine.connection import Connection, open_connection
from txlog.engine.producer_config import STAGED
from txlog.layout import is_segment
from txlog.model import TransactionOutcome, TxId
from txlog.storage import open_store
from txlog.testing.proxy_process import ProxyProcess
from txlog.testing.s3_server import S3Server
from txlog.verify.invariants import check_log

pytestmark = [pytest.mark.s3, pytest.mark.slow, pytest.mark.extra, pytest.mark.timeout(400)]

ROUND_TRIP_MS = 30.0
COUNT = 6


@dataclass(frozen=True)
class Bucket:
    """A server, and the storage options of a client that is far from it."""

    server: S3Server
    far: dict[str, object]

    def process(self, root: str) -> Connection:
        """The log as a new process near the server opens it."""
        runtime = Runtime()
        return open_connection(open_store(root, runtime, self.server.storage_options), runtime)


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with S3Server.start() as server, ProxyProcess.to(server.endpoint_url, ROUND_TRIP_MS) as line:
        near = server.storage_options
        yield Bucket(server, {**near, "endpoint_url": line.endpoint_url})


def values(connection: Connection, topic: str) -> list[bytes]:
    consumer = worker.Consumer(topic, root=connection, auto_offset_reset="earliest")
    return [record.value for record in consumer.read_to_end()]


@pytest.mark.parametrize("step", STAGED_STEPS)
def test_I5_successor_of_a_worker_killed_on_a_far_bucket_loses_and_repeats_nothing(
    bucket: Bucket, step: str
) -> None:
    root = bucket.server.url(step.replace(" ", "-"))
    admin = Admin(root, create=True, storage_options=bucket.server.storage_options)
    for name in (SOURCE, *RESULTS):
        admin.create_topic(name)
    with Producer(admin.connection) as producer:
        for number in range(COUNT):
            producer.send(SOURCE, b"%d" % number)
    done = run_forked(worker.main, STAGED, root, step, bucket.far)
    assert done.status == -signal.SIGKILL, done.err
    doomed = TxId.parse(done.out.split()[1])
    successor = bucket.process(root)
    worker.work(successor)
    is_decided = list(STEPS).index(step) >= list(STEPS).index("after PREPARE")
    expected = TransactionOutcome.COMMITTED if is_decided else TransactionOutcome.ABORTED
    assert successor.outcome(doomed) is expected
    for topic in RESULTS:
        found = values(bucket.process(root), topic)
        assert found == [b"result %d" % number for number in range(COUNT)]
    assert Admin(successor).describe_group(GROUP).lag == 0
    assert check_log(bucket.process(root)) == []
    paths = [one.path for one in successor.cluster.store.list_after("topics/")]
    assert {path.split("/")[1] for path in paths if is_segment(path)} == {"left"}
