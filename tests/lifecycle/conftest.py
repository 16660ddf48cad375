"""The kinds of place in which the tests run: a local disk, memory, and a real S3 server."""

from collections.abc import Iterator

import pytest

from tests.lifecycle.log_place import LogPlace
from txlog.testing.s3_server import S3Server

# One log of each kind for all stages. They are separate fixtures, because a fixture with parameters
# is
# made again whenever its parameter changes.


@pytest.fixture(scope="session")
def disk(tmp_path_factory: pytest.TempPathFactory) -> LogPlace:
    """A folder. No power loss is tested here, and syncing would take most of the time."""
    folder = tmp_path_factory.mktemp("lifecycle") / "log"
    return _with_log(LogPlace(str(folder), {"durable": False}))


@pytest.fixture(scope="session")
def memory() -> LogPlace:
    """A name in memory."""
    return _with_log(LogPlace("memory://lifecycle"))


@pytest.fixture(scope="session")
def bucket() -> Iterator[LogPlace]:
    """A bucket of a real S3 server."""
    with S3Server.start() as server:
        yield _with_log(LogPlace(server.url("log"), server.storage_options))


def _with_log(place: LogPlace) -> LogPlace:
    place.process(create=True)
    return place


@pytest.fixture(params=["disk", "memory", pytest.param("bucket", marks=pytest.mark.s3)])
def place(request: pytest.FixtureRequest) -> LogPlace:
    """Each of these places."""
    found: LogPlace = request.getfixturevalue(request.param)
    return found
