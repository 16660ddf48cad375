"""fake-gcs-server, which answers as Google Cloud Storage does; `make servers` installs it.

It knows the JSON interface, by which Google's libraries write, and reads objects by the XML
interface, which txlog uses.
"""

import json
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from tests.source_tree import ROOT
from txlog.testing.s3_server import free_port

PROGRAM = ROOT / ".servers/bin/fake-gcs-server"
START_TIMEOUT_S = 60


@contextmanager
def fake_gcs(bucket: str) -> Iterator[str]:
    """The URL of a server with that bucket. Raises RuntimeError if it does not start."""
    address = f"127.0.0.1:{free_port()}"
    command = [PROGRAM, "-backend", "memory", "-scheme", "http", "-public-host", address]
    command += ["-host", "127.0.0.1", "-port", address.rpartition(":")[2], "-log-level", "error"]
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _make_bucket(server, f"http://{address}", bucket)
            yield f"http://{address}"
        finally:
            server.kill()
            server.wait(START_TIMEOUT_S)


def _make_bucket(server: subprocess.Popen[bytes], url: str, bucket: str) -> None:
    made = urllib.request.Request(
        f"{url}/storage/v1/b?project=test",
        json.dumps({"name": bucket}).encode(),
        {"Content-Type": "application/json"},
    )
    deadline = time.monotonic() + START_TIMEOUT_S
    while server.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(made, timeout=10).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"fake-gcs-server did not come up at {url}.")
