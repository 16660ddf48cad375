"""Which requests of one connection overlap, and that answers keep their order."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from kafka.protocol import metadata, producer

import txlog
from tests.processes.kafka_gateway import Gateway
from tests.unit.kafka.raw_requests import answered, asked_alone, framed
from tests.unit.kafka.test_refusals import batch, request
from txlog.kafka.server import PRODUCES_MAX, InFlight
from txlog.model import TopicPartition

A, B = {TopicPartition("t", 0)}, {TopicPartition("t", 1)}
OTHER: set[TopicPartition] = set()


class Served:
    """A connection, and requests that end when the test says so."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.begun: list[int] = []
        self.ends = [asyncio.Event() for _ in range(9)]
        self.reader = asyncio.StreamReader()
        self.in_flight = InFlight(self.sent.append, self.reader.set_exception)

    async def request(self, number: int, places: set[TopicPartition], *, acks: bool = True) -> None:
        async def serve() -> bytes | None:
            self.begun.append(number)
            await self.ends[number].wait()
            return b"%d" % number if acks else None

        await self.in_flight.serve(places, serve)

    async def settled(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


def played(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def test_requests_for_other_partitions_overlap_and_are_answered_in_order() -> None:
    async def test() -> None:
        one = Served()
        await one.request(0, A)
        await one.request(1, B)
        await one.settled()
        assert one.begun == [0, 1]
        one.ends[1].set()
        await one.settled()
        assert one.sent == []
        arrives = asyncio.Event()

        async def read() -> str:
            await arrives.wait()
            return "frame"

        reading = asyncio.create_task(one.in_flight.received(read()))
        one.ends[0].set()
        await one.settled()
        assert one.sent == [b"0", b"1"]
        arrives.set()
        assert await reading == "frame"

    played(test())


@pytest.mark.parametrize("later", [A, A | B, OTHER])
def test_request_waits_for_those_of_its_partitions_or_all(later: set[TopicPartition]) -> None:
    async def test() -> None:
        one = Served()
        await one.request(0, A)
        task = asyncio.create_task(one.request(1, later))
        await one.settled()
        assert one.begun == [0]
        one.ends[0].set()
        await one.settled()
        assert (one.begun, one.sent) == ([0, 1], [b"0"])
        one.ends[1].set()
        await task
        await one.in_flight.close()

    played(test())


def test_no_more_than_a_few_are_under_way() -> None:
    async def test() -> None:
        one = Served()
        for number in range(PRODUCES_MAX):
            await one.request(number, {TopicPartition("t", number)})
        task = asyncio.create_task(one.request(7, {TopicPartition("t", 7)}))
        await one.settled()
        assert one.begun == [*range(PRODUCES_MAX)]
        one.ends[0].set()
        await one.settled()
        assert one.begun[-1] == 7
        await task
        await one.in_flight.close()

    played(test())


def test_client_that_goes_at_once_has_written_what_it_has_sent() -> None:
    """With acks=0, when it does not wait for answers."""

    async def test() -> None:
        one, done = Served(), []
        for number, places in enumerate((A, B)):
            await one.request(number, places, acks=False)

        async def gone() -> None:
            raise asyncio.IncompleteReadError(b"", 4)

        async def read() -> None:
            with pytest.raises(asyncio.IncompleteReadError):
                await one.in_flight.received(gone())
            done.append(True)

        task = asyncio.create_task(read())
        await one.settled()
        assert not done
        for end in one.ends:
            end.set()
        await task
        assert one.begun == [0, 1]

    played(test())


def test_request_that_fails_ends_the_connection_and_those_after_it() -> None:
    async def test() -> None:
        one = Served()

        async def fail() -> bytes:
            raise ZeroDivisionError

        await one.in_flight.serve(A, fail)
        await one.request(1, B)
        with pytest.raises(ZeroDivisionError):
            await one.in_flight.received(one.reader.read())
        await one.in_flight.close()
        assert one.sent == []

    played(test())


def test_gateway_stores_what_comes_without_waiting_in_its_order(gateway: Gateway) -> None:
    txlog.Admin(gateway.root).create_topics([txlog.NewTopic("piped", 2)])
    registers = producer.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    known = asked_alone(gateway, registers, 1)
    sent = [
        (number, partition, batch(b"%d" % number, pid=known.producer_id, epoch=0, sequence=number))
        for number in range(6)
        for partition in range(2)
    ]
    requests = [request(data, partition=where, topic="piped") for _, where, data in sent]
    last = metadata.ApiVersionsRequest()
    with gateway.connected() as connection:
        connection.sendall(b"".join(framed(one, 8) for one in requests) + framed(last, 2))
        for (number, partition, _), one in zip(sent, requests, strict=True):
            [topic] = answered(connection, one).responses
            [part] = topic.partition_responses
            assert (part.index, part.error_code, part.base_offset) == (partition, 0, number)
        assert answered(connection, last).error_code == 0
