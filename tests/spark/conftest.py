"""One Spark session for all tests that need one and kill nothing."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.spark.bench import Bench
from tests.spark.session import small_session
from tests.spark.small_log import small_log
from txlog.testing.invariants import check_log


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session."""
    session = small_session("txlog tests")
    yield session
    session.stop()


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    """A fresh log: Kafka-shaped `numbers` of two partitions, typed `out` of one column `n`.

    When the test is over the log must keep every invariant, unless the test has damaged it.
    """
    log = small_log(tmp_path / "log", {"numbers": 2, "out": pa.schema([("n", pa.int64())])})
    bench = Bench(spark, log, tmp_path)
    yield bench
    if not bench.is_damaged:
        assert check_log(log.connection) == []
