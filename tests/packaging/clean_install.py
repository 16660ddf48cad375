"""An environment of its own with the wheel of this project."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.source_tree import ROOT


@dataclass(frozen=True)
class CleanInstall:
    """An environment with the wheel; the heavy packages come from this environment, this folder
    does not."""

    folder: Path
    wheel: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        return next(self.folder.glob("lib/python*/site-packages"))

    def run(self, program: str, *arguments: str, **variables: str) -> dict[str, Any]:
        """Run `program` outside of this folder; its last line of output is its result in JSON."""
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
    """The environment variables without the path to this folder, which would make pip see txlog as
    installed."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def clone(folder: Path) -> Path:
    """The files of a clone, without what earlier builds left here."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def install_wheel(python: Path, wheel: Path) -> None:
    """Install the wheel with this environment's pip into the environment of `python`."""
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    command = [*pip, "--no-deps", "--no-index", str(wheel)]
    subprocess.run(command, env=clean_variables(), check=True)


def python_without_txlog(folder: Path) -> Path:
    """A Python in a new environment that has all packages but txlog."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    # As a plain path: .pth files there, such as that of an editable txlog, are not read.
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = folder / "bin" / "python"
    command = [python, "-c", "import pyspark, txlog"]
    refused = subprocess.run(command, env=clean_variables(), cwd=folder, stderr=subprocess.PIPE)
    assert b"No module named 'txlog'" in refused.stderr
    return python
