"""A log with ten numbers, and a query that copies them, both without Spark."""

from pathlib import Path

import pytest

from tests.logs.memory_log import MemoryLog
from tests.unit.spark_plugin.spark_query import Query, new_log


@pytest.fixture
def log() -> MemoryLog:
    """A fresh log."""
    return new_log()


@pytest.fixture
def query(log: MemoryLog, tmp_path: Path) -> Query:
    """The query, with a checkpoint of its own."""
    return Query(log, tmp_path / "checkpoint")
