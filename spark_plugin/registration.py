"""Explicit registration, for clusters without auto-discovery."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from spark_plugin.datasource import TxlogDataSource


def register(spark: SparkSession) -> None:
    """Make `format("txlog")` known to a session that does not find it by itself.

    Code from `--py-files` is sent along by value: otherwise the process on the driver that runs a
    streaming source would not find it.
    """
    if _from_archive(TxlogDataSource.__module__):
        for name in [n for n in sys.modules if n.split(".")[0] in ("txlog", "spark_plugin")]:
            cloudpickle.register_pickle_by_value(sys.modules[name])  # type: ignore[no-untyped-call]
    spark.dataSource.register(TxlogDataSource)


def _from_archive(module: str) -> bool:
    """Whether the module is inside a zip file."""
    place = Path(sys.modules[module].__file__ or "")
    return any(parent.is_file() and zipfile.is_zipfile(parent) for parent in place.parents)
