"""Creates the archive of Spark's classes with which the JVMs of tests start, once per environment.

`python -m tests.spark.class_archive`. A JVM uses the archive only if its own version and Spark's
jars are exactly those that made it. Without the archive, tests are slower but otherwise the same.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tests.source_tree import ROOT
from tests.spark.environment import CLASS_ARCHIVE, SPARK_ENVIRONMENT

EXIT_LIMIT_S = 120


def main() -> None:
    """Run a typical test, and let the JVM archive the classes that it loaded."""
    with tempfile.TemporaryDirectory(dir=CLASS_ARCHIVE.parent) as folder:
        made = Path(folder) / CLASS_ARCHIVE.name
        os.environ |= SPARK_ENVIRONMENT | {"TXLOG_TESTS_CLASSES_TO": str(made)}
        os.environ.setdefault("SPARK_CONF_DIR", str(ROOT / "conf"))
        _run_queries(Path(folder))
        made.replace(CLASS_ARCHIVE)


def _run_queries(folder: Path) -> None:
    """Produce records, copy them by a stream, read the copy, and end the JVM.

    PySpark is imported here, after its variables are set.
    """
    from pyspark import SparkContext

    from tests.spark.session import small_session

    spark = small_session("classes")
    log = {"path": str(folder / "log")}
    sink = log | {"createTopics": "true"}
    records = spark.createDataFrame([("a", 1), ("b", 2)], "key string, value int")
    records.write.format("txlog").options(**sink, topic="in").mode("append").save()
    source = log | {"subscribe": "in", "group.id": "copier"}
    stream = spark.readStream.format("txlog").options(**source).load()
    counts = stream.select("key", "value").groupBy("key", "value").count()
    for name, rows in (("out", stream.select("key", "value")), ("counts", counts)):
        writer = rows.writeStream.format("txlog" if name == "out" else "memory").queryName(name)
        options = (sink if name == "out" else {}) | {"checkpointLocation": str(folder / name)}
        writer = writer.options(**options, topic=name)
        mode = "append" if name == "out" else "complete"
        writer.outputMode(mode).trigger(availableNow=True).start().awaitTermination()
    spark.read.format("txlog").options(**log, subscribe="out").load().collect()
    gateway = SparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(EXIT_LIMIT_S)


if __name__ == "__main__":
    main()
