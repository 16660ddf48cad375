"""A wheel in an environment of its own: whole, started by its command, and found by Spark."""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.source_tree import PRODUCT, ROOT, modules

pytestmark = pytest.mark.slow

IMPORTS = """
import json, pkgutil, sys, txlog, spark_plugin, pyspark_txlog
print(json.dumps({
    "places": [module.__file__ for module in (txlog, spark_plugin, pyspark_txlog)],
    "found": [m.name for m in pkgutil.iter_modules() if m.name.startswith("pyspark_")],
    "error": repr(pyspark_txlog.IMPORT_ERROR),
    "source": pyspark_txlog.DefaultSource.name() if pyspark_txlog.IMPORT_ERROR is None else None,
}))
"""

SPARK = """
import json, sys
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

def answer_to_load():
    # Without options there is nothing to read: the answer is an error, and tells whose.
    try:
        return str(spark.read.format("txlog").load().schema)
    except (PySparkException, Py4JJavaError) as error:
        return str(error)[:3000]

spark = SparkSession.builder.master("local[2]").getOrCreate()
answers = [answer_to_load()]
if "register" in sys.argv:
    from spark_plugin import register
    register(spark)
    answers.append(answer_to_load())
settings = {name: spark.conf.get(name, None) for name in sys.argv[1].split(",")}
print(json.dumps({"answers": answers, "settings": settings}))
spark.stop()
"""

NOT_FOUND = "DATA_SOURCE_NOT_FOUND"
START_SPARK_S = 240
"""Two starts of a JVM on a loaded machine."""


@dataclass(frozen=True)
class CleanInstall:
    """An environment that holds the wheel; the heavy packages are borrowed, this folder is not."""

    folder: Path
    wheel: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        return next(self.folder.glob("lib/python*/site-packages"))

    def run(self, program: str, *arguments: str, **variables: str) -> dict[str, Any]:
        """Run `program` outside of this folder; it prints its answer as the last line, in JSON."""
        done = subprocess.run(
            [self.python, "-c", program, *arguments],
            cwd=self.folder,
            env=clean_variables() | {"PYSPARK_PYTHON": str(self.python)} | variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])


def clean_variables() -> dict[str, str]:
    """The environment without the way to this folder, by which pip would call txlog installed."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def copy_of_the_sources(folder: Path) -> Path:
    """What a clone holds of the product, without what earlier builds left here."""
    folder.mkdir()
    for name in ("setup.cfg", "pyproject.toml", "LICENSE", "README.md"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, folder)
    for name in PRODUCT:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as a release is: a source distribution, and the wheel from what that one holds."""
    folder = tmp_path_factory.mktemp("build")
    sources = copy_of_the_sources(folder / "sources")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder)]
    done = subprocess.run([*command, str(sources)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def install(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> CleanInstall:
    """A fresh environment with the wheel, and a path to the packages that it depends on.

    A plain path line adds a folder after the environment's own; the .pth file in that folder, by
    which an editable install makes the checkout importable, is not read.
    """
    folder = tmp_path_factory.mktemp("clean") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    clean = CleanInstall(folder, wheel)
    pip = [sys.executable, "-m", "pip", "--python", str(clean.python), "install", "--quiet"]
    command = [*pip, "--no-deps", "--no-index", str(wheel)]
    subprocess.run(command, env=clean_variables(), check=True)
    (clean.packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return clean


def test_the_wheel_holds_every_module_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    marks = {f"{package}/py.typed" for package in PRODUCT}
    assert packed == {module.place for module in modules(*PRODUCT)} | marks


def test_the_wheel_names_its_licence_and_its_requirements(install: CleanInstall) -> None:
    found = importlib.metadata.distributions(name="txlog", path=[str(install.packages)])
    metadata = next(iter(found)).metadata
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    needed = [r for r in metadata.get_all("Requires-Dist") if "extra ==" not in r]
    assert sorted(re.match(r"\w+", r)[0] for r in needed) == ["fsspec", "numpy", "pyarrow"]


def test_a_clean_install_is_seen_by_the_rule_of_spark(install: CleanInstall) -> None:
    """Spark looks for top-level modules named pyspark_* with pkgutil, and imports them."""
    answer = install.run(IMPORTS)
    assert all(place.startswith(str(install.packages)) for place in answer["places"])
    assert "pyspark_txlog" in answer["found"]
    assert answer["source"] == "txlog", answer["error"]


def test_the_command_is_installed_and_starts(install: CleanInstall) -> None:
    done = subprocess.run(
        [install.folder / "bin" / "txlog", "--help"],
        cwd=install.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "doctor" in done.stdout


@pytest.mark.spark
@pytest.mark.timeout(START_SPARK_S)
def test_spark_discovers_the_source_and_takes_the_settings_of_conf(install: CleanInstall) -> None:
    wanted = {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    answer = install.run(SPARK, ",".join(wanted), SPARK_CONF_DIR=str(ROOT / "conf"))
    assert NOT_FOUND not in answer["answers"][0]
    assert str(install.packages / "spark_plugin") in answer["answers"][0]
    assert answer["settings"] == wanted


@pytest.mark.spark
@pytest.mark.timeout(START_SPARK_S)
def test_register_serves_where_spark_discovers_nothing(
    install: CleanInstall, tmp_path: Path
) -> None:
    """As on a cluster whose session began before the install: here the shim is not there at all."""
    folder = tmp_path / "venv"
    shutil.copytree(install.folder, folder, symlinks=True)
    bare = CleanInstall(folder, install.wheel)
    shutil.rmtree(bare.packages / "pyspark_txlog")
    conf = str(ROOT / "conf")
    answer = bare.run(SPARK, "spark.app.name", "register", SPARK_CONF_DIR=conf)
    before, after = answer["answers"]
    assert NOT_FOUND in before
    assert NOT_FOUND not in after
    assert str(bare.packages / "spark_plugin") in after
