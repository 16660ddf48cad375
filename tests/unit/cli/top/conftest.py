"""The sample log for the screen, which its tests only read."""

from pathlib import Path

import pytest

from tests.unit.cli.command_cases import make_logs


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("top")
    make_logs(folder)
    return str(folder / "log")
