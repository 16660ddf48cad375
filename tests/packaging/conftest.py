"""The files of a release, and an environment with the wheel, built once for all tests."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.packaging.clean_install import CleanInstall, clone, install_wheel


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a release: a source distribution, and the wheel built from that."""
    folder = tmp_path_factory.mktemp("build")
    sources = clone(folder / "sources")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder)]
    done = subprocess.run([*command, str(sources)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    """The wheel."""
    return next(dist.glob("*.whl"))


@pytest.fixture(scope="session")
def install(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> CleanInstall:
    """A fresh environment with the wheel, and a path to the packages that it depends on.

    A plain path line adds a folder after the environment's own folders. The .pth file in that
    folder, by which an editable install makes the checkout importable, is not read.
    """
    folder = tmp_path_factory.mktemp("clean") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    clean = CleanInstall(folder, wheel)
    install_wheel(clean.python, wheel)
    (clean.packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return clean
