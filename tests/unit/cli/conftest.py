"""Logs for the commands: one that tests only read, and a fresh one for each test that writes."""

from pathlib import Path

import pytest

from tests.unit.cli.command_cases import make_logs, places_of
from tests.unit.cli.sample_log import SampleLog, sample_log


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> SampleLog:
    """The sample log; tests must not change it."""
    return sample_log(tmp_path_factory.mktemp("read-only") / "log")


@pytest.fixture
def own_log(tmp_path: pytest.TempPathFactory) -> SampleLog:
    """A sample log that this test may change."""
    return sample_log(tmp_path / "log")


@pytest.fixture(scope="session")
def logs_of_cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs that the cases of all commands need; tests must not change them."""
    folder = tmp_path_factory.mktemp("cases")
    make_logs(folder)
    return folder


@pytest.fixture
def places(logs_of_cases: Path, tmp_path: Path) -> dict[str, Path]:
    """What the cases name, with a log that this test may change."""
    return places_of(logs_of_cases, tmp_path)
