"""A separate process that delays each request to a server and logs it."""

import pytest

from txlog.clock import Runtime
from txlog.storage import open_store
from txlog.testing.proxy_process import ProxyProcess
from txlog.testing.request_log import chain
from txlog.testing.s3_server import S3Server

pytestmark = pytest.mark.s3

ROUND_TRIP_MS = 100.0


def test_proxy_delays_and_logs_each_request_of_a_chain() -> None:
    with S3Server.start() as server, ProxyProcess.to(server.endpoint_url) as line:
        options = {**server.storage_options, "endpoint_url": line.endpoint_url}
        store = open_store(server.url("far"), Runtime(), options)
        store.create("x", b"1")
        assert line.logged() == []
        line.delay(ROUND_TRIP_MS)
        assert store.get("x") == b"1"
        assert store.get("y") is None
        requests = line.logged()
        assert [request.path.rsplit("/")[-1] for request in chain(requests)] == ["x", "y"]
        assert all(request.duration_ms >= ROUND_TRIP_MS for request in requests)
