"""A Spark session for the programs in the docs."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.spark.session import small_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that `SparkSession.builder.getOrCreate()` finds."""
    session = small_session("txlog docs")
    yield session
    session.stop()
