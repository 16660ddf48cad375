"""One Spark session for all tests that need one and kill nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.logs.memory_log import SEGMENTS
from tests.spark.bench import Bench, bench_in
from tests.spark.session import small_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session."""
    session = small_session("txlog tests")
    yield session
    session.stop()


@pytest.fixture
def bench(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    """A fresh log, in a folder of its own."""
    is_marked = request.node.get_closest_marker("segments") is not None
    with bench_in(spark, tmp_path, SEGMENTS if is_marked else None) as bench:
        yield bench
