"""The PySpark source and sink of txlog; the only package besides its shim that knows Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `format("txlog")` known to a session that does not find it by itself.

    Needed where Spark's Python cannot list installed packages: `--py-files`, some editable
    installs. If the package came in a zip, its code travels with every task.
    """
    from spark_plugin.registration import register_source

    register_source(spark)
