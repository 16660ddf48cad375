"""One direction of a connection on which bytes arrive late, as to a distant server.

Bytes leave in the order in which they came. Each piece is delayed by the same time, however many
are in transit: the line has high latency, not low bandwidth. It must not know what the bytes are.
"""

from __future__ import annotations

import asyncio
from collections import deque

_EARLY_S = 0.0005
"""The event loop rounds timers up to whole milliseconds; firing half of one early balances that."""


class DelayedStream:
    """The bytes in transit to `writer`. Must be used on the event loop's thread."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._under_way: deque[tuple[float, bytes]] = deque()

    async def send(self, data: bytes, delay_s: float) -> float:
        """Deliver `data` after `delay_s`, and return the time of arrival by the loop's clock.

        Data sent with a shorter delay does not overtake data in transit. Waits while the receiver
        accepts nothing.
        """
        now_s = self._loop.time()
        if not self._under_way and not delay_s:
            self._writer.write(data)
            await self._writer.drain()
            return now_s
        before_s = self._under_way[-1][0] if self._under_way else 0.0
        due_s = max(now_s + delay_s, before_s)
        self._under_way.append((due_s, data))
        if len(self._under_way) == 1:
            self._loop.call_at(due_s - _EARLY_S, self._arrive)
        await self._writer.drain()
        return due_s

    async def all_arrived(self) -> None:
        """Wait until nothing is in transit."""
        while self._under_way:
            await asyncio.sleep(max(0.0, self._under_way[-1][0] - self._loop.time()))

    def _arrive(self) -> None:
        now_s = self._loop.time() + _EARLY_S
        while self._under_way and self._under_way[0][0] <= now_s:
            self._writer.write(self._under_way.popleft()[1])
        if self._under_way:
            self._loop.call_at(self._under_way[0][0] - _EARLY_S, self._arrive)
