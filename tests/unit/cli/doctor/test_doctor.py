"""`txlog doctor` finds each possible problem and names its fix."""

import importlib.metadata
import json
import os
import shutil
import stat
import sys
from pathlib import Path

import pytest

from spark_plugin.source.offsets import encode
from tests.processes.command_line import Run, files, run
from tests.source_tree import ROOT
from tests.unit.cli.sample_log import SampleLog
from tests.unit.spark_plugin.offset_lines import offset_of
from txlog.cli.doctor.check import Check, Status, failed_with
from txlog.cli.doctor.check_packages import package_checks
from txlog.cli.doctor.check_spark import discovered, java_version, properties
from txlog.cli.doctor.check_store import store_checks
from txlog.distribution import VERSION
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import UsageError
from txlog.journal.entry import checked_body, seal

pytestmark = pytest.mark.slow

MAKE_VARIABLES = {"PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": str(ROOT / "conf")}
"""The variables that `make` sets."""


def checks(done: Run, name: str) -> list[dict[str, str]]:
    """The lines of `doctor -o json` for one check."""
    return [check for check in done.json["checks"] if check["check"] == name]


@pytest.fixture
def quick(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A good environment whose Java and Python answer immediately."""
    folder = tmp_path_factory.mktemp("quick")
    script(folder / "bin" / "java", """echo 'openjdk version "17.0.1" 2021-10-19' >&2""")
    answer = {
        "version": sys.version_info[:2],
        "prefix": sys.prefix,
        "found": {"pyspark_txlog": {"raised": False, "error": None}},
    }
    python = script(folder / "python3", f"echo '{json.dumps(answer)}'")
    return MAKE_VARIABLES | {"JAVA_HOME": str(folder), "PYSPARK_PYTHON": str(python)}


def script(path: Path, text: str) -> Path:
    """Write an executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_good_environment_passes_every_check(log: SampleLog) -> None:
    done = run("doctor", "-o", "json", root=log.root, env=MAKE_VARIABLES)
    assert [c for c in done.json["checks"] if c["status"] != "ok"] == []
    assert done.json["ok"] is True
    assert done.code == 0
    names = [check["check"] for check in done.json["checks"]]
    wanted = ["Python", "pyarrow", "pandas", "pyspark", "Java", "source discovery", "store", "log"]
    assert [name for name in wanted if name not in names] == []
    assert checks(done, "source discovery")[0]["found"] == "pyspark_txlog"
    assert checks(done, "log")[0]["found"] == "format version 3, 2 topics"


def test_table_shows_checks_and_fixes(tmp_path: Path, quick: dict[str, str]) -> None:
    done = run("doctor", root=tmp_path, env=quick)
    assert done.rows[0] == ["CHECK", "STATUS", "FOUND"]
    assert ["log", "warn", f"there is no log at {tmp_path}"] in done.rows
    assert ["log", "'txlog topic create' creates one"] in done.rows
    assert done.code == 0


def test_an_old_java_fails_with_the_fix(tmp_path: Path, quick: dict[str, str]) -> None:
    script(tmp_path / "bin" / "java", """echo 'openjdk version "11.0.2" 2019-01-15' >&2""")
    done = run("doctor", "-o", "json", env=quick | {"JAVA_HOME": str(tmp_path)})
    (java,) = checks(done, "Java")
    assert (java["status"], done.code) == ("fail", 1)
    assert java["found"].startswith("11 (")
    assert "set JAVA_HOME" in java["fix"]
    assert done.json["ok"] is False


@pytest.mark.parametrize("text", ["exit 127", "echo nonsense"])
def test_broken_or_missing_java_fails(text: str, tmp_path: Path, quick: dict[str, str]) -> None:
    script(tmp_path / "bin" / "java", text)
    done = run("doctor", "-o", "json", env=quick | {"JAVA_HOME": str(tmp_path)})
    assert (checks(done, "Java")[0]["status"], done.code) == ("fail", 1)
    missing = run("doctor", "-o", "json", env=quick | {"JAVA_HOME": str(tmp_path / "none")})
    assert "does not run" in checks(missing, "Java")[0]["found"]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_401"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("command not found", None),
    ],
)
def test_java_version_is_parsed(text: str, version: int | None) -> None:
    assert java_version(text) == version


def test_spark_python_of_another_version_fails_with_the_fix(
    tmp_path: Path, quick: dict[str, str]
) -> None:
    other = script(
        tmp_path / "python3", """echo '{"version": [3, 8], "prefix": "/usr", "found": {}}'"""
    )
    done = run("doctor", "-o", "json", env=quick | {"PYSPARK_PYTHON": str(other)})
    (python,) = checks(done, "Spark's Python")
    assert (python["status"], done.code) == ("fail", 1)
    assert "Python 3.8" in python["found"]
    assert python["fix"] == f"export PYSPARK_PYTHON={sys.executable}"
    assert "no package pyspark_txlog" in checks(done, "source discovery")[0]["found"]


def test_driver_python_that_spark_gives_to_executors_is_a_warning(quick: dict[str, str]) -> None:
    done = run("doctor", "-o", "json", env=quick | {"PYSPARK_DRIVER_PYTHON": "ipython"})
    (found,) = checks(done, "PYSPARK_DRIVER_PYTHON")
    assert (found["status"], done.code) == ("warn", 0)
    assert "register(spark)" in found["fix"]


@pytest.mark.parametrize("text", ["exit 1", "echo no json", "echo '{}'", "echo 5"])
def test_spark_python_without_a_valid_answer_fails(
    text: str, tmp_path: Path, quick: dict[str, str]
) -> None:
    other = script(tmp_path / "python3", text)
    done = run("doctor", "-o", "json", env=quick | {"PYSPARK_PYTHON": str(other)})
    assert (checks(done, "Spark's Python")[0]["status"], done.code) == ("fail", 1)


def test_source_package_that_raises_on_import_fails_discovery(tmp_path: Path) -> None:
    (tmp_path / "pyspark_broken.py").write_text("raise RuntimeError('half installed')\n")
    done = run("doctor", "-o", "json", env=MAKE_VARIABLES | {"PYTHONPATH": str(tmp_path)})
    found = checks(done, "source discovery")
    (broken,) = (check for check in found if check["status"] == "fail")
    assert "pyspark_broken cannot be imported (RuntimeError: half installed)" in broken["found"]
    assert "no Python source at all" in broken["found"]
    assert broken["fix"] == "pip uninstall pyspark-broken, or repair it"
    assert "pyspark_txlog" in [check["found"] for check in found]
    assert done.code == 1


def test_source_package_that_exits_on_import_is_reported(tmp_path: Path) -> None:
    (tmp_path / "pyspark_quits.py").write_text("raise SystemExit(3)\n")
    done = run("doctor", "-o", "json", env=MAKE_VARIABLES | {"PYTHONPATH": str(tmp_path)})
    assert "pyspark_quits cannot be imported (SystemExit: 3)" in done.out


def test_import_error_recorded_by_the_shim_fails_discovery() -> None:
    answer = {"pyspark_txlog": {"raised": False, "error": "ImportError: no pandas"}}
    (check,) = discovered(answer, "pip install 'txlog-spark[spark]'")
    assert check == Check(
        "source discovery",
        Status.FAIL,
        "pyspark_txlog: ImportError: no pandas",
        "pip install 'txlog-spark[spark]'",
    )


def test_disabled_unix_sockets_give_a_warning_with_the_cost(
    tmp_path: Path, quick: dict[str, str]
) -> None:
    done = run("doctor", "-o", "json", env=quick | {"SPARK_CONF_DIR": str(tmp_path)})
    (sockets,) = checks(done, "Unix sockets")
    assert (sockets["status"], done.code) == ("warn", 0)
    assert f"{tmp_path}/spark-defaults.conf" in sockets["found"]
    assert "42 ms" in sockets["found"]
    (tmp_path / "spark-defaults.conf").write_text(
        "#spark.python.unix.domain.socket.enabled true\n"
        "spark.python.unix.domain.socket.enabled=false\n"
    )
    done = run("doctor", "-o", "json", env=quick | {"SPARK_CONF_DIR": str(tmp_path)})
    assert checks(done, "Unix sockets")[0]["status"] == "warn"


def test_spark_defaults_are_read_from_spark_home_without_spark_conf_dir(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    defaults = home / "conf" / "spark-defaults.conf"
    defaults.write_text("spark.python.unix.domain.socket.enabled  true\n")
    env = {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(home), "SPARK_CONF_DIR": ""}
    (sockets,) = checks(run("doctor", "-o", "json", env=env), "Unix sockets")
    assert (sockets["status"], "temporary folder of all users" in sockets["found"]) == (
        "warn",
        True,
    )
    with defaults.open("a") as file:
        file.write("spark.python.unix.domain.socket.dir /home/me/sockets\n")
    assert checks(run("doctor", "-o", "json", env=env), "Unix sockets")[0]["status"] == "ok"


@pytest.mark.parametrize("home", ["", "/nowhere"])
def test_spark_home_without_spark_fails_with_the_fix(home: str, quick: dict[str, str]) -> None:
    """PySpark would end with FileNotFoundError: it trusts the variable."""
    done = run("doctor", "-o", "json", env=quick | {"SPARK_HOME": home})
    (check,) = checks(done, "SPARK_HOME")
    assert (check["status"], done.code) == ("fail", 1)
    assert f"{home!r} has no bin/spark-submit" in check["found"]
    assert check["fix"].startswith("unset SPARK_HOME")


def test_properties_are_parsed_in_every_java_form() -> None:
    text = "# no\n! no\n\na.b  true \nc=d\ne : f g\nflag\n  h\t1\n"
    assert properties(text) == {"a.b": "true", "c": "d", "e": "f g", "h": "1"}


def test_installed_packages_satisfy_their_requirements() -> None:
    found = {check.name: check for check in package_checks()}
    names = [
        "Python",
        "pyarrow",
        "numpy",
        "fsspec",
        "pyspark",
        "pandas",
        "obstore",
        "s3fs",
        "duckdb",
    ]
    assert {name: check.status for name, check in found.items()} == dict.fromkeys(names, Status.OK)
    assert found["pyarrow"].found == importlib.metadata.version("pyarrow")


def test_unsupported_package_version_fails_with_the_pip_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requirements of an extra apply to that extra only."""
    info = tmp_path / "txlog_spark-9.dist-info"
    info.mkdir()
    wanted = (
        "pyarrow>=99,<100",
        "numpy>=1",
        'pandas==0.1; extra == "spark"',
        'numpy<1; extra == "s3"',
    )
    lines = ("Metadata-Version: 2.1", "Name: txlog-spark", "Version: 9")
    (info / "METADATA").write_text(
        "\n".join([*lines, *(f"Requires-Dist: {one}" for one in wanted)])
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = {check.name: check for check in package_checks()}
    assert found["pyarrow"].status is Status.FAIL
    assert found["pyarrow"].found.endswith("but txlog needs <100,>=99")
    assert found["pyarrow"].fix == "pip install 'pyarrow<100,>=99'"
    assert (found["numpy"].status, found["pandas"].status) == (Status.OK, Status.FAIL)


def test_a_log_of_a_newer_format_fails(own_log: SampleLog, quick: dict[str, str]) -> None:
    cluster_file = own_log.root / "txlog.json"
    body, _ = checked_body(cluster_file.read_bytes(), "txlog.json")
    cluster_file.write_bytes(seal(body.replace(b'"format_version":3', b'"format_version":99')))
    done = run("doctor", "-o", "json", root=own_log.root, env=quick)
    (log_check,) = checks(done, "log")
    assert (log_check["status"], done.code) == ("fail", 1)
    assert "format version 99" in log_check["found"]
    assert log_check["fix"] == f"A newer txlog than {VERSION} wrote it: use a newer txlog."


def test_a_damaged_journal_fails_and_is_named(own_log: SampleLog) -> None:
    entry = sorted((own_log.root / "cluster").glob("*/entries/*"))[0]
    entry.write_bytes(b"{}\n")
    (store, log_check) = store_checks(str(own_log.root))
    assert store.status is Status.OK
    assert log_check.status is Status.FAIL
    assert entry.name in log_check.found


def test_I15_topic_with_a_lost_journal_is_reported_and_not_recreated(own_log: SampleLog) -> None:
    shutil.rmtree(next((own_log.root / "topics" / "orders").glob("*/entries")))
    before = files(own_log.root)
    (_, log_check) = store_checks(str(own_log.root))
    assert log_check.status is Status.FAIL
    assert "the journal is lost" in log_check.found
    shutil.rmtree(own_log.root / "topics" / "orders")
    (_, log_check) = store_checks(str(own_log.root))
    assert log_check.status is Status.FAIL
    assert "the journal is lost" in log_check.found
    assert files(own_log.root).items() <= before.items(), "nothing was written"


def test_I15_lost_cluster_journal_fails_the_log_check(own_log: SampleLog) -> None:
    shutil.rmtree(own_log.root / "cluster")
    before = files(own_log.root)
    (_, log_check) = store_checks(str(own_log.root))
    assert log_check.status is Status.FAIL
    assert "the journal is lost" in log_check.found
    assert files(own_log.root) == before


def test_the_probe_leaves_no_object_behind(own_log: SampleLog) -> None:
    before = files(own_log.root)
    assert [check.status for check in store_checks(str(own_log.root))] == [Status.OK, Status.OK]
    assert files(own_log.root) == before


def test_missing_root_folder_is_not_created(tmp_path: Path) -> None:
    (check,) = store_checks(str(tmp_path / "none"))
    assert (check.status, check.fix) == (Status.WARN, "'txlog topic create' creates it")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("root", "why"),
    [
        ("nope://x", "nope:// cannot be opened"),
        ("s3://", "s3://bucket/prefix"),
        ("zip://x.zip", "cannot"),
    ],
)
def test_unusable_root_url_fails_with_the_reason(root: str, why: str) -> None:
    (check,) = store_checks(root)
    assert check.status is Status.FAIL
    assert why in f"{check.found}. {check.fix}"


def test_store_is_not_checked_without_a_root() -> None:
    (check,) = store_checks(None)
    assert (check.status, check.fix) == (Status.WARN, "give --root URI or set TXLOG_ROOT")


def test_the_fix_is_the_last_sentence_of_the_error() -> None:
    whole = failed_with("log", UsageError("it is gone. It was here. Look again."))
    assert (whole.found, whole.fix) == ("it is gone. It was here", "Look again.")
    short = failed_with("log", UsageError("it is gone; look again."))
    assert (short.found, short.fix) == ("it is gone; look again.", "")


# A checkpoint beside the log.


@pytest.fixture
def checkpoint(own_log: SampleLog, tmp_path: Path) -> Path:
    """The checkpoint of a query whose batch 0 read [0, 4) of orders-0; group `billing` is at 4."""
    folder = tmp_path / "checkpoint"
    (folder / "offsets").mkdir(parents=True)
    (folder / "commits").mkdir()
    (folder / "metadata").write_text('{"id":"query"}')
    cluster = own_log.connection.cluster
    topic_id = cluster.topic("orders").topic_id
    line = encode(offset_of({0: (0, 4)}, "orders", topic_id, "billing", cluster.log_id))
    (folder / "offsets" / "0").write_text(f'v1\n{{"batchWatermarkMs":0}}\n{line}')
    return folder


def test_a_checkpoint_is_compared_with_the_log(own_log: SampleLog, checkpoint: Path) -> None:
    before = files(own_log.root)
    done = run("doctor", "--checkpoint", checkpoint, root=own_log.root)
    rows = {row[0]: row[1:] for row in done.rows if len(row) > 1}
    assert (done.code, done.err) == (0, "")
    assert rows["BatchPlanned"] == ["0"]
    assert rows["NextStart"][0].startswith("replay")
    assert rows["billing"] == ["orders", "0", "0", "4", "4", "4", "11"]
    assert "is not decided" in done.out, "two more are pending"
    assert files(own_log.root) == before


def test_start_that_would_be_refused_exits_1_with_the_remedy(
    own_log: SampleLog, checkpoint: Path
) -> None:
    session = TransactionSession(own_log.connection, "spark.query", "billing")
    session.register("run", is_run=True, groups=("billing",))
    done = run("doctor", "--checkpoint", checkpoint, "-o", "json", root=own_log.root)
    assert (done.code, done.json["ok"]) == (1, False)
    assert done.json["next_start"] == "refused"
    assert "the group is already where the batch ends" in done.json["reason"]
    assert "startingOffsets=committed" in done.json["remedy"]


def test_checkpoint_option_without_a_log_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    assert run("doctor", "--checkpoint", checkpoint).code == 2
    assert run("doctor", "--checkpoint", checkpoint, root=tmp_path / "none").code == 3
