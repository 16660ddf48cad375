"""The place of a system test's log: a folder, an S3 server of its own, or such a server behind a
line with faults or latency.

Everything that it starts is removed after the block. It must not know what is stored there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum

from tests.system_test.network_faults import NetworkFaults
from txlog.testing.proxy_process import ProxyProcess
from txlog.testing.s3_server import S3Server
from txlog.testing.tcp_proxy import TcpProxy


class StoreKind(StrEnum):
    """The available stores."""

    DISK = "disk"
    S3 = "s3"
    PROXY = "proxy"
    FAR = "far"


ROUND_TRIP_MS = 30.0
"""The round-trip time to a distant bucket."""


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """The root of a log, and how processes reach it."""

    root: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """For the processes that meet faults: variables to add to os.environ."""
    storage_options: Mapping[str, object] = field(default_factory=dict)
    """For preparation and checks: directly to the store."""
    network_faults: NetworkFaults | None = None

    def faulty(self) -> AbstractContextManager[None]:
        """Inject faults into the line to the store, if there is one, for the duration of the
        block."""
        return self.network_faults.injected() if self.network_faults else nullcontext()


@contextmanager
def store_location(kind: StoreKind, root: str, seed: int) -> Iterator[StoreLocation]:
    """A fresh location; `root` is a folder or URL of the caller's, which is kept, or empty."""
    if root:
        yield StoreLocation(root)
    elif kind is StoreKind.DISK:
        with tempfile.TemporaryDirectory(prefix="txlog-system-test-") as folder:
            yield StoreLocation(f"{folder}/log")
    else:
        with S3Server.start() as server:
            yield from _on(server, kind, seed)


def _on(server: S3Server, kind: StoreKind, seed: int) -> Iterator[StoreLocation]:
    options = server.storage_options
    if kind is StoreKind.S3:
        yield StoreLocation(server.url("log"), server.env, options)
        return
    if kind is StoreKind.FAR:
        with ProxyProcess.to(server.endpoint_url, ROUND_TRIP_MS) as line:
            environment = {**server.env, "AWS_ENDPOINT_URL": line.endpoint_url}
            yield StoreLocation(server.url("log"), environment, options)
        return
    with TcpProxy(server.endpoint_url) as proxy:
        environment = {**server.env, "AWS_ENDPOINT_URL": proxy.endpoint_url}
        faults = NetworkFaults(proxy, f"{seed} network faults")
        yield StoreLocation(server.url("log"), environment, options, faults)
