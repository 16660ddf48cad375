"""SIGKILL to every kind of process of a query on a cluster, each in the middle of a batch.

After each kill the query must go on by itself, or, without its driver, from its checkpoint. Each
test prints the seconds from the kill to the next commit.
"""

from collections.abc import Callable, Iterable, Iterator

import psutil
import pytest

from tests.cluster.cluster import ADDRESSES, MARKS, Cluster, words
from tests.cluster.stream import Stream, seconds_of, stream_on
from tests.spark.drill import until
from txlog.testing.s3_server import S3Server

pytestmark = MARKS

FIRST, SECOND = ADDRESSES
DRIVER_POINTS = ("rows staged", "after PREPARE_COMMIT", "after the first marker", "commit returned")
"""`txlog drill` kills a driver at all points; here executors are left behind."""
COMMITTER_POINTS = (
    "before PREPARE_COMMIT",
    "after PREPARE_COMMIT",
    "before the first marker",
    "after the first marker",
)
SOURCE = "pyspark.sql.streaming.python_streaming_source_runner"
PLANNER = "pyspark.sql.worker.write_into_data_source"
COMMITTER = "pyspark.sql.worker.python_streaming_sink_runner"


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stream]:
    """A query that runs on both workers; a query that fails is started again by its driver."""
    folder = tmp_path_factory.mktemp("kills")
    with (
        S3Server.start() as server,
        Cluster.start(folder / "cluster", server.env) as cluster,
        stream_on(cluster, server, folder) as stream,
    ):
        stream.start(starts_max=10)
        stream.put()
        stream.settle()
        yield stream


def killed(stream: Stream, what: str, point: str, kill: Callable[[], None]) -> None:
    """Stop a batch at the point, kill, and wait until the batch is committed.

    Without a point the query is killed while it waits for input."""
    stream.settle()
    driver, batch = stream.driver, stream.planned + 1
    if point:
        stream.stop_at(point)
        stream.put()
        stream.await_stop()
        assert stream.committed < batch == stream.planned
    if point == "rows staged":
        # All its tasks stop there, so that each executor has a task that is not finished.
        until(lambda: stream.addresses(batch) == set(ADDRESSES), "a task on each worker")

    def recover() -> None:
        kill()
        if point:
            # Nothing stops there again.
            driver.pauses.release("point")
        else:
            stream.put()
        until(lambda: stream.has_committed(batch), "the next commit")

    print(f"\n{what} killed, {point!r}: {seconds_of(recover):.1f} s until the next commit")
    stream.put()
    stream.settle()
    stream.judge()


def kill(processes: Iterable[psutil.Process]) -> None:
    """Send SIGKILL to all of them, at least one."""
    found = list(processes)
    assert found
    for process in found:
        process.kill()
    psutil.wait_procs(found, timeout=60)


def of_driver(stream: Stream, *wanted: str) -> list[psutil.Process]:
    """The Python processes of the driver whose command has one of these words."""
    below = psutil.Process(stream.driver.process.pid).children(recursive=True)
    return [p for p in below if set(wanted) & set(words(p))]


def all_executors(stream: Stream) -> None:
    """Wait until the query has an executor on each worker again."""
    cluster = stream.cluster
    until(lambda: all(len(cluster.workers[a].executors) == 1 for a in ADDRESSES), "both executors")


@pytest.mark.parametrize("address", ADDRESSES)
def test_I5_I10_executor_killed(stream: Stream, address: str) -> None:
    all_executors(stream)
    executors = stream.cluster.workers[address].executors
    killed(stream, f"executor on {address}", "rows staged", lambda: kill(executors))


def test_I5_I10_both_executors_killed(stream: Stream) -> None:
    all_executors(stream)
    killed(stream, "both executors", "rows staged", lambda: kill(stream.cluster.executors()))


def test_I5_I10_python_workers_killed(stream: Stream) -> None:
    all_executors(stream)
    worker = stream.cluster.workers[SECOND]
    killed(stream, "Python workers", "rows staged", lambda: kill(worker.python_workers))


def test_I5_I10_python_daemons_killed(stream: Stream) -> None:
    all_executors(stream)
    worker = stream.cluster.workers[SECOND]
    killed(stream, "Python daemons", "rows staged", lambda: kill(worker.daemons))


@pytest.mark.parametrize("point", DRIVER_POINTS)
def test_I5_I6_I10_driver_killed_and_started_in_another_folder(stream: Stream, point: str) -> None:
    """With its JVM and Python processes; the executors end by themselves."""

    def restart() -> None:
        stream.driver.kill()
        stream.start(starts_max=10)

    all_executors(stream)
    killed(stream, "driver", point, restart)


def test_I5_I10_process_of_the_source_killed(stream: Stream) -> None:
    """The query fails, and its driver starts it again."""
    killed(stream, "source process", "", lambda: kill(of_driver(stream, SOURCE)))


def test_I5_I10_planner_killed(stream: Stream) -> None:
    killed(stream, "planner", "batch planned", lambda: kill(of_driver(stream, PLANNER)))


@pytest.mark.parametrize("point", COMMITTER_POINTS)
def test_I5_I6_I10_committer_killed(stream: Stream, point: str) -> None:
    killed(stream, "committer", point, lambda: kill(of_driver(stream, COMMITTER)))


@pytest.mark.parametrize("address", ADDRESSES)
def test_I5_I10_worker_killed_with_its_executor(stream: Stream, address: str) -> None:
    all_executors(stream)
    cluster = stream.cluster
    killed(
        stream,
        f"worker on {address} with its executor",
        "rows staged",
        lambda: cluster.kill_worker(address),
    )
    cluster.start_worker(address)
    all_executors(stream)


def test_I5_I10_master_killed_and_started_again(stream: Stream) -> None:
    """A query goes on without a master; a new one gives it executors again."""
    all_executors(stream)
    cluster = stream.cluster
    killed(stream, "master", "rows staged", cluster.kill_master)
    cluster.start_master()

    def is_recovered() -> bool:
        state = cluster.state() or {}
        apps = [app["state"] for app in state.get("activeapps", [])]
        return len(cluster.alive()) == len(ADDRESSES) and apps == ["RUNNING"]

    print(f"\nmaster started again: {seconds_of(lambda: until(is_recovered, 'the workers')):.1f} s")
    killed(stream, "both executors", "rows staged", lambda: kill(cluster.executors()))
    all_executors(stream)
