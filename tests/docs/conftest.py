"""A Spark session for the programs in the docs."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.spark.session import end_jvm, small_session


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """The session that `SparkSession.builder.getOrCreate()` finds.

    Its JVM started in a test's own folder and cannot leave it, so that other tests get another.
    """
    session = small_session("txlog docs")
    yield session
    session.stop()
    end_jvm()
