"""A scripted server of S3 for the tests of stores."""

from collections.abc import Iterator

import pytest

from tests.unit.storage.scripted_s3 import ScriptedServer, scripted_server


@pytest.fixture(scope="module")
def running() -> Iterator[ScriptedServer]:
    """One server for all tests of a file: a new port would need a new client, which takes long to
    make."""
    with scripted_server() as server:
        yield server


@pytest.fixture
def server(running: ScriptedServer) -> ScriptedServer:
    """That server, with nothing scripted and nothing stored."""
    running.begin_anew()
    return running
