"""Two applications on one cluster: on one log, and on one checkpoint."""

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import MARKS, Cluster
from tests.cluster.stream import Stream, stream_on
from tests.spark.drill import until
from txlog.testing.s3_server import S3Server

pytestmark = MARKS


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stream]:
    """A query on a cluster with room for two applications."""
    folder = tmp_path_factory.mktemp("two-drivers")
    with (
        S3Server.start() as server,
        Cluster.start(folder / "cluster", server.env, cores=2) as cluster,
        stream_on(cluster, server, folder) as stream,
    ):
        stream.start()
        stream.put()
        stream.settle()
        yield stream


def test_I5_I10_two_applications_on_one_log_write_each_record_once(stream: Stream) -> None:
    other = stream.beside("other")
    try:
        other.start()
        for _ in range(3):
            stream.put()
            stream.settle()
        other.settle()
        state = stream.cluster.state() or {}
        assert len(state["activeapps"]) == 2
        stream.judge()
        other.judge()
    finally:
        other.close()


def test_R12_R27_the_older_of_two_applications_on_one_checkpoint_is_fenced(stream: Stream) -> None:
    older = stream.driver
    stream.settle()
    stream.stop_at("before PREPARE_COMMIT")
    stream.put()
    stream.await_stop()
    stream.start()
    stream.settle()
    stream.judge()
    older.pauses.release("point")
    until(lambda: older.error_of(stream.name) is not None, "the end of the older application")
    said = older.error_of(stream.name) or ""
    # It is fenced, or finds its batch committed: then Spark's own files conflict.
    assert "ProducerFenced" in said or "CONCURRENT_STREAM_LOG_UPDATE" in said
    stream.put()
    stream.settle()
    stream.judge()
