"""The places in which the story is told: a local disk, memory, and a real S3 server."""

from collections.abc import Iterator

import pytest

from tests.log_place import LogPlace
from txlog.testing.s3_server import S3Server


@pytest.fixture(
    scope="session", params=["disk", "memory", pytest.param("s3", marks=pytest.mark.s3)]
)
def bare_place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LogPlace]:
    """A place without a log."""
    match request.param:
        case "disk":
            folder = tmp_path_factory.mktemp("lifecycle") / "log"
            # Nobody cuts the power here, and syncing takes most of the time.
            yield LogPlace(str(folder), {"durable": False})
        case "memory":
            yield LogPlace("memory://lifecycle")
        case _:
            with S3Server.start() as server:
                yield LogPlace(server.url("log"), server.storage_options)


@pytest.fixture(scope="session")
def place(bare_place: LogPlace) -> LogPlace:
    """A place with a log, which all stages share."""
    bare_place.process(create=True)
    return bare_place
