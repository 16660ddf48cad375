"""The variables of a small Spark job, with which the job and its workers find txlog."""

import subprocess
import sys
from pathlib import Path

import pytest

from txlog.cli import spark_environment as module
from txlog.cli.spark_environment import (
    CONF_IN_ENVIRONMENT,
    PACKAGES,
    own_conf,
    spark_environment,
)


def test_worker_python_ignores_pyspark_zip_in_pythonpath(tmp_path: Path) -> None:
    """The worker also imports PySpark from its installation, whatever path the JVM puts first."""
    variables = spark_environment(tmp_path)
    assert variables["PYSPARK_PYTHON"] == str(tmp_path / "python")
    code = "import txlog, sys; print(sys.path[1:3], txlog.__file__)"
    done = subprocess.run(
        [tmp_path / "python", "-c", code],
        env={"PYTHONPATH": "/somewhere/pyspark.zip"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "pyspark.zip" not in done.stdout
    assert sys.executable in (tmp_path / "python").read_text()


def test_spark_driver_binds_to_localhost_only(tmp_path: Path) -> None:
    submitted = spark_environment(tmp_path)["PYSPARK_SUBMIT_ARGS"]
    assert "spark.driver.bindAddress=127.0.0.1" in submitted
    assert submitted.endswith("pyspark-shell")


def test_spark_settings_installed_by_a_wheel_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert own_conf() == PACKAGES / "conf"
    monkeypatch.setattr(module, "PACKAGES", tmp_path)
    monkeypatch.setattr(module.sysconfig, "get_path", lambda _: str(tmp_path))
    assert own_conf() is None
    folder = tmp_path / CONF_IN_ENVIRONMENT
    folder.mkdir(parents=True)
    (folder / "spark-defaults.conf").write_text("")
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    assert spark_environment(tmp_path)["SPARK_CONF_DIR"] == str(folder)
