"""Executors whose Python has no txlog get it from Spark: as a wheel, a zip file, or an
environment."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.packaging.clean_install import CleanInstall, clean_variables, python_without_txlog
from tests.packaging.shipped_job import ROWS
from tests.source_tree import PRODUCT
from tests.spark.environment import QUICK_JVM, SPARK_ENVIRONMENT

pytestmark = pytest.mark.slow

SPARK_HOME = Path(pyspark.__file__).parent
JOB = Path(__file__).parent / "shipped_job.py"
OPTIONS = {
    "spark.master": "local-cluster[2,1,1024]",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
"""Two executors, each a process with a folder of its own."""

PICKLE = """
import sys
from pathlib import Path
from pyspark import cloudpickle
from spark_plugin.datasource import TxlogDataSource
class OfSession(TxlogDataSource):  # As `register` makes one in a session with such a location.
    __module__ = TxlogDataSource.__module__
    _checkpoints = "/checkpoints"
OfSession.__name__ = OfSession.__qualname__ = TxlogDataSource.__name__
Path(sys.argv[1]).write_bytes(cloudpickle.dumps(OfSession({"topic": "out"})))
"""
UNPICKLE = """
import sys
from pathlib import Path
from pyspark import cloudpickle
source = cloudpickle.loads(Path(sys.argv[1]).read_bytes())
writer = sys.modules[type(source).__module__].__file__
print(type(source).__name__, source.options, source._checkpoints, writer)
"""

REGISTER = """
from spark_plugin import register
try:
    register(None)
except ValueError as error:
    print(error.code, error)
"""


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with all packages but txlog."""
    return python_without_txlog(tmp_path_factory.mktemp("bare") / "venv")


@pytest.fixture(scope="session")
def archive(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of the wheel in a zip file."""
    made = tmp_path_factory.mktemp("archive") / "txlog.zip"
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(made, "w") as target:
        for name in source.namelist():
            if name.startswith(PRODUCT):
                target.writestr(name, source.read(name))
    return made


def submit(
    folder: Path, *words: str, python: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the job by spark-submit in a folder; behind `--` are the job's own words."""
    env = clean_variables() | SPARK_ENVIRONMENT
    env |= {"SPARK_HOME": str(SPARK_HOME), "SPARK_WORKER_DIR": str(folder / "work")}
    env |= {"PYSPARK_PYTHON": python} | variables
    log, answer = folder / "log", folder / "answer.json"
    options, arguments = (words[: words.index("--")], words[words.index("--") + 1 :])
    conf = folder / "job.conf"
    conf.write_text("".join(f"{name} {value}\n" for name, value in OPTIONS.items()))
    spark_submit = [SPARK_HOME / "bin" / "spark-submit", "--properties-file", conf]
    command = [*spark_submit, *options, JOB, log, answer, *arguments]
    return subprocess.run(
        [*map(str, command)], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


def check_shipped(folder: Path, done: subprocess.CompletedProcess[str], suffix: str) -> None:
    """The job has copied all rows, and executors imported txlog from their own folders."""
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads((folder / "answer.json").read_text())
    assert found["copied"] == list(range(ROWS))
    folders = {folder for folder, _ in found["places"]}
    assert len(folders) == 2, "one executor ran both tasks"
    for folder, place in found["places"]:
        assert place == os.path.join(folder, suffix)


@pytest.mark.parametrize("kind", ["wheel", "archive"])
def test_source_from_an_archive_is_unpickled_without_the_archive_on_the_path(
    kind: str, bare: Path, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """As in the driver's process of a streaming source."""
    place, pickled = request.getfixturevalue(kind), tmp_path / "pickled"
    env = clean_variables()
    with_path = env | {"PYTHONPATH": str(place)}
    subprocess.run([bare, "-c", PICKLE, pickled], cwd=tmp_path, env=with_path, check=True)
    said = subprocess.check_output([bare, "-c", UNPICKLE, pickled], cwd=tmp_path, env=env)
    name = "TxlogDataSource {'topic': 'out'} /checkpoints "
    assert said.decode() == f"{name}{place}/spark_plugin/datasource.py\n"


def test_register_from_an_archive_is_refused_over_spark_connect(
    archive: Path, bare: Path, tmp_path: Path
) -> None:
    env = clean_variables() | {"PYTHONPATH": str(archive), "SPARK_CONNECT_MODE_ENABLED": "1"}
    said = subprocess.check_output([bare, "-c", REGISTER], cwd=tmp_path, env=env, text=True)
    assert said.startswith("usage txlog is imported from txlog.zip")
    assert "install txlog in the Python of the Connect server" in said


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_wheel_shipped_by_py_files_writes_streams_and_reads(
    wheel: Path, bare: Path, tmp_path: Path
) -> None:
    done = submit(tmp_path, "--py-files", str(wheel), "--", "register", python=str(bare))
    check_shipped(tmp_path, done, f"{wheel.name}/txlog/__init__.py")


@pytest.mark.extra  # The test of the wheel shows the same, and Spark's treatment of its suffix.
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_zip_file_shipped_by_py_files_writes_streams_and_reads(
    archive: Path, bare: Path, tmp_path: Path
) -> None:
    done = submit(tmp_path, "--py-files", str(archive), "--", "register", python=str(bare))
    check_shipped(tmp_path, done, f"{archive.name}/txlog/__init__.py")


@pytest.fixture(scope="session")
def packed(install: CleanInstall, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with txlog, in a tar file."""
    made = tmp_path_factory.mktemp("packed") / "env.tar.gz"
    with tarfile.open(made, "w:gz") as target:
        for path in install.folder.iterdir():
            target.add(path, path.name)
    return made


@pytest.mark.extra  # A JVM for each; an installed txlog is what most tests of Spark use.
@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("driver", "words", "works"),
    [
        ("env", ["--"], True),
        ("driver", ["--"], False),
        ("driver", ["--", "register"], True),
    ],
    ids=["found", "found with another driver", "registered with another driver"],
)
def test_source_in_a_packed_environment_runs_its_python_once_registered(
    driver: str, words: list[str], works: bool, packed: Path, tmp_path: Path
) -> None:
    """A source that Spark finds by itself runs PYSPARK_DRIVER_PYTHON on executors, too."""
    # Spark's processes on the driver run the relative path of PYSPARK_PYTHON, too.
    for name in {"env", driver}:
        shutil.unpack_archive(packed, tmp_path / name)
    variables = {} if driver == "env" else {"PYSPARK_DRIVER_PYTHON": f"./{driver}/bin/python"}
    options = ("--archives", f"{packed}#env", *words)
    done = submit(tmp_path, *options, python="./env/bin/python", **variables)
    if works:
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        check_shipped(tmp_path, done, f"env/lib/{version}/site-packages/txlog/__init__.py")
    else:
        assert done.returncode != 0
        assert 'Cannot run program "./driver/bin/python"' in done.stdout + done.stderr
