"""conf/spark-env.sh: the folder of Spark's Unix sockets, which only its owner can enter."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.source_tree import ROOT

OPTION = "-Dspark.python.unix.domain.socket.dir="


def folder_for(runtime: Path | str) -> Path:
    """Where the sockets go: as Spark's scripts source the file, beside options that are there."""
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


def test_the_folder_is_made_and_only_its_owner_can_enter_it(tmp_path: Path) -> None:
    found = folder_for(tmp_path)
    assert found == tmp_path / f"spark-sockets-{os.geteuid()}"
    assert is_private(found)
    assert folder_for(tmp_path) == found


def test_a_folder_that_others_could_enter_is_closed(tmp_path: Path) -> None:
    found = tmp_path / f"spark-sockets-{os.geteuid()}"
    found.mkdir()
    found.chmod(0o777)
    assert folder_for(tmp_path) == found
    assert is_private(found)


@pytest.mark.parametrize("kind", ["link", "file", "no folder"])
def test_what_another_user_may_have_put_there_is_not_used(tmp_path: Path, kind: str) -> None:
    runtime = tmp_path / "runtime"
    planted = runtime / f"spark-sockets-{os.geteuid()}"
    elsewhere = tmp_path / "elsewhere"
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
