"""Where the log of a system test lies: a folder, an S3 server of its own, or that behind a line
that is troubled, or long.

Everything that it starts is gone after the block. It must not know what is kept there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum

from txlog.testing.far_line import FarLine
from txlog.testing.s3_server import S3Server
from txlog.testing.system_test.weather import Weather
from txlog.testing.tcp_proxy import TcpProxy


class PlaceKind(StrEnum):
    """The places to choose from."""

    DISK = "disk"
    S3 = "s3"
    PROXY = "proxy"
    FAR = "far"


ROUND_TRIP_MS = 30.0
"""To a bucket that is far away."""


@dataclass(frozen=True, slots=True)
class Place:
    """A root for a log, and how processes reach it."""

    root: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """For the processes that are troubled: variables over os.environ."""
    storage_options: Mapping[str, object] = field(default_factory=dict)
    """For preparation and checks: directly to the store."""
    weather: Weather | None = None

    def troubled(self) -> AbstractContextManager[None]:
        """For as long as the block lasts, the line to the store is troubled, if there is one."""
        return self.weather.blowing() if self.weather else nullcontext()


@contextmanager
def place(kind: PlaceKind, root: str, seed: int) -> Iterator[Place]:
    """A fresh place; `root` is a folder or URL of the caller's, which stays, or empty."""
    if root:
        yield Place(root)
    elif kind is PlaceKind.DISK:
        with tempfile.TemporaryDirectory(prefix="txlog-system-test-") as folder:
            yield Place(f"{folder}/log")
    else:
        with S3Server.start() as server:
            yield from _on(server, kind, seed)


def _on(server: S3Server, kind: PlaceKind, seed: int) -> Iterator[Place]:
    options = server.storage_options
    if kind is PlaceKind.S3:
        yield Place(server.url("log"), server.env, options)
        return
    if kind is PlaceKind.FAR:
        with FarLine.to(server.endpoint_url, ROUND_TRIP_MS) as line:
            environment = {**server.env, "AWS_ENDPOINT_URL": line.endpoint_url}
            yield Place(server.url("log"), environment, options)
        return
    with TcpProxy(server.endpoint_url) as proxy:
        environment = {**server.env, "AWS_ENDPOINT_URL": proxy.endpoint_url}
        weather = Weather(proxy, f"{seed} weather")
        yield Place(server.url("log"), environment, options, weather)
