"""A running `txlog kafka`, for tests with Kafka's clients."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Callable

from tests.processes.command_line import command, environment

WAIT_S = 30


class Gateway:
    """A gateway in a process of its own."""

    def __init__(
        self,
        root: str,
        *arguments: str,
        listen: str = "127.0.0.1:0",
        before: Callable[[], object] | None = None,
    ) -> None:
        """`listen` with the port 0: a free one. `before` is called in the process, before the
        gateway starts."""
        self.root = root
        self.messages: list[str] = []
        """Lines on stderr."""
        words = ("kafka", "--root", root, "--listen", listen, "-o", "json", "--quiet", *arguments)
        self.process = subprocess.Popen(
            command(*words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            preexec_fn=before,
        )
        weakref.finalize(self, self.process.kill)  # A test that fails may not come to its end.
        self._reader = threading.Thread(target=self._read_messages, daemon=True)
        self._reader.start()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (self.ended(), self.messages)
        self.address: str = json.loads(line)["bootstrap_servers"]

    def _read_messages(self) -> None:
        assert self.process.stderr is not None
        self.messages.extend(iter(self.process.stderr.readline, ""))

    def lines_since(self, seen: int, count: int = 1) -> list[str]:
        """The lines that were logged since; waits for so many."""
        deadline = time.monotonic() + WAIT_S
        while len(self.messages) < seen + count:
            assert self.process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.001)
        return self.messages[seen:]

    def connected(self) -> socket.socket:
        """A connection without a client."""
        host, _, port = self.address.rpartition(":")
        found = socket.create_connection((host, int(port)), WAIT_S)
        found.settimeout(WAIT_S)
        return found

    def ended(self) -> int:
        """Wait for its end; returns the exit code."""
        code = self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return code

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.ended()

    def stop(self) -> None:
        """SIGTERM, which ends it in order."""
        self.process.terminate()
        assert self.ended() == 130

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        if self.process.stdout is not None and not self.process.stdout.closed:
            self.ended()

    def config(self, **more: object) -> dict[str, object]:
        """The configuration of a client: Kafka's names with `_` for `.`."""
        return {"bootstrap.servers": self.address, **{k.replace("_", "."): more[k] for k in more}}
