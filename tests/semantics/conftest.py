"""A log in memory with two topics, on which the behaviours of docs/guarantees.md are tested.

Each test runs with both ways of keeping the records of an open transaction, unless it is marked as
one about records in the log.
"""

import pytest

from tests.logs.memory_log import SEGMENTS, MemoryLog
from txlog.engine.producer_config import TRANSACTION_RECORDS


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with both ways, or with one."""
    is_of_one = metafunc.definition.get_closest_marker("in_log") is not None
    if "log" in metafunc.fixturenames and not is_of_one:
        metafunc.parametrize("transaction_records", TRANSACTION_RECORDS, indirect=True)


@pytest.fixture
def log(request: pytest.FixtureRequest, transaction_records: str) -> MemoryLog:
    """Topics `t` (2 partitions) and `u` (1); transactions keep their records in the parameter's
    way."""
    is_marked = request.node.get_closest_marker("segments") is not None
    settings = SEGMENTS if is_marked else None
    log = MemoryLog(settings, transaction_records=transaction_records)
    log.admin.create_topic("t", 2)
    log.admin.create_topic("u", 1)
    return log
