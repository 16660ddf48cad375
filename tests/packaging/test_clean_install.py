"""A wheel in an environment of its own is complete, has a working command, and is found by
Spark."""

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import txlog
from tests.packaging.clean_install import CleanInstall, clean_variables, install_wheel
from tests.source_tree import PRODUCT, ROOT, modules
from txlog.cli.spark_environment import CONF_IN_ENVIRONMENT
from txlog.distribution import DISTRIBUTION

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

DOCTOR = """
import json
from txlog.cli.doctor.check_packages import distribution_checks
print(json.dumps({c.name: {"status": c.status, "found": c.found, "fix": c.fix}
                  for c in distribution_checks()}))
"""

NOT_FOUND = "DATA_SOURCE_NOT_FOUND"
START_SPARK_S = 240
"""Enough for two starts of a JVM on a loaded machine."""


def packed_modules() -> set[str]:
    return {module.place for module in modules(*PRODUCT)}


def test_wheel_contains_exactly_the_product_and_its_settings(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    marks = {f"{package}/py.typed" for package in PRODUCT}
    marks |= {f"txlog/ui/static/{file.name}" for file in (ROOT / "txlog/ui/static").iterdir()}
    data = f"{DISTRIBUTION.replace('-', '_')}-{txlog.__version__}.data/data/{CONF_IN_ENVIRONMENT}"
    conf = {f"{data}/{path.name}" for path in (ROOT / "conf").iterdir()}
    assert packed == packed_modules() | marks | conf


def test_sdist_contains_files_linked_from_readme_and_no_tests(dist: Path) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames() if "/" in name}
    linked = set(
        re.findall(r"\]\(([\w./-]+)[)#]", (ROOT / "README.md").read_text(encoding="utf-8"))
    )
    assert {name for name in linked if not name.startswith("tests/")} - packed == set()
    examples = {module.place for module in modules("examples")}
    assert (packed_modules() | examples) - packed == set()
    assert [name for name in packed if name.startswith(("tests", "benchmarks", "."))] == []


def test_spark_settings_are_installed_with_the_package(install: CleanInstall) -> None:
    folder = install.folder / CONF_IN_ENVIRONMENT
    for path in (ROOT / "conf").iterdir():
        assert (folder / path.name).read_text() == path.read_text()


def test_wheel_metadata_has_author_licence_and_requirements(install: CleanInstall) -> None:
    found = importlib.metadata.distributions(name=DISTRIBUTION, path=[str(install.packages)])
    metadata = next(iter(found)).metadata
    assert metadata["Author"] == "The txlog authors"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    needed = [r for r in metadata.get_all("Requires-Dist") if "extra ==" not in r]
    assert sorted(re.match(r"\w+", r)[0] for r in needed) == ["fsspec", "numpy", "pyarrow"]


def test_clean_install_is_found_by_sparks_discovery_rule(install: CleanInstall) -> None:
    """Spark finds top-level modules named pyspark_* with pkgutil, and imports them."""
    answer = install.run(IMPORTS)
    assert all(place.startswith(str(install.packages)) for place in answer["places"])
    assert "pyspark_txlog" in answer["found"]
    assert answer["source"] == "txlog", answer["error"]


def test_command_is_installed_and_starts(install: CleanInstall) -> None:
    done = subprocess.run(
        [install.folder / "bin" / "txlog", "--help"],
        cwd=install.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "doctor" in done.stdout


@pytest.fixture
def two_claims(install: CleanInstall, tmp_path: Path) -> CleanInstall:
    """A copy of the environment, in which a distribution called txlog is installed later."""
    sources = tmp_path / "sources"
    (sources / "txlog").mkdir(parents=True)
    (sources / "txlog" / "__init__.py").write_text("from txlog.txlog import TxLog\n")
    (sources / "txlog" / "txlog.py").write_text("class TxLog: pass\n")
    (sources / "setup.cfg").write_text(
        "[metadata]\nname = txlog\nversion = 3.1\n[options]\npackages = txlog\n"
    )
    (sources / "pyproject.toml").write_text('[build-system]\nrequires = ["setuptools"]\n')
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", str(sources)]
    subprocess.run(command, capture_output=True, check=True)
    folder = tmp_path / "venv"
    shutil.copytree(install.folder, folder, symlinks=True)
    copied = CleanInstall(folder, install.wheel)
    install_wheel(copied.python, next(sources.glob("dist/*.whl")))
    return copied


def test_doctor_detects_package_overwritten_by_another_distribution(
    two_claims: CleanInstall,
) -> None:
    """The remedy in its message works: uninstall both and install ours again."""
    answer = two_claims.run(DOCTOR)
    assert answer["package txlog"]["status"] == answer[DISTRIBUTION]["status"] == "fail"
    assert "txlog 3.1" in answer["package txlog"]["found"]
    names = re.findall(r"(?<= )txlog[\w-]*", answer["package txlog"]["fix"].partition(",")[0])
    pip = [sys.executable, "-m", "pip", "--python", str(two_claims.python)]
    subprocess.run([*pip, "uninstall", "-qq", "--yes", *names], env=clean_variables(), check=True)
    assert not (two_claims.packages / "txlog").exists()
    install_wheel(two_claims.python, two_claims.wheel)
    answer = two_claims.run(DOCTOR)
    assert "package txlog" not in answer
    assert answer[DISTRIBUTION]["status"] == "ok"


@pytest.mark.spark
@pytest.mark.timeout(START_SPARK_S)
def test_spark_discovers_the_source_and_loads_settings_from_conf(install: CleanInstall) -> None:
    wanted = {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    answer = install.run(SPARK, ",".join(wanted), SPARK_CONF_DIR=str(ROOT / "conf"))
    assert NOT_FOUND not in answer["answers"][0]
    assert "txlog.errors.InvalidOption: the log is not named" in answer["answers"][0]
    assert answer["settings"] == wanted


@pytest.mark.spark
@pytest.mark.timeout(START_SPARK_S)
def test_register_works_without_spark_discovery(install: CleanInstall, tmp_path: Path) -> None:
    """As on a cluster whose session began before the install: the shim is missing here."""
    folder = tmp_path / "venv"
    shutil.copytree(install.folder, folder, symlinks=True)
    bare = CleanInstall(folder, install.wheel)
    shutil.rmtree(bare.packages / "pyspark_txlog")
    conf = str(ROOT / "conf")
    answer = bare.run(SPARK, "spark.app.name", "register", SPARK_CONF_DIR=conf)
    before, after = answer["answers"]
    assert NOT_FOUND in before
    assert NOT_FOUND not in after
    assert "txlog.errors.InvalidOption: the log is not named" in after
