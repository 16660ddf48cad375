"""An endpoint that is not an S3 service, is faulty or silent gives an error, and no call hangs.

Statuses and codes of real services are in `tests/unit/storage/s3/test_s3_answers.py`.
"""

import signal
import socket
import subprocess
import sys
import threading

import pytest

from tests.bad_input.wrong_servers import non_compliant_server
from txlog.client.admin import Admin
from txlog.errors import (
    InvalidOption,
    NotATxlog,
    StoreDenied,
    StoreNotAtomic,
    StoreUnavailable,
    TxlogError,
    UsageError,
)

pytestmark = pytest.mark.slow

PATIENCE_S = 60
CLIENTS = pytest.mark.parametrize("client", ["obstore", "s3fs"])
ROOT = "s3://bucket/log"


def options(url: str, client: str) -> dict[str, object]:
    return {
        "client": client,
        "endpoint_url": url,
        "key": "AKIAEXAMPLE",
        "secret": "hush-hush",
        "client_kwargs": {"region_name": "us-east-1"},
        "attempts_max": 2,
        "pause_min_ms": 1,
    }


@CLIENTS
@pytest.mark.parametrize(
    ("status", "create", "error", "told"),
    [
        (200, False, StoreUnavailable, "a web page came instead of an object. Check"),
        (200, True, StoreUnavailable, "a web page came instead of an object. Check"),
        (404, False, NotATxlog, "there is no log at"),
        (404, True, StoreDenied, "there is no bucket 'bucket' there.*AWS_ENDPOINT_URL"),
        (403, False, StoreDenied, ": HTTP 403. Check AWS_ACCESS_KEY_ID"),
        (500, False, StoreUnavailable, "HTTP 500"),
    ],
)
def test_endpoint_that_serves_web_pages_is_refused(
    client: str, status: int, create: bool, error: type[TxlogError], told: str
) -> None:
    with non_compliant_server(status) as server, pytest.raises(error, match=told) as raised:
        Admin(ROOT, create=create, storage_options=options(server.url, client))
    assert "hush" not in str(raised.value)


@CLIENTS
def test_I1_service_that_ignores_if_none_match_is_refused(client: str) -> None:
    with non_compliant_server(keeps_objects=True) as server:
        with pytest.raises(StoreNotAtomic, match="overwrote it.*honours If-None-Match"):
            Admin(ROOT, create=True, storage_options=options(server.url, client))
        assert [name for name in server.objects if name.endswith("txlog.json")] == []


@CLIENTS
def test_endpoint_that_does_not_speak_http_is_refused(client: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def greet() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
                    connection.shutdown(socket.SHUT_WR)
                    connection.recv(1 << 16)

        greeting = threading.Thread(target=greet)
        greeting.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(StoreUnavailable, match="no clear answer"):
            Admin(ROOT, storage_options=options(url, client))
        listening.shutdown(socket.SHUT_RDWR)
        greeting.join()


@CLIENTS
@pytest.mark.parametrize(
    ("url", "error", "told"),
    [
        ("localhost:9000", InvalidOption, "must look like https://host:port"),
        ("http://no-such-host.invalid", StoreUnavailable, "check that the store can be reached"),
    ],
)
def test_malformed_or_unresolvable_endpoint_is_reported(
    client: str, url: str, error: type[TxlogError], told: str
) -> None:
    with pytest.raises(error, match=told):
        Admin(ROOT, storage_options=options(url, client))


def test_bucket_name_of_one_letter_is_refused() -> None:
    with pytest.raises(UsageError, match="two letters or more"):
        Admin("s3://b/log")


_WAITS = """
import sys
from txlog import Admin
options = {"client": sys.argv[2], "endpoint_url": sys.argv[1], "key": "k", "secret": "s",
           "attempt_timeout_ms": 2_000, "deadline_ms": 600_000, "attempts_max": 1_000}
try:
    Admin("s3://bucket/log", storage_options=options)
except KeyboardInterrupt:
    sys.exit(7)
"""


@CLIENTS
def test_ctrl_c_interrupts_a_hanging_request_before_the_deadline(client: str) -> None:
    """The deadline is ten minutes away."""
    with non_compliant_server(silent=True) as server:
        process = subprocess.Popen([sys.executable, "-c", _WAITS, server.url, client])
        assert server.asked.wait(PATIENCE_S)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 7
