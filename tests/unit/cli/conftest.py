"""Logs for the commands: one that tests only read, and a fresh one for each test that writes."""

import pytest

from tests.unit.cli.sample_log import SampleLog, sample_log


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> SampleLog:
    """The sample log; tests must not change it."""
    return sample_log(tmp_path_factory.mktemp("read-only") / "log")


@pytest.fixture
def own_log(tmp_path: pytest.TempPathFactory) -> SampleLog:
    """A sample log that this test may change."""
    return sample_log(tmp_path / "log")
