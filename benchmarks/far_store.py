"""A distant bucket: an S3 server on this machine behind the project's simulated line.

A server on the loopback interface answers within a millisecond, a real one in 20 to 50. The time
depends on the number of requests that wait for each other, so figures are in round trips: they hold
for any fast machine, and for any line.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from urllib.parse import urlsplit

from benchmarks.figures import Figure, Target, quartiles, timed
from txlog.testing.proxy_process import ProxyProcess
from txlog.testing.s3_server import S3Server, S3ServerKind

ROUND_TRIP_MS = 30.0


@dataclass(frozen=True, slots=True)
class FarStore:
    """The server, the line to it, and the clients' settings for that line."""

    server: S3Server
    line: ProxyProcess

    @property
    def storage_options(self) -> dict[str, object]:
        """Storage options for clients of txlog."""
        return {**self.server.storage_options, "endpoint_url": self.line.endpoint_url}

    @property
    def env(self) -> dict[str, str]:
        """Environment variables for other processes."""
        return {**self.server.env, "AWS_ENDPOINT_URL": self.line.endpoint_url}

    def far(self) -> None:
        """Make a round trip take ROUND_TRIP_MS from now on."""
        self.line.delay(ROUND_TRIP_MS)

    def near(self) -> None:
        """Make the line take no time, for preparations."""
        self.line.delay(0.0)

    def bare_request_s(self) -> float:
        """Seconds of a HEAD of a missing object on an open connection: the line and the server."""
        place = urlsplit(self.line.endpoint_url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port)
        try:
            return [timed(lambda: _head(connection)) for _ in range(2)][-1]
        finally:
            connection.close()


def _head(connection: http.client.HTTPConnection) -> None:
    connection.request("HEAD", "/")
    connection.getresponse().read()


@contextmanager
def far_store() -> Iterator[FarStore]:
    """A server and a line for the block; at first the line has no delay."""
    with (
        S3Server.start(S3ServerKind.MINISTACK) as server,
        ProxyProcess.to(server.endpoint_url) as line,
    ):
        yield FarStore(server, line)


def round_trips(name: str, seconds: Sequence[float], target: Target | None = None) -> Figure:
    """The median, in round trips."""
    values = [1000 * taken / ROUND_TRIP_MS for taken in seconds]
    return Figure(name, median(values), "RTT", target, quartiles(values))
