"""A running `txlog kafka`, for tests with Kafka's clients."""

from __future__ import annotations

import json
import subprocess

from tests.processes.command_line import command, environment

WAIT_S = 30


class Gateway:
    """A gateway in a process of its own."""

    def __init__(self, root: str, listen: str = "127.0.0.1:0", *arguments: str) -> None:
        """`listen` with the port 0: a free one."""
        self.root = root
        words = ("kafka", "--root", root, "--listen", listen, "-o", "json", "--quiet", *arguments)
        self.process = subprocess.Popen(
            command(*words), stdout=subprocess.PIPE, text=True, env=environment()
        )
        assert self.process.stdout is not None
        self.address: str = json.loads(self.process.stdout.readline())["bootstrap_servers"]

    def ended(self) -> int:
        """Wait for its end; returns the exit code."""
        code = self.process.wait(WAIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
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
