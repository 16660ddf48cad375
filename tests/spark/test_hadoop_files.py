"""Hadoop's client of file systems, in a JVM of its own; here on local files, without a server."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from spark_plugin.checkpoints.checkpoint import open_checkpoint
from spark_plugin.checkpoints.hadoop_files import HadoopFiles, stop_jvm
from txlog.clock import Runtime
from txlog.errors import StoreUnavailable, UsageError

pytestmark = pytest.mark.spark

WAIT_S = 60


def jvms(pid: int) -> list[psutil.Process]:
    """The JVMs that a process has started for files; that of the tests' Spark session is none."""
    children = psutil.Process(pid).children()
    return [child for child in children if "py4j.GatewayServer" in child.cmdline()]


@pytest.fixture(autouse=True, scope="module")
def no_jvm_left() -> Iterator[None]:
    """The tests share a JVM."""
    yield
    stop_jvm()


def test_files_are_read_and_listed_as_on_a_disk(tmp_path: Path) -> None:
    folder = tmp_path / "check%20point #1"
    (folder / "offsets" / "deeper").mkdir(parents=True)
    (folder / "offsets" / "deeper" / "9").write_text("x")
    for name in ("0", "1", ".0.crc", "a, 7"):
        (folder / "offsets" / name).write_bytes(b"\x00\xff" + name.encode())
    files = HadoopFiles(f"file://{folder}")
    assert files.read("offsets/1") == b"\x00\xff1"
    assert files.read("offsets/2") is None
    assert {"0", "1"} <= set(files.list_names("offsets"))
    assert not {"7", "9"} & set(files.list_names("offsets"))
    assert files.list_names("commits") == []


def test_file_system_without_a_client_is_refused_with_the_place_for_its_jar() -> None:
    checkpoint = open_checkpoint("nosuch://host/cp", Runtime())
    with pytest.raises(UsageError, match=r"nosuch://host/cp/metadata .*SPARK_DIST_CLASSPATH"):
        checkpoint.query_id()


def test_host_that_is_unknown_is_named_with_hadoops_configuration() -> None:
    checkpoint = open_checkpoint("hdfs://nameservice1.invalid/cp", Runtime())
    with pytest.raises(StoreUnavailable, match=r"nameservice1\.invalid.* set HADOOP_CONF_DIR"):
        checkpoint.query_id()


@pytest.mark.parametrize(
    ("variable", "reason"), [("JAVA_HOME", "No such file"), ("SPARK_HOME", "ended with 1")]
)
def test_jvm_that_does_not_start_is_refused_with_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, reason: str
) -> None:
    stop_jvm()
    monkeypatch.setenv(variable, str(tmp_path))
    with pytest.raises(UsageError, match=f"{reason}.*Set SPARK_HOME and JAVA_HOME"):
        HadoopFiles("file:///cp").read("metadata")


def test_jvm_that_was_killed_is_started_again(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text("x")
    files = HadoopFiles(f"file://{tmp_path}")
    assert files.read("metadata") == b"x"
    for jvm in jvms(os.getpid()):
        jvm.kill()
        jvm.wait(WAIT_S)
    assert files.read("metadata") == b"x"


def test_jvm_ends_with_its_process(tmp_path: Path) -> None:
    program = (
        "from spark_plugin.checkpoints.hadoop_files import HadoopFiles\n"
        f"HadoopFiles('file://{tmp_path}').read('metadata')\n"
        "print(flush=True)\ninput()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        [jvm] = jvms(process.pid)
        process.send_signal(signal.SIGKILL)
        jvm.wait(WAIT_S)
