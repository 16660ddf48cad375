"""Executors that were set up in another way than the driver: the query works, or says what is
wrong; it never loses a record."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.cluster import ADDRESSES, MARKS, SPARK_HOME, Cluster
from tests.cluster.stream import Stream, stream_on
from tests.source_tree import PRODUCT, ROOT
from tests.spark.drill import until
from txlog.cli.spark_environment import python_path
from txlog.distribution import VERSION
from txlog.testing.s3_server import S3Server

pytestmark = MARKS

HERE = Path(__file__).parent
ONCE = {"spark.task.maxFailures": "1"}
HOUR_S = 3600
OTHER_PYSPARK = "4.1.4"


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stream]:
    """A log whose server checks credentials, and a cluster without workers."""
    folder = tmp_path_factory.mktemp("executors")
    with (
        S3Server.start(check_credentials=True) as server,
        Cluster.start(folder / "cluster", server.env, workers=0) as cluster,
        stream_on(cluster, server, folder) as stream,
    ):
        stream.put()
        yield stream


@pytest.fixture(scope="module")
def other_pyspark() -> Path:
    """The folder of another version of PySpark, which is installed once."""
    folder = ROOT / ".servers" / f"pyspark-{OTHER_PYSPARK}"
    if not (folder / "pyspark").exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
        subprocess.run([*pip, "--target", folder, f"pyspark=={OTHER_PYSPARK}"], check=True)
    return folder


@contextmanager
def running(
    first: Stream,
    name: str,
    *,
    without: tuple[str, ...] = (),
    spark: Path = SPARK_HOME,
    **env: str,
) -> Iterator[Stream]:
    """A query of its own on one worker, whose machine has these variables and not those."""
    first.cluster.start_worker(ADDRESSES[1], without=without, spark=spark, **env)
    stream = first.beside(name)
    try:
        stream.start(ONCE)
        yield stream
    finally:
        stream.close()
        first.cluster.kill_worker(ADDRESSES[1])


def error(stream: Stream) -> str:
    """The error with which the query ended. Nothing is in its output."""
    driver = stream.driver
    until(lambda: driver.error_of(stream.name) is not None, "the end of the query")
    assert [stream.log.rows(topic) for topic in stream.outputs] == [[], []]
    said = driver.error_of(stream.name) or ""
    print(f"\n{stream.name}: {said[:700]}")
    return said


def test_executor_without_credentials_is_named_with_its_host(first: Stream) -> None:
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    with running(first, "no-credentials", without=keys) as stream:
        said = error(stream)
    assert "StoreDenied" in said
    assert "on host " in said
    assert "AWS_ACCESS_KEY_ID" in said


def test_executor_without_txlog_is_named(first: Stream) -> None:
    paths = f"{HERE / 'without_txlog'}:{python_path()}"
    with running(first, "no-txlog", PYTHONPATH=paths) as stream:
        said = error(stream)
    assert "No module named 'spark_plugin'" in said


def test_executor_with_another_version_of_txlog_is_refused(first: Stream, tmp_path: Path) -> None:
    for package in PRODUCT:
        shutil.copytree(ROOT / package, tmp_path / package)
    file = tmp_path / "txlog" / "distribution.py"
    file.write_text(file.read_text().replace(f'"{VERSION}"', '"9.8.7"'))
    # Spark puts the driver's PYTHONPATH before the executor's in the tasks of a source or sink.
    first_on_path = f"import sys; sys.path.insert(0, {str(tmp_path)!r})"
    (tmp_path / "sitecustomize.py").write_text(first_on_path)
    paths = f"{python_path()}:{tmp_path}"
    with running(first, "other-txlog", PYTHONPATH=paths) as stream:
        said = error(stream)
    assert "9.8.7" in said
    assert VERSION in said


def test_I5_I10_executor_whose_python_has_another_pyspark_writes_each_record_once(
    first: Stream, other_pyspark: Path, tmp_path: Path
) -> None:
    """Its Spark puts the PySpark that belongs to it first on the path of its Python."""
    own = SPARK_HOME / "python" / "lib" / "pyspark.zip"
    python = tmp_path / "python"
    # The tests' Python of tasks leaves that zip file out.
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{own}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    paths = f"{python_path()}:{other_pyspark}"
    with running(
        first, "other-pyspark", PYTHONPATH=paths, TXLOG_TESTS_PYTHON=str(python)
    ) as stream:
        stream.settle()
        stream.judge()


def test_executor_of_another_spark_is_refused_by_spark(first: Stream, other_pyspark: Path) -> None:
    with running(first, "other-spark", spark=other_pyspark / "pyspark") as stream:
        said = error(stream)
    assert "InvalidClassException" in said
    assert "local class incompatible" in said


@pytest.mark.parametrize("off_s", [-HOUR_S, HOUR_S])
def test_I5_I10_executor_whose_clock_is_an_hour_off_writes_each_record_once(
    first: Stream, off_s: int
) -> None:
    """The clock of its Python; obstore and the JVM have the machine's."""
    paths = f"{python_path()}:{HERE / 'other_clock'}"
    with running(first, f"clock-{off_s}", PYTHONPATH=paths, TESTS_CLOCK_OFF_S=str(off_s)) as stream:
        stream.settle()
        stream.put()
        stream.settle()
        stream.judge()
        clocks = [one["clock_s"] - time.time() for one in stream.attempts()]
    assert clocks
    assert all(abs(clock - off_s) < HOUR_S / 2 for clock in clocks)
