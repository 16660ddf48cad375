"""The requests sent to a store, their times, and which of them waited for which.

With a distant store a client's time is that of the longest chain of requests that had to wait for
each other. `chain` derives it from the times of the requests alone: the times at which a proxy
passed them on (`tcp_proxy.py`), or those of a simulation in which a request takes exactly one round
trip (`round_trips.py`). It must not know what the requests are for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Request:
    """One request, from its first byte to the last byte of its answer. Times are milliseconds."""

    verb: str
    path: str
    begun_ms: float
    ended_ms: float
    port: int = 0
    """The port of the client's end of the connection, if there is one: it tells processes apart."""

    @property
    def duration_ms(self) -> float:
        """The time until the answer was complete."""
        return self.ended_ms - self.begun_ms


def chain(requests: Sequence[Request]) -> list[Request]:
    """The requests that waited for each other, first to last: they determine the total time.

    The chain is found from its end: before each request comes the one that ended last of those that
    had ended when it began. A request that began while another was in flight did not wait for it.
    """
    left = sorted(requests, key=lambda request: request.ended_ms)
    found: list[Request] = []
    while left:
        last = left.pop()
        if not found or last.ended_ms <= found[-1].begun_ms:
            found.append(last)
    return found[::-1]


def described(requests: Sequence[Request], round_trip_ms: float) -> Iterator[str]:
    """One line for each request, in round trips since the first; a star marks those of the
    chain."""
    if not requests:
        return
    waited = {id(request) for request in chain(requests)}
    zero_ms = min(request.begun_ms for request in requests)
    for request in sorted(requests, key=lambda request: (request.begun_ms, request.ended_ms)):
        begun, ended = (
            (moment_ms - zero_ms) / round_trip_ms
            for moment_ms in (request.begun_ms, request.ended_ms)
        )
        star = "*" if id(request) in waited else " "
        yield f"{begun:6.1f} to {ended:5.1f} {star} {request.verb:10} {request.path}"
    yield f"{len(requests)} requests, {len(waited)} of them one after the other"
