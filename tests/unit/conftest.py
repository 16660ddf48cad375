"""An in-memory log with two topics, for every test of the clients."""

import pytest

from tests.logs.memory_log import MemoryLog


@pytest.fixture
def log(transaction_records: str) -> MemoryLog:
    """A log with topics `t` (2 partitions) and `u` (1)."""
    log = MemoryLog(transaction_records=transaction_records)
    log.admin.create_topic("t", 2)
    log.admin.create_topic("u", 1)
    return log
