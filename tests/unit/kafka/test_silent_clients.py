"""A client that says nothing for too long, or does not read its answers, is given up."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from txlog.kafka import server
from txlog.kafka.server import PatientStream

SHORT_S, LONG_S = 0.05, 20.0
Talk = Callable[[PatientStream, asyncio.StreamWriter, asyncio.StreamWriter], Awaitable[None]]
"""The stream of the server's side, its writer, and the client's writer."""


def played(patch: pytest.MonkeyPatch, talk: Talk) -> None:
    patch.setattr(server, "FRAME_S", SHORT_S)

    async def test() -> None:
        accepted = asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]]()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await accepted.put((reader, writer))

        async with await asyncio.start_server(accept, "127.0.0.1", 0) as listening:
            _, client = await asyncio.open_connection(*listening.sockets[0].getsockname())
            reader, writer = await accepted.get()
            stream = PatientStream(reader, writer)
            try:
                await talk(stream, writer, client)
            finally:
                stream.close()
                for one in (writer, client):
                    one.transport.abort()

    asyncio.run(asyncio.wait_for(test(), LONG_S))


def test_silent_client_is_given_up_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(
        stream: PatientStream, _: asyncio.StreamWriter, client: asyncio.StreamWriter
    ) -> None:
        client.write(b"part")
        assert await stream.read(2, LONG_S) == b"pa"
        begin = time.monotonic()
        with pytest.raises(TimeoutError):
            await stream.read(4, 3 * SHORT_S)
        assert time.monotonic() - begin >= 3 * SHORT_S

    played(monkeypatch, talk)


def test_time_in_which_the_client_is_not_waited_for_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def talk(
        stream: PatientStream, _: asyncio.StreamWriter, client: asyncio.StreamWriter
    ) -> None:
        client.write(b"1")
        assert await stream.read(1, SHORT_S) == b"1"
        served = asyncio.Event()
        asyncio.get_running_loop().call_later(4 * SHORT_S, served.set)
        await served.wait()
        client.write(b"2")
        assert await stream.read(1, LONG_S) == b"2"

    played(monkeypatch, talk)


def test_client_that_does_not_read_its_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(
        stream: PatientStream, writer: asyncio.StreamWriter, client: asyncio.StreamWriter
    ) -> None:
        client.write(b"next")
        client.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(bytes(64 << 20))
        with pytest.raises((TimeoutError, ConnectionError)):
            await stream.read(4, SHORT_S)
        assert writer.transport.get_write_buffer_size() == 0  # Nothing is kept for it.

    played(monkeypatch, talk)
