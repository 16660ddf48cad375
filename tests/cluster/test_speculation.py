"""Speculation: a second attempt at a task that really ran, beside the first one."""

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import ADDRESSES, MARKS, Cluster
from tests.cluster.job import BLOCKED
from tests.cluster.stream import Stream, stream_on
from tests.spark.drill import until
from txlog.testing.s3_server import S3Server
from txlog.verify.log_audit import stored_objects

pytestmark = MARKS

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    # A batch of one task has none that has finished, by which Spark could see that it is slow.
    "spark.speculation.task.duration.threshold": "1s",
}


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stream]:
    """A query whose batches have one task each."""
    folder = tmp_path_factory.mktemp("speculation")
    with (
        S3Server.start() as server,
        Cluster.start(folder / "cluster", server.env) as cluster,
        stream_on(cluster, server, folder) as stream,
    ):
        stream.start(SPECULATION, read={"minPartitions": "1"})
        stream.put()
        stream.settle()
        yield stream


def segments(stream: Stream) -> int:
    """The number of segments in the output topics, also those that no journal refers to."""
    ids = {t.topic_id for t in stream.log.admin.describe_topics() if t.name not in ("in-a", "in-b")}
    listed = stored_objects(stream.log.connection)
    return sum("/segments/" in o.path and any(i in o.path for i in ids) for o in listed)


def await_attempts(stream: Stream, batch: int) -> None:
    """Wait until both attempts at the batch's only task run, and check that they are two."""

    def both_run() -> bool:
        stream.driver.check_alive()
        return len([one for one in stream.attempts() if one["batch"] == batch]) >= 2

    until(both_run, "the second attempt")
    first, second = (one for one in stream.attempts() if one["batch"] == batch)
    assert (first["attempt"], second["attempt"]) == (0, 1)
    assert first["partition"] == second["partition"]
    assert {first["address"], second["address"]} == set(ADDRESSES)
    print(f"\nbatch {batch}: tasks {first['task']} and {second['task']} of one partition ran")


def test_I5_I10_two_attempts_that_both_staged_their_rows_are_one_in_the_output(
    stream: Stream,
) -> None:
    stream.settle()
    before = segments(stream)
    stream.stop_at("rows staged")
    stream.put()
    stream.await_stop()
    batch = stream.planned
    await_attempts(stream, batch)
    until(lambda: segments(stream) == before + 4, "both attempts' segments of two topics")
    stream.driver.pauses.release("point")
    stream.settle()
    stream.judge()
    assert stream.committed >= batch
    assert segments(stream) == before + 4


def test_I5_I10_attempt_that_is_overtaken_before_its_rows_changes_nothing(stream: Stream) -> None:
    """The first attempt stands still until the second one's rows are committed."""
    stream.settle()
    blocked = stream.attempts_folder / BLOCKED
    blocked.touch()
    stream.put()
    until(lambda: stream.planned > stream.committed, "the batch")
    batch = stream.planned
    await_attempts(stream, batch)
    until(lambda: stream.has_committed(batch), "the commit of the second attempt")
    blocked.unlink()
    stream.put()
    stream.settle()
    stream.judge()
