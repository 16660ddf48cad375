"""The network between one process and the service, with its faults.

Each request is one turn of its actor, so that processes interleave at every request. The world's
seed draws a fault for each. It must not know what the objects mean.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, NoReturn, TypeVar, cast

from tests.simulator.environment.faults import LOST_MS_MAX
from tests.simulator.environment.service import S3Request, S3Response, as_s3
from tests.simulator.environment.world_state import WorldState
from txlog.storage.object_stores.object_client import Failure
from txlog.storage.policy.retry import Attempts
from txlog.storage.s3.s3_failure import read_failure

T = TypeVar("T")

LATENCY_MS = 4.0
"""Mean time that a request takes to arrive."""

YEAR_MS = 365 * 86_400_000

NO_ROOM = 507
"""The status of a service whose disk is full."""


class ProcessDied(BaseException):
    """The process has died: nothing of it runs any more, not even its error handling."""


class Answered(Exception):
    """The service refused the request. It has the form of botocore's error, which the product
    reads."""

    def __init__(self, answer: S3Response) -> None:
        super().__init__(f"HTTP {answer.status}")
        self.response = {
            "ResponseMetadata": {"HTTPStatusCode": answer.status},
            "Error": {"Code": answer.code},
        }


class NoAnswer(Exception):
    """The connection broke, or the client timed out."""


class Network:
    """One process's network to the service: the `S3Requests` of its `S3Store`."""

    def __init__(self, world_state: WorldState, process: str) -> None:
        self.world_state = world_state
        self.process = process
        self.is_dead = False
        self.wall_offset_ms = 0.0
        """Error of the process's wall clock."""
        self.lost_ms = 0.0
        """Time that all of the process's clocks have lost."""
        self._cut_off_until_ms = 0.0
        self._denied_until_ms = 0.0
        self._broken_page = ("", -1.0)
        """A page of a listing, and the time until which it fails."""

    # Called by S3Store.

    def ask(self, attempts: Attempts, call: Callable[[Any], Awaitable[T]]) -> T | Failure:
        """See S3Requests.ask. The coroutine never waits: all waiting is done by turns."""
        try:
            return _finished(call(_Files(self, attempts.timeout_ms())))
        except Exception as error:  # noqa: BLE001 - the product reads what it means
            return read_failure(error, answered_before=True)

    def ask_all(
        self, attempts: Attempts, calls: Sequence[Callable[[Any], Awaitable[T]]]
    ) -> list[T | Failure]:
        """See S3Requests.ask_all: one after the other."""
        return [self.ask(attempts, call) for call in calls]

    # One request.

    def send(self, request: S3Request, timeout_ms: float) -> S3Response:
        """Carry the request out, perhaps with a fault. Raises NoAnswer, ProcessDied."""
        self.require_alive()
        world_state = self.world_state
        scheduler = world_state.scheduler
        world_state.requests += 1
        fault = world_state.draw(request)
        latency_ms = scheduler.random.expovariate(1 / LATENCY_MS)
        if scheduler.now_ms < self._cut_off_until_ms and world_state.is_busy:
            world_state.count("partition")
            fault = scheduler.random.choice(_CUT_OFF)
        elif fault and fault not in _COUNTED_LATER:
            world_state.count(fault)
        if fault in _BEFORE:
            latency_ms = _BEFORE[fault](self, latency_ms)
        if latency_ms > timeout_ms:
            if request.changes and fault == "slow":
                self._land(request, latency_ms)
            self._give_up(request, timeout_ms, "timeout")
        scheduler.sleep(latency_ms)
        handler = _AT_THE_SERVICE.get(fault) if fault else None
        answer = self._carry_out(request) if handler is None else handler(self, request, timeout_ms)
        self.require_alive()  # Another actor of the process may have ended it meanwhile.
        what = f"{answer.status} {fault}" if fault else str(answer.status)
        world_state.trace_of(self.process, request, what)
        return answer

    def require_alive(self) -> None:
        """Raises ProcessDied."""
        if self.is_dead:
            raise ProcessDied

    def die(self) -> NoReturn:
        """End the process: everything in its memory is lost."""
        self.is_dead = True
        raise ProcessDied

    def _carry_out(self, request: S3Request) -> S3Response:
        world_state = self.world_state
        if not world_state.is_busy:
            world_state.service.full_until_ms = -1.0  # The disk has space again.
        elif world_state.scheduler.now_ms < self._denied_until_ms:
            world_state.count("denied")
            return S3Response(403, "ExpiredToken")
        if request.is_later_page and self._is_broken(request):
            return S3Response(503, "SlowDown")
        answer = world_state.carry_out(request)
        if answer.status == NO_ROOM:
            world_state.count("disk_full")
        return answer

    def _is_broken(self, request: S3Request) -> bool:
        after, until_ms = self._broken_page
        return self.world_state.is_busy and (
            request.after == after and self.world_state.scheduler.now_ms < until_ms
        )

    def _land(self, request: S3Request, delay_ms: float) -> None:
        self.world_state.land(request, delay_ms, self.process, lambda: self.is_dead)

    def _give_up(self, request: S3Request, wait_ms: float, what: str) -> NoReturn:
        self.world_state.trace_of(self.process, request, what)
        self.world_state.scheduler.sleep(wait_ms)
        self.require_alive()
        raise NoAnswer(what)

    # Faults before the request is carried out; they return how long it takes.

    def _slow(self, latency_ms: float) -> float:
        return latency_ms * 100 + self.world_state.log_uniform(10, 20_000)

    def _part(self, latency_ms: float) -> float:
        scheduler = self.world_state.scheduler
        self._cut_off_until_ms = scheduler.now_ms + self.world_state.log_uniform(100, 60_000)
        return latency_ms

    def _deny(self, latency_ms: float) -> float:
        scheduler = self.world_state.scheduler
        self._denied_until_ms = scheduler.now_ms + self.world_state.log_uniform(10, 10_000)
        return latency_ms

    def _jump(self, latency_ms: float) -> float:
        span_ms = self.world_state.log_uniform(1_000, YEAR_MS)
        self.wall_offset_ms = self.world_state.scheduler.random.choice((-span_ms, span_ms, 0.0))
        return latency_ms

    def _fill(self, latency_ms: float) -> float:
        scheduler = self.world_state.scheduler
        self.world_state.service.full_until_ms = scheduler.now_ms + self.world_state.log_uniform(
            10, 60_000
        )
        return latency_ms

    # Faults at the service.

    def _crash_before(self, request: S3Request, timeout_ms: float) -> S3Response:
        self.world_state.trace_of(self.process, request, "died before it")
        self.die()

    def _crash_after(self, request: S3Request, timeout_ms: float) -> S3Response:
        answer = self._carry_out(request)
        self.world_state.trace_of(self.process, request, f"{answer.status}, died after it")
        self.die()

    def _crash_midway(self, request: S3Request, timeout_ms: float) -> S3Response:
        self._land(request, self.world_state.log_uniform(1, 300_000))
        self.world_state.trace_of(self.process, request, "died, to land late")
        self.die()

    def _pause(self, request: S3Request, timeout_ms: float) -> S3Response:
        """Pause this process alone, before or after the request is carried out; then continue."""
        duration_ms = self.world_state.log_uniform(5_000, 400_000)
        if self.world_state.scheduler.random.random() < 0.5:
            self.world_state.scheduler.sleep(duration_ms)
            return self._carry_out(request)
        answer = self._carry_out(request)
        self.world_state.count("pause_after")
        self.world_state.scheduler.sleep(duration_ms)
        return answer

    def _stop_clock(self, request: S3Request, timeout_ms: float) -> S3Response:
        """Freeze the machine: its clocks lose that time."""
        left_ms = LOST_MS_MAX - self.lost_ms
        lost_ms = min(left_ms, self.world_state.log_uniform(100, LOST_MS_MAX))
        before = self.world_state.scheduler.random.random() < 0.5
        answer = None if before else self._carry_out(request)
        self.world_state.scheduler.sleep(lost_ms)
        self.lost_ms += lost_ms
        return self._carry_out(request) if answer is None else answer

    def _lost_response(self, request: S3Request, timeout_ms: float) -> S3Response:
        answer = self._carry_out(request)
        self._give_up(request, 0.0, f"{answer.status}, answer lost")

    def _lost_request(self, request: S3Request, timeout_ms: float) -> S3Response:
        self._give_up(request, timeout_ms, "request lost")

    def _late_landing(self, request: S3Request, timeout_ms: float) -> S3Response:
        self._land(request, self.world_state.log_uniform(1, 300_000))
        self._give_up(request, self.world_state.log_uniform(1, timeout_ms), "to land late")

    def _duplicate(self, request: S3Request, timeout_ms: float) -> S3Response:
        self._land(request, self.world_state.log_uniform(1, 300_000))
        return self._carry_out(request)

    def _replayed(self, request: S3Request, timeout_ms: float) -> S3Response:
        self._carry_out(request)
        return self._carry_out(request)

    def _conflict(self, request: S3Request, timeout_ms: float) -> S3Response:
        return S3Response(409, "ConditionalRequestConflict")

    def _unavailable(self, request: S3Request, timeout_ms: float) -> S3Response:
        return S3Response(503, "SlowDown")

    def _error_after(self, request: S3Request, timeout_ms: float) -> S3Response:
        self._carry_out(request)
        return S3Response(500, "InternalError")

    def _stale_list(self, request: S3Request, timeout_ms: float) -> S3Response:
        draw = self.world_state.scheduler.random
        hidden = frozenset(number for number in range(64) if draw.random() < 0.3)
        answer = self.world_state.service.stale_page(request, hidden)
        if answer != self._carry_out(request):
            self.world_state.count("stale_list")
        return answer

    def _partial_list(self, request: S3Request, timeout_ms: float) -> S3Response:
        """Let a page fail, with all repeats of it, so that the listing ends there."""
        until_ms = self.world_state.scheduler.now_ms + self.world_state.log_uniform(10, 60_000)
        self._broken_page = (request.after, until_ms)
        return S3Response(503, "SlowDown")


_BEFORE: Mapping[str, Callable[[Network, float], float]] = {
    "slow": Network._slow,
    "clock_jump": Network._jump,
    "disk_full": Network._fill,
    "partition": Network._part,
    "denied": Network._deny,
}
_CUT_OFF = ("lost_request", "lost_response", "lost_request", "late_landing")
"""Faults of a request of a process that is cut off."""

_COUNTED_LATER = frozenset(
    ("disk_full", "late_landing", "duplicate", "stale_list", "partition", "denied")
)
"""Faults that may have no effect: they are counted where they have one."""

_AT_THE_SERVICE: Mapping[str, Callable[[Network, S3Request, float], S3Response]] = {
    "crash_before": Network._crash_before,
    "crash_midway": Network._crash_midway,
    "crash_after": Network._crash_after,
    "pause": Network._pause,
    "clock_stop": Network._stop_clock,
    "lost_response": Network._lost_response,
    "lost_request": Network._lost_request,
    "late_landing": Network._late_landing,
    "duplicate": Network._duplicate,
    "replayed": Network._replayed,
    "conflict_409": Network._conflict,
    "error_503": Network._unavailable,
    "error_500_after": Network._error_after,
    "stale_list": Network._stale_list,
    "partial_list": Network._partial_list,
}


def _finished(awaitable: Awaitable[T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        cast("Coroutine[object, None, T]", awaitable).send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("a simulated request waited for something.")


class _Files:
    """Takes the place of s3fs."""

    def __init__(self, network: Network, timeout_ms: float) -> None:
        self._network = network
        self._timeout_ms = timeout_ms

    async def _call_s3(self, method: str, **parameters: object) -> dict[str, object]:
        request = S3Request.of(method, parameters)
        answer = self._network.send(request, self._timeout_ms)
        if not answer.is_success:
            raise Answered(answer)
        if method == "list_objects_v2":
            return as_s3(answer)
        return {"ETag": "any", "Body": _Body(answer.body)}


class _Body:
    """A response's stream."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def __aenter__(self) -> _Body:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def read(self) -> bytes:
        """The whole body."""
        return self._data
