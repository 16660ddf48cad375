"""One Spark session for all tests that start one, with the settings of conf/ and small ones."""

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.source_tree import ROOT


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two threads, one JVM; its Python workers import the project from this folder."""
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    )
    session = (
        SparkSession.builder.master("local[2]")
        .appName("txlog tests")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.streaming.stopTimeout", "30s")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
