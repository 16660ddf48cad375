"""Environment variables with which a small Spark job starts quickly and its workers find txlog.

For the jobs of the drill and of the demo; a user's own job keeps its variables.
"""

from __future__ import annotations

import os
import shlex
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import txlog
from txlog.clock import Runtime

PACKAGES = Path(txlog.__file__).resolve().parents[1]
"""The folder that contains the package txlog: the sources', or that of all installed packages."""

DRILL_STARTUP = PACKAGES / "spark_plugin" / "drill" / "startup"
"""The `sitecustomize` by which processes of a drilled job stop at the drill's points."""

SPARK_DEFAULTS = "spark-defaults.conf"
CONF_IN_ENVIRONMENT = "share/txlog/conf"
"""Where a wheel puts the settings for Spark, below the environment (data_files in setup.cfg)."""

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""A driver lives for half a minute: the optimising compiler would cost more than it gains."""

SPARK_CONF = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.master": "local[1]",
    "spark.ui.enabled": "false",
}
"""Several drivers may share two cores; nothing listens beyond this machine."""

SOCKET_FOLDER_LENGTH_MAX = 60
"""Characters; Unix sockets with longer names cannot be created on every system."""


def spark_environment(scratch: Path) -> Mapping[str, str]:
    """This process's variables, with the paths of txlog and of Spark's temporary files."""
    spark = {**SPARK_CONF, "spark.driver.extraJavaOptions": JAVA_OPTIONS}
    if len(str(scratch)) <= SOCKET_FOLDER_LENGTH_MAX:
        # A killed driver's files are deleted with the folder, which only its owner can enter.
        spark["spark.driver.extraJavaOptions"] += f" -Djava.io.tmpdir={scratch}"
        spark["spark.python.unix.domain.socket.dir"] = str(scratch)
    conf = [f"--conf {shlex.quote(f'{name}={value}')}" for name, value in spark.items()]
    variables = {
        **os.environ,
        "PYTHONPATH": python_path(),
        "PYSPARK_PYTHON": str(_worker_python(scratch)),
        "PYSPARK_SUBMIT_ARGS": " ".join([*conf, "pyspark-shell"]),
        "SPARK_LOCAL_DIRS": str(scratch),
    }
    settings = own_conf()
    if not os.environ.get("SPARK_CONF_DIR") and settings is not None:
        variables["SPARK_CONF_DIR"] = str(settings)
    return variables


def own_conf() -> Path | None:
    """The folder of txlog's settings for Spark: beside the sources, or where a wheel puts it."""
    for folder in (PACKAGES / "conf", Path(sysconfig.get_path("data")) / CONF_IN_ENVIRONMENT):
        if (folder / SPARK_DEFAULTS).is_file():
            return folder
    return None


def python_path() -> str:
    """PYTHONPATH with the drill's hooks and txlog's own folder before all others."""
    paths = [str(DRILL_STARTUP), str(PACKAGES), os.environ.get("PYTHONPATH")]
    return os.pathsep.join(filter(None, paths))


def _worker_python(scratch: Path) -> Path:
    """A Python for Spark's workers that imports the installed PySpark.

    The JVM puts PySpark's zip file first on their path, and Python compiles what it imports from a
    zip file again in every process: 0.7 s of a core, ten times at each start of a driver.
    """
    script = scratch / "python"
    if not script.exists():
        path, python = shlex.quote(python_path()), shlex.quote(sys.executable)
        fresh = scratch / f"python.{Runtime().entropy.token()[:8]}"
        fresh.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {python} "$@"\n', encoding="utf-8")
        fresh.chmod(0o755)
        # Renamed when it is complete: jobs that share the folder must not start half a script.
        fresh.rename(script)
    return script
