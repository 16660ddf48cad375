"""`txlog maintain` with short limits, run beside the copiers and killed now and then.

It merges the segments that the reader is about to read, and deletes the segments they replace. The
counts of its actions come from its own output.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

FILE_DELETE_DELAY_MS = 500
STAGING_RETENTION_MS = 120_000
"""Well above the longest stop: younger segments are not collected."""


class Maintainer:
    """Runs maintenance processes one after the other, for the duration of a block."""

    def __init__(
        self,
        root: str,
        environment: Mapping[str, str],
        folder: Path,
        seed: str,
        interval_ms: int,
        life_s: float | None = None,
    ) -> None:
        """Each is killed after about `life_s`; without it, only at the end."""
        self.kills = 0
        self.ended: list[int] = []
        """The exit statuses of those that ended without having been killed; it should stay
        empty."""
        self._root = root
        self._environment = {**os.environ, **environment}
        self._actions = folder / "maintain.jsonl"
        self._errors = folder / "maintain.err"
        self._random = random.Random(seed)
        self._interval_ms = interval_ms
        self._life_s = life_s
        self._over = threading.Event()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Run maintenance for the duration of a block."""
        thread = threading.Thread(target=self._keep, name="maintainer")
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def actions(self) -> Counter[str]:
        """The actions taken, by status and task: `ok merging`, `fail vacuum`."""
        found: Counter[str] = Counter()
        for line in self._actions.read_text().splitlines():
            if line.endswith("}"):  # A killed process may have left an incomplete line.
                action = json.loads(line)
                found[f"{action['status']} {action['task']}"] += 1
        return found

    def _keep(self) -> None:
        while not self._over.is_set():
            process = self._started()
            share = self._random.uniform(0.5, 1.5)
            self._wait(process, None if self._life_s is None else share * self._life_s)
            if (status := process.poll()) is not None:
                self.ended.append(status)
                self._over.wait(1)
            else:
                self.kills += 1
            process.kill()
            process.wait()

    def _wait(self, process: subprocess.Popen[bytes], limit_s: float | None) -> None:
        waited_s = 0.0
        while process.poll() is None and (limit_s is None or waited_s < limit_s):
            if self._over.wait(0.2):
                return
            waited_s += 0.2

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "txlog.cli.main", "--root", self._root, "-o", "json"]
        command += ["maintain", "--interval-ms", str(self._interval_ms)]
        command += ["--config", f"file.delete.delay.ms={FILE_DELETE_DELAY_MS}"]
        command += ["--config", f"staging.retention.ms={STAGING_RETENTION_MS}"]
        with self._actions.open("ab") as actions, self._errors.open("ab") as errors:
            return subprocess.Popen(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=actions,
                stderr=errors,
            )
