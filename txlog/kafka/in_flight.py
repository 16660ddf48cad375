"""Requests of one connection that are under way at once.

Clients send several Produce requests without waiting for answers. Those for different partitions
overlap; those for one partition are stored one after the other, as each begins with the sequence
that the one before ends with. Every other request waits for all before it, as at a broker, and
answers keep the order of the requests. It must not know what a request means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

from txlog.model import TopicPartition

T = TypeVar("T")

PRODUCES_MAX = 5
"""The most that a client with idempotence sends before it waits for the first one."""

Call: TypeAlias = Callable[[], Coroutine[Any, Any, bytes | None]]
"""Serves a request; returns the answer, if it has one."""


class InFlight:
    """The requests of one connection, by the connection's own task."""

    __slots__ = ("_running", "_send")

    def __init__(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        """`send` sends an answer."""
        self._send = send
        self._running: list[tuple[set[TopicPartition], asyncio.Task[bytes | None]]] = []

    async def received(self, read: Coroutine[Any, Any, T]) -> T:
        """The next request, which `read` reads; those under way are answered meanwhile, and before
        an error of `read` is raised."""
        if not self._running:
            return await read
        reading = asyncio.create_task(read)
        try:
            while self._running:
                first = self._running[0][1]
                await asyncio.wait({reading, first}, return_when=asyncio.FIRST_COMPLETED)
                if not first.done() and reading.exception() is None:
                    break
                await self._answer_first()
            return await reading
        finally:
            reading.cancel()

    async def serve(self, places: set[TopicPartition], call: Call) -> None:
        """Serve a request that produces to these partitions; answer those that it waits for, and,
        if there are no partitions, this one."""
        while self._running and (
            not places
            or len(self._running) >= PRODUCES_MAX
            or any(places & others for others, _ in self._running)
        ):
            await self._answer_first()
        if places:
            self._running.append((places, asyncio.create_task(call())))
        elif (answer := await call()) is not None:
            await self._send(answer)

    async def _answer_first(self) -> None:
        answer = await self._running[0][1]
        del self._running[0]
        if answer is not None:
            await self._send(answer)

    async def close(self) -> None:
        """Wait for none of them any longer."""
        tasks = [task for _, task in self._running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
