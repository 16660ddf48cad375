"""Azurite, the emulator of Azure's blobs, on the loopback interface; `make servers` installs it.

It honours `If-None-Match: *` under concurrency, and replaces Azure in the tests marked `extra`.
"""

import base64
import datetime as dt
import hashlib
import hmac
import http.client
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.source_tree import ROOT
from txlog.testing.s3_server import free_port

PROGRAM = ROOT / ".servers/node_modules/.bin/azurite-blob"
ACCOUNT = "devstoreaccount1"
# The emulator's own key, from Microsoft's documentation; it opens nothing else.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
START_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Azurite:
    """A running emulator."""

    port: int

    @property
    def storage_options(self) -> dict[str, object]:
        """The options for `open_store`."""
        return {
            "account_name": ACCOUNT,
            "account_key": KEY,
            "endpoint": f"http://127.0.0.1:{self.port}/{ACCOUNT}",
        }


@contextmanager
def azurite(container: str) -> Iterator[Azurite]:
    """An emulator with that container. Raises RuntimeError if it does not start."""
    with tempfile.TemporaryDirectory(prefix="txlog-azurite-") as folder:
        port = free_port()
        where = ("--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", folder)
        # Without the last option it sends telemetry.
        how = ("--silent", "--skipApiVersionCheck", "--disableTelemetry")
        with Path(folder, "server.log").open("wb") as log:
            server = subprocess.Popen([PROGRAM, *where, *how], stdout=log, stderr=log)
        try:
            _make_container(server, port, container)
            yield Azurite(port)
        finally:
            server.terminate()
            server.wait(START_TIMEOUT_S)


def _make_container(server: subprocess.Popen[bytes], port: int, container: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while server.poll() is None and time.monotonic() < deadline:
        try:
            status = _put_container(port, container)
        except OSError:
            time.sleep(0.05)
            continue
        if status == 201:
            return
        raise RuntimeError(f"Azurite answered {status}.")
    raise RuntimeError(f"Azurite did not come up on port {port}.")


def _put_container(port: int, container: str) -> int:
    date = dt.datetime.now(dt.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    signed = f"PUT{12 * chr(10)}x-ms-date:{date}\nx-ms-version:2023-11-03\n"
    signed += f"/{ACCOUNT}/{ACCOUNT}/{container}\nrestype:container"
    digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": date,
        "x-ms-version": "2023-11-03",
        "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
        "Content-Length": "0",
    }
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("PUT", f"/{ACCOUNT}/{container}?restype=container", headers=headers)
        return connection.getresponse().status
