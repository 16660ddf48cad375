"""Variables with which Spark starts quickly in tests, also where a user's program starts it."""

from __future__ import annotations

import sys

from tests.source_tree import ROOT

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -XX:MetaspaceSize=192m"
"""A JVM that lives for a minute never earns back what the second compiler costs.

Spark's classes fill 150 MB, and each time they reach a smaller limit all garbage is collected.
"""

SPARK_ENVIRONMENT = {
    "PYSPARK_PYTHON": str(ROOT / "tests" / "spark" / "python"),
    "SPARK_LAUNCHER_OPTS": QUICK_JVM,
    "SPARK_SUBMIT_OPTS": QUICK_JVM,
    "TXLOG_TESTS_PYTHON": sys.executable,
}
