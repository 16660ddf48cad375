"""Variables with which Spark starts quickly in tests, even if a user's program starts it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tests.source_tree import ROOT

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -XX:MetaspaceSize=192m"
"""In a JVM that lives for a minute the second compiler costs more than it saves.

Spark's classes fill 150 MB, and each time they reach a smaller limit all garbage is collected.
"""

CLASS_ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
"""Spark's classes as the JVM maps them; without this file Spark only starts more slowly."""

JAVA = os.environ.get("TXLOG_TESTS_JAVA") or shutil.which(
    "java", path=os.path.join(os.environ["JAVA_HOME"], "bin") if "JAVA_HOME" in os.environ else None
)
"""The Java that `make` asks for, which `tests/spark/java/bin/java` runs."""

SPARK_ENVIRONMENT = {
    # numpy starts a thread for each core otherwise: 0.07 s of a core for each of many processes.
    "OPENBLAS_NUM_THREADS": "1",
    "PYSPARK_PYTHON": str(ROOT / "tests" / "spark" / "python"),
    "SPARK_LAUNCHER_OPTS": QUICK_JVM,
    "SPARK_SUBMIT_OPTS": QUICK_JVM,
    "TXLOG_TESTS_PYTHON": sys.executable,
    "TXLOG_TESTS_CLASSES": str(CLASS_ARCHIVE),
    "TXLOG_TESTS_JAVA": JAVA or "java",
    "JAVA_HOME": str(ROOT / "tests" / "spark" / "java"),
}
