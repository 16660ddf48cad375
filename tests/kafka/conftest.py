"""A gateway for Kafka's programs, on a log on a disk."""

from collections.abc import Iterator

import pytest

from tests.processes.kafka_gateway import Gateway


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    started = Gateway(str(tmp_path_factory.mktemp("kafka") / "log"))
    try:
        yield started
    finally:
        started.stop()
