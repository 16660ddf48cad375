"""The Spark session of tests and of the drivers that they kill: conf/, with fewer resources."""

import os
from collections.abc import Mapping

from pyspark.sql import SparkSession

from tests.source_tree import ROOT
from tests.spark.environment import SPARK_ENVIRONMENT

MASTER = "TXLOG_TESTS_MASTER"
"""The variable with another value of `spark.master`."""


def small_session(name: str, config: Mapping[str, str] | None = None) -> SparkSession:
    """Two threads, one JVM; its Python workers import the project from this folder.

    A task may fail once: it is tried twice. `config`: further settings.
    """
    os.environ.update(SPARK_ENVIRONMENT)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    )
    session = (
        SparkSession.builder.master(os.environ.get(MASTER, "local[2,2]"))
        .appName(name)
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.streaming.stopTimeout", "30s")
        .config(map=dict(config or {}))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session
