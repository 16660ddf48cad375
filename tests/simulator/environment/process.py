"""One simulated process: its own connection, clock and random numbers, for one or several actors.

All of its memory is lost when it dies. It must not share an object of the product with another
process: processes share the store only.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TypeAlias, TypeVar

from tests.simulator.environment.network import Network, ProcessDied
from tests.simulator.environment.scheduler import Scheduler, TurnEvent, TurnLock
from tests.simulator.environment.service import BUCKET
from txlog.catalog.cluster import open_cluster
from txlog.clock import Runtime
from txlog.engine.append.appender import ENTRY_BATCHES_MAX
from txlog.engine.connection import Connection
from txlog.errors import TxlogError
from txlog.fan_out import Postponed
from txlog.settings import ProcessSettings
from txlog.storage.policy.retry import RetrySettings
from txlog.storage.s3.s3 import S3Store
from txlog.testing.clock import SeededEntropy

T = TypeVar("T")

NewLock: TypeAlias = Callable[[], AbstractContextManager[object]]

EPOCH_MS = 1_750_000_000_000
"""Start of virtual wall clocks, in ms since 1970."""


class ProcessClock:
    """The clocks of this process: the wall clock may be wrong, and all of them may have lost
    time."""

    def __init__(self, scheduler: Scheduler, network: Network) -> None:
        self._scheduler = scheduler
        self._network = network

    def wall_ms(self) -> int:
        """See Clock.wall_ms."""
        return int(EPOCH_MS + self.monotonic_ms() + self._network.wall_offset_ms)

    def monotonic_ms(self) -> float:
        """See Clock.monotonic_ms."""
        return self._scheduler.now_ms - self._network.lost_ms

    def boot_ms(self) -> float:
        """See Clock.boot_ms."""
        return self.monotonic_ms()

    def sleep_ms(self, duration_ms: float) -> None:
        """Let other actors run meanwhile."""
        self._scheduler.sleep(duration_ms)


class DrawnFanOut:
    """Makes calls that threads would make in parallel: in any order, and background calls perhaps
    never."""

    def __init__(self, choices: random.Random, new_lock: NewLock) -> None:
        self._random = choices
        self._new_lock = new_lock
        self._waiting: list[Callable[[], object]] = []

    def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """See FanOut.run_all."""
        order = list(range(len(calls)))
        self._random.shuffle(order)
        answers = {number: _tried(calls[number]) for number in order}
        return [answers[number]() for number in range(len(calls))]

    def run_together(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """See FanOut.run_together; there are no threads."""
        return self.run_all(calls)

    def start(self, call: Callable[[], T]) -> Callable[[], T]:
        """See FanOut.start. The call is made now, when a caller waits for it, or when the process
        is idle."""
        if self._random.random() < 0.5:
            return _tried(call)
        lock = self._new_lock()
        made: list[Callable[[], T]] = []

        def once() -> Callable[[], T]:
            with lock:
                if not made:
                    made.append(_tried(call))
                return made[0]

        self._waiting.append(once)
        return lambda: once()()

    def postpone(self, call: Callable[[], T], delay_ms: float) -> Postponed[T]:
        """See FanOut.postpone. The call is made now, on request, or when the process is idle,
        unless it is withdrawn before."""
        postponed = Postponed(call, self._new_lock())
        if self._random.random() < 0.5:
            postponed.begin()
        else:
            self._waiting.append(postponed.begin)
        return postponed

    def idle(self) -> None:
        """Make the waiting calls: the process has nothing else to do."""
        while self._waiting:  # And the calls that these begin.
            self._waiting.pop(0)()


def _tried(call: Callable[[], T]) -> Callable[[], T]:
    """Make the call now. Its result or error is returned later."""
    try:
        result = call()
    except TxlogError as error:
        failure = error

        def fail() -> T:
            raise failure

        return fail
    return lambda: result


class SpawnedBackground:
    """Runs each background call as an actor of its own, which dies with the process."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def repeat(self, call: Callable[[], object], interval_ms: float) -> Callable[[], None]:
        """See Background.repeat. It is refused: actors make such calls in their own turns."""
        raise RuntimeError("a simulated process has no timers; make the call yourself.")

    def begin(self, call: Callable[[], object]) -> None:
        """See Background.begin."""

        def live() -> None:
            with suppress(ProcessDied):
                call()

        self._network.world_state.scheduler.spawn(f"{self._network.process}, beside", live)

    def at_exit(self, call: Callable[[], object]) -> Callable[[], None]:
        """See Background.at_exit. A simulated process never ends normally."""
        return lambda: None


class SimulatedProcess:
    """One life of a process. It is created and used in the turns of its actors only."""

    def __init__(
        self,
        network: Network,
        seed: str,
        limits: ProcessSettings,
        entry_batches_max: int = ENTRY_BATCHES_MAX,
    ) -> None:
        """`entry_batches_max`: a transaction with more stored batches has manifests."""
        scheduler = network.world_state.scheduler
        self.network = network
        self.random = random.Random(seed)
        new_lock = partial(TurnLock, scheduler)
        self.fan_out = DrawnFanOut(self.random, new_lock)
        self.runtime = Runtime(
            ProcessClock(scheduler, network),
            SeededEntropy(seed),
            self.fan_out,
            SpawnedBackground(network),
            new_lock,
            partial(TurnEvent, scheduler),
        )
        retries = RetrySettings(deadline_ms=15_000, attempts_max=3, pause_max_ms=500)
        self.store = S3Store(BUCKET, "", self.runtime, settings=retries, requests=network)
        self._limits = limits
        self._entry_batches_max = entry_batches_max
        self._connection: Connection | None = None
        self._lock = new_lock()

    @property
    def connection(self) -> Connection:
        """The log, opened at the first use. Raises StoreUnavailable."""
        with self._lock:
            if self._connection is None:
                writer = self.network.process
                cluster = open_cluster(self.store, self.runtime, self._limits, writer=writer)
                self._connection = Connection(cluster)
                self._connection.entry_batches_max = self._entry_batches_max
            return self._connection

    def sleep(self, low_ms: float, high_ms: float) -> None:
        """Sleep for a time of any order of magnitude between these. Background work is done
        first."""
        self.fan_out.idle()
        self.runtime.clock.sleep_ms(self.network.world_state.log_uniform(low_ms, high_ms))
        self.network.require_alive()

    @property
    def is_busy(self) -> bool:
        """Whether actors begin new work; faults happen only in that time."""
        return self.network.world_state.is_busy

    def note(self, what: str, **facts: object) -> None:
        """Add an event of this process to the history."""
        self.network.world_state.note(self.network.process, what, **facts)
