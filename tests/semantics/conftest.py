"""A log in memory with two topics: the behaviours of docs/semantics.md are tried on it."""

import pytest

from tests.memory_log import MemoryLog


@pytest.fixture
def log() -> MemoryLog:
    """Topics `t` (2 partitions) and `u` (1)."""
    log = MemoryLog()
    log.admin.create_topic("t", 2)
    log.admin.create_topic("u", 1)
    return log
