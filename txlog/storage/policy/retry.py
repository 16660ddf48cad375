"""Retries of requests to a store: limited attempts, growing pauses, one deadline.

Keeps I16. Time and jitter come from the Runtime, so a simulation can replay them. It must not know
what is attempted, nor decide anything by the time (I14): running out of attempts is an error, never
an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from txlog.clock import Runtime
from txlog.errors import InvalidConfig, InvalidOption, StoreFull, StoreUnavailable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """The limits of one call on a store. Times are milliseconds."""

    deadline_ms: int = 30_000
    """From the first attempt; no attempt begins after it."""

    attempts_max: int = 20
    """Requests for one call, even if time is left."""

    attempt_timeout_ms: int = 5_000
    """Limit for one answer, besides the time that the transfer of its bytes may take."""

    pause_min_ms: int = 50
    """Longest pause after the first attempt; it doubles with each."""

    pause_max_ms: int = 2_000
    """The longest pause."""

    throughput_min_bytes_per_s: int = 1_000_000
    """Timeouts grow with the size of a body at this rate, so a slower transfer fails."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise InvalidConfig(
                    f"retry setting {name} is {getattr(self, name)}; give a number from 1 up.",
                    name=name,
                )

    @classmethod
    def names(cls) -> frozenset[str]:
        """The settings' names, which are storage options too."""
        return frozenset(cls.__slots__)

    @classmethod
    def take_from(cls, options: Mapping[str, object]) -> tuple[RetrySettings, dict[str, object]]:
        """Split `options` into these settings and the other options. Raises InvalidOption."""
        ours = {name: _whole_number(name, options[name]) for name in cls.names() & options.keys()}
        return cls(**ours), {name: options[name] for name in options.keys() - ours.keys()}

    def transfer_ms(self, size_bytes: int) -> int:
        """Time for a body of that size, beyond the fixed limits."""
        return size_bytes * 1_000 // self.throughput_min_bytes_per_s


def _whole_number(name: str, value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise InvalidOption(
            f"storage option {name} is {value!r}; give a whole number.", name=name
        ) from None


class Attempts:
    """The attempts of one call: iterate, and leave the loop on success.

    Between two of them it sleeps for a random part of a limit that doubles ("full jitter"), so that
    writers that collided once do not collide again. It ends when the deadline or the number is
    reached, and never sleeps beyond the deadline.
    """

    def __init__(self, settings: RetrySettings, runtime: Runtime, size_bytes: int = 0) -> None:
        self._settings = settings
        self._runtime = runtime
        self.size_bytes = size_bytes
        """Bytes to transfer, as far as known beforehand."""
        self._transfer_ms = settings.transfer_ms(size_bytes)
        self._deadline_ms = settings.deadline_ms + self._transfer_ms
        self._begun_ms = runtime.clock.monotonic_ms()
        self.made = 0
        """Attempts begun so far."""
        self.last_failure = ""
        """The message of the last failed attempt."""

    def __iter__(self) -> Iterator[int]:
        while self.made < self._settings.attempts_max and self.left_ms() > 0:
            self.made += 1
            yield self.made
            if self.made < self._settings.attempts_max:
                self._pause()

    def left_ms(self) -> float:
        """Time until the deadline; zero or negative once it has passed."""
        elapsed_ms = self._runtime.clock.monotonic_ms() - self._begun_ms
        return self._deadline_ms - elapsed_ms

    def timeout_ms(self) -> float:
        """How long the attempt that begins now may wait for its answer."""
        return min(self._settings.attempt_timeout_ms + self._transfer_ms, max(self.left_ms(), 1.0))

    def summary(self) -> str:
        """The number of attempts, their duration and the last failure, for messages."""
        elapsed_ms = self._runtime.clock.monotonic_ms() - self._begun_ms
        # The failure may be a whole sentence; the message continues after it.
        failure = str(self.last_failure).rstrip(".")
        last = f", the last with: {failure}" if self.last_failure else ""
        return f"{self.made} attempts in {elapsed_ms:.0f} ms gave no clear answer{last}"

    def _pause(self) -> None:
        limit_ms = min(self._settings.pause_max_ms, self._settings.pause_min_ms << (self.made - 1))
        pause_ms = self._runtime.entropy.uniform(0.0, limit_ms)
        self._runtime.clock.sleep_ms(min(pause_ms, max(self.left_ms(), 0.0)))


def call_until_answered(place: str, attempts: Attempts, request: Callable[[], T]) -> T:
    """The first answer of `request`, which must be safe to repeat.

    StoreUnavailable from `request` means "try again"; StoreFull and any other error are raised
    unchanged. Raises StoreUnavailable when the attempts are used up.
    """
    failure: StoreUnavailable | None = None
    for _ in attempts:
        try:
            return request()
        except StoreFull:  # A StoreUnavailable, but a repeat frees no space.
            raise
        except StoreUnavailable as error:
            failure = error
            attempts.last_failure = str(error.facts.get("reason", error.message))
    raise StoreUnavailable(
        f"{place}: {attempts.summary()}. Call again; check that the store can be reached.",
        place=place,
    ) from failure
