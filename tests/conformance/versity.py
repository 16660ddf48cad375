"""versitygw on the loopback interface: an S3 server that checks signatures and keeps files.

`make servers` installs it.
"""

import contextlib
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from botocore.session import Session

from tests.source_tree import ROOT
from txlog.testing.s3_server import free_port

PROGRAM = ROOT / ".servers/bin/versitygw"
KEY, SECRET = "versity-test", "versity-secret"
BUCKET = "txlog-test"
START_TIMEOUT_S = 60


def storage_options(port: int) -> dict[str, object]:
    """The options for `open_store`."""
    return {
        "endpoint_url": f"http://127.0.0.1:{port}",
        "key": KEY,
        "secret": SECRET,
        "client_kwargs": {"region_name": "us-east-1"},
    }


@contextlib.contextmanager
def versity() -> Iterator[int]:
    """The port of a server with a bucket. Raises RuntimeError if it does not start."""
    with tempfile.TemporaryDirectory(prefix="txlog-versity-") as folder:
        port = free_port()
        for name in ("objects", "attributes"):
            Path(folder, name).mkdir()
        command = [PROGRAM, "--port", f"127.0.0.1:{port}", "--quiet", "posix"]
        command += ["--sidecar", f"{folder}/attributes", f"{folder}/objects"]
        keys = {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
        with Path(folder, "server.log").open("wb") as log:
            server = subprocess.Popen(
                command, env={**os.environ, **keys}, stdout=log, stderr=log, cwd=folder
            )
        try:
            _await(server, port)
            _make_bucket(port)
            yield port
        finally:
            server.kill()  # Otherwise it would wait for connections that clients keep open.
            server.wait(START_TIMEOUT_S)


def _await(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while server.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"versitygw did not come up on port {port}.")


def signed_put(port: int, key: str) -> str:
    """A URL to which any client may PUT that object."""
    client = _client(port)
    url: str = client.generate_presigned_url("put_object", {"Bucket": BUCKET, "Key": key})
    client.close()
    return url


def _make_bucket(port: int) -> None:
    client = _client(port)
    client.create_bucket(Bucket=BUCKET)
    client.close()


def _client(port: int) -> Any:
    return Session().create_client(
        "s3",
        region_name="us-east-1",
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
    )
