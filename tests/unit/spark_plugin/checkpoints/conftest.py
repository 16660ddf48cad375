"""A query that has copied one batch."""

from pathlib import Path

import pytest

from tests.logs.memory_log import MemoryLog
from tests.unit.spark_plugin.spark_query import Query


@pytest.fixture
def query(log: MemoryLog, tmp_path: Path) -> Query:
    """Batch 0 has copied [0, 4), and Spark has recorded its end."""
    query = Query(log, tmp_path / "checkpoint")
    query.run(log.process(), "first", 0, 0, 4)
    query.note(0)
    return query
