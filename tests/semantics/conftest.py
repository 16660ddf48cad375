"""A log in memory with two topics: the behaviours of docs/semantics.md are tried on it.

Each is tried with both ways of keeping the records of an open transaction, unless it is marked as
one of records that stand in the log.
"""

import pytest

from tests.memory_log import MemoryLog


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Both ways, or one."""
    if "log" in metafunc.fixturenames:
        is_of_one = metafunc.definition.get_closest_marker("in_log") is not None
        ways = ["in.log"] if is_of_one else ["in.log", "staged"]
        metafunc.parametrize("log", ways, indirect=True)


@pytest.fixture
def log(request: pytest.FixtureRequest) -> MemoryLog:
    """Topics `t` (2 partitions) and `u` (1); its transactions keep their records in that way."""
    log = MemoryLog(transaction_records=request.param)
    log.admin.create_topic("t", 2)
    log.admin.create_topic("u", 1)
    return log
