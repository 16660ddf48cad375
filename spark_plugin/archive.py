"""Code of txlog in an archive that Spark ships (`--py-files`): a zip file, or a wheel.

Spark puts the archive on the path of all processes that it starts for a registered source but one:
the driver's process of a streaming source gets the source and no path (PythonStreamingSourceRunner
in PySpark 4.2). So a source is pickled with a function by value that extends the path. Classes are
pickled by reference, as always: module globals hold locks.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkFiles
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.utils import is_remote

from txlog.errors import UsageError


def own_archive() -> Path | None:
    """The zip file or wheel that contains this module; None if it is in a folder."""
    return next((parent for parent in Path(__file__).parents if parent.is_file()), None)


def ship(spark: SparkSession, archive: Path) -> None:
    """Put the archive on the path of Spark's Python processes. Raises UsageError over Connect."""
    if is_remote():
        raise UsageError(
            f"txlog is imported from {archive.name}, and a session of Spark Connect cannot ship "
            "it; install txlog in the Python of the Connect server and of its executors."
        )
    context = spark.sparkContext
    if not Path(SparkFiles.get(archive.name)).is_file():
        context.addPyFile(str(archive))
    # Spark ships a wheel, but puts none on the path (SparkContext.PACKAGE_EXTENSIONS).
    includes = context._python_includes
    if includes is not None and archive.name not in includes:
        includes.append(archive.name)


def opener() -> Callable[[str, str, str, Mapping[str, Any]], DataSource]:
    """A function of (archive, module, class, attributes) that returns a source, in a process that
    may not have the archive on its path. It is local, so cloudpickle pickles it by value."""

    def opened(archive: str, module: str, name: str, attributes: Mapping[str, Any]) -> DataSource:
        # It may refer to globals that are modules: those are pickled by name.
        # Executors have the archive elsewhere, and on the path.
        if archive not in sys.path and os.path.isfile(archive):
            sys.path.insert(1, archive)
        kind = getattr(importlib.import_module(module), name)
        source: DataSource = kind.__new__(kind)
        source.__dict__.update(attributes)
        return source

    return opened
