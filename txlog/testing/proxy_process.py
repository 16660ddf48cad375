"""A distant server: a TcpProxy in a process of its own, so that it takes no processor time from the
measured client.

`python -m txlog.testing.proxy_process TARGET_URL` prints the address it listens on, then obeys
commands on stdin until stdin is closed; `ProxyProcess` is the client side. It must not know what
the server is.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from txlog.testing.request_log import Request
from txlog.testing.tcp_proxy import TcpProxy

_ROOT = Path(__file__).parents[2]
_DELAY = "delay"
_LOG = "log"


class ProxyProcess:
    """The line to a server. Not for use from several threads."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.endpoint_url: str = self._answer()
        """The URL at which clients reach the server."""

    @classmethod
    @contextmanager
    def to(cls, target_url: str, round_trip_ms: float = 0.0) -> Iterator[ProxyProcess]:
        """A line to the server at `target_url`, open for the duration of the block."""
        command = [sys.executable, "-m", "txlog.testing.proxy_process", target_url]
        with subprocess.Popen(
            command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                line = cls(process)
                line.delay(round_trip_ms)
                yield line
            finally:
                process.kill()

    def delay(self, round_trip_ms: float) -> None:
        """Set the round-trip time from now on, half of it in each direction."""
        self._ask(_DELAY, round_trip_ms)

    def logged(self) -> list[Request]:
        """The requests that have begun since the last call; the first call starts the recording."""
        return [Request(**fields) for fields in self._ask(_LOG)]

    def _ask(self, *command: object) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the proxy ended with status {self._process.wait()}")
        return json.loads(line)


def _serve(target_url: str) -> None:
    with TcpProxy(target_url) as proxy:
        _say(proxy.endpoint_url)
        for line in sys.stdin:
            name, *arguments = json.loads(line)
            if name == _DELAY:
                proxy.delay(*arguments)
                _say(None)
            else:
                _say([asdict(request) for request in proxy.logged()])


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _serve(sys.argv[1])
