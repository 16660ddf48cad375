"""An in-memory log with two topics, for every test of the clients."""

import pytest

from tests.logs.memory_log import SEGMENTS, MemoryLog


@pytest.fixture
def log(request: pytest.FixtureRequest, transaction_records: str) -> MemoryLog:
    """A log with topics `t` (2 partitions) and `u` (1)."""
    is_marked = request.node.get_closest_marker("segments") is not None
    settings = SEGMENTS if is_marked else None
    log = MemoryLog(settings, transaction_records=transaction_records)
    log.admin.create_topic("t", 2)
    log.admin.create_topic("u", 1)
    return log
