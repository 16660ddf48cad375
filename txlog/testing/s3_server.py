"""A real S3 server on the loopback interface, for the duration of a `with` block.

Both kinds honour If-None-Match under concurrency (the docs name the stores that were tested).
Nothing leaves this machine, and nothing remains afterwards. It must not hold data that matters.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

START_TIMEOUT_S = 60
"""How long to wait for the server's first answer."""

STOP_TIMEOUT_S = 10
"""How long to wait for the server to end before it is killed."""

ACCESS_KEY = "test"
SECRET_KEY = "test"


class S3ServerKind(StrEnum):
    """The available servers; both are on PyPI and in the `test` extra."""

    MINISTACK = "ministack"
    """Keeps objects in memory; the faster of the two."""

    LOCALBUCKET = "localbucket"
    """Keeps objects as files in a temporary folder."""


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server with one bucket."""

    endpoint_url: str
    bucket: str
    log_file: Path

    def url(self, prefix: str = "") -> str:
        """The root URL of a log in the server's bucket."""
        return f"s3://{self.bucket}/{prefix}".rstrip("/")

    @property
    def env(self) -> dict[str, str]:
        """The variables with which any process finds the server, to be added to os.environ."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_REGION": "us-east-1",
            # Never query the network for credentials, whatever else is set.
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def storage_options(self) -> dict[str, object]:
        """The same settings as options for `open_store`."""
        return {
            "endpoint_url": self.endpoint_url,
            "key": ACCESS_KEY,
            "secret": SECRET_KEY,
            "client_kwargs": {"region_name": "us-east-1"},
        }

    @classmethod
    @contextlib.contextmanager
    def start(
        cls,
        kind: S3ServerKind = S3ServerKind.MINISTACK,
        bucket: str = "txlog-test",
        check_credentials: bool = False,
    ) -> Iterator[S3Server]:
        """Start a server, create the bucket, and stop the server afterwards; its data is deleted
        then.

        With `check_credentials` (ministack only) the server refuses every access key but
        ACCESS_KEY. Raises RuntimeError, with the end of the server's output, if it does not start.
        """
        with tempfile.TemporaryDirectory(prefix="txlog-s3-") as folder:
            port = free_port()
            log_file = Path(folder, "server.log")
            with _running(_command(kind, port, folder), folder, check_credentials, log_file) as it:
                server = cls(f"http://127.0.0.1:{port}", bucket, log_file)
                _make_bucket(it, port, bucket, log_file)
                yield server


def free_port() -> int:
    """A free port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _command(kind: S3ServerKind, port: int, folder: str) -> list[str]:
    if kind is S3ServerKind.LOCALBUCKET:
        return [sys.executable, "-m", "localbucket", "--port", str(port), f"{folder}/buckets"]
    bind = f"127.0.0.1:{port}"
    return [sys.executable, "-m", "hypercorn", "ministack.app:app", "--bind", bind]


@contextlib.contextmanager
def _running(
    command: list[str], folder: str, check_credentials: bool, log_file: Path
) -> Iterator[subprocess.Popen[bytes]]:
    environment = {
        **os.environ,
        "SERVICES": "s3",
        "AUTH": "true" if check_credentials else "false",
        "TMPDIR": folder,
        "LOG_LEVEL": "WARNING",
        "DOCKER_HOST": f"unix://{folder}/no-docker",  # ministack would search for its containers.
    }
    Path(folder, "buckets").mkdir()
    with log_file.open("wb") as log:
        server = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield server
    finally:
        server.terminate()
        try:
            server.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _make_bucket(server: subprocess.Popen[bytes], port: int, bucket: str, log_file: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while server.poll() is None and time.monotonic() < deadline:
        if _put_bucket(port, bucket):
            return
        time.sleep(0.05)
    ending = log_file.read_text(errors="replace")[-2_000:]
    raise RuntimeError(f"the S3 server did not come up on port {port}; it said:\n{ending}")


def _put_bucket(port: int, bucket: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_TIMEOUT_S)
    try:
        connection.request("PUT", f"/{bucket}")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
