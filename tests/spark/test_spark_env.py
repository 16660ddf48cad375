"""conf/spark-env.sh: the folder of Spark's Unix sockets, which only its owner can enter."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.source_tree import ROOT

OPTION = "-Dspark.python.unix.domain.socket.dir="


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short name."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def folder_for(runtime: Path | str) -> Path:
    """The sockets' folder, after Spark's scripts have sourced the file, with existing options."""
    done = subprocess.run(
        ["bash", "-c", f'set -a; . "{ROOT}/conf/spark-env.sh"; set +a; printenv SPARK_SUBMIT_OPTS'],
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime), "SPARK_SUBMIT_OPTS": "-Dmine=1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    mine, option = done.stdout.split()
    assert mine == "-Dmine=1"
    assert option.startswith(OPTION)
    return Path(option.removeprefix(OPTION))


def is_private(folder: Path) -> bool:
    found = folder.lstat()
    return (found.st_uid, oct(found.st_mode)) == (os.geteuid(), "0o40700")


def test_socket_folder_is_created_private_to_the_owner(short: Path) -> None:
    found = folder_for(short)
    assert found == short / f"spark-sockets-{os.geteuid()}"
    assert is_private(found)
    assert folder_for(short) == found


def test_socket_folder_open_to_others_is_made_private(short: Path) -> None:
    found = short / f"spark-sockets-{os.geteuid()}"
    found.mkdir()
    found.chmod(0o777)
    assert folder_for(short) == found
    assert is_private(found)


@pytest.mark.parametrize("kind", ["link", "file", "no folder"])
def test_planted_or_missing_socket_folder_is_replaced_by_one_in_tmp(short: Path, kind: str) -> None:
    runtime = short / "runtime"
    planted = runtime / f"spark-sockets-{os.geteuid()}"
    elsewhere = short / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    if kind != "no folder":
        runtime.mkdir()
    if kind == "link":
        planted.symlink_to(elsewhere)
    elif kind == "file":
        planted.touch()
    found = folder_for(runtime)
    assert found.parent == Path("/tmp")
    assert is_private(found)
    assert elsewhere.stat().st_mode & 0o777 == 0o755


def test_socket_folder_with_too_long_a_path_is_not_used(short: Path) -> None:
    runtime = short / ("long" * 12)
    runtime.mkdir()
    assert folder_for(runtime).parent == Path("/tmp")
    assert list(runtime.iterdir()) == []
