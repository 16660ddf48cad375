"""Whether the opened log still exists: checked repeatedly while a process writes.

An acknowledgement counts only for that log. A disk checks this for free, at each write (`hold` in
`txlog/storage/store.py`). On a bucket each check is a request, so there is at most one in an
interval, in parallel with another request, and nothing waits for it. Until the next check notices
it, the producer of a deleted log can go on writing; it cannot write into another log, because names
and entries contain the log's id. This module must not know what the log's own file contains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from txlog.clock import Runtime
from txlog.errors import NotATxlog, StoreUnavailable

T = TypeVar("T")
ReadLogId = Callable[[], str | None]
"""The id of the log that is at this place now; None if there is none."""


class Presence:
    """For a log that cannot disappear: there is nothing to check."""

    def check_during(self, read: Callable[[], T]) -> T:
        """The result of `read`."""
        return read()

    def require(self) -> None:
        """Raises NotATxlog if the log was found to be gone. Makes no request."""

    def check(self) -> None:
        """Raises NotATxlog if the log is gone now."""

    def lose(self, error: NotATxlog) -> None:
        """Let `require` raise this error from now on: the log lacks what this process has read."""


class LogPresence(Presence):
    """One process's checks that a log still exists. Safe to use from threads."""

    def __init__(
        self,
        place: str,
        log_id: str,
        read_log_id: ReadLogId,
        runtime: Runtime,
        interval_ms: int,
        *,
        was_checked: bool = True,
    ) -> None:
        """`was_checked`: the log's id was just read; otherwise the first call checks it. With
        `interval_ms` 0 the store itself checks."""
        self._place = place
        self._log_id = log_id
        self._read_log_id = read_log_id
        self._clock = runtime.clock
        self._fan_out = runtime.fan_out
        self._interval_ms = interval_ms
        self._checked_ms = runtime.clock.monotonic_ms() - (0 if was_checked else interval_ms)
        self._gone: NotATxlog | None = None

    def check_during(self, read: Callable[[], T]) -> T:
        """The result of `read`. If a check is due, both requests run in parallel; raises NotATxlog
        as `check` does."""
        if not self._interval_ms or not self._is_due():
            return read()
        found: list[T] = []
        self._fan_out.run_all([lambda: found.append(read()), self.check])
        return found[0]

    def _is_due(self) -> bool:
        """True for one caller in an interval."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._checked_ms < self._interval_ms:
            return False
        # Set before the request is sent, so that no other thread sends it, too.
        self._checked_ms = now_ms
        return True

    def require(self) -> None:
        if self._gone is not None:
            raise self._gone

    def lose(self, error: NotATxlog) -> None:
        self._gone = error

    def check(self) -> None:
        """Read the log's id. Raises NotATxlog, for good, if the log is gone or was replaced.

        A store that does not answer proves nothing: the next call checks again.
        """
        try:
            found = self._read_log_id()
        except StoreUnavailable:
            self._checked_ms -= self._interval_ms
            return
        if found != self._log_id:
            there = f"log {found} is there now" if found else "there is no log now"
            self._gone = NotATxlog(
                f"the log that was opened at {self._place} is gone: {there}. What was written "
                "since then is lost with it. Open the log that is there with a new producer, "
                "consumer or query, and send again what must not be lost.",
                place=self._place,
                log_id=self._log_id,
                reason=there,
            )
        self.require()
