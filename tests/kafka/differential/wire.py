"""A client of Kafka's protocol, one request at a time, that hides nothing of the answers."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from kafka.protocol import admin, consumer, metadata, producer
from kafka.protocol.metadata import FindCoordinatorRequest

TIMEOUT_S = 60

VERSIONS = {
    producer.ProduceRequest: 8,
    consumer.FetchRequest: 11,
    consumer.ListOffsetsRequest: 5,
    metadata.MetadataRequest: 8,
    consumer.OffsetCommitRequest: 8,
    consumer.OffsetFetchRequest: 7,
    FindCoordinatorRequest: 3,
    consumer.JoinGroupRequest: 7,
    consumer.SyncGroupRequest: 4,
    consumer.HeartbeatRequest: 4,
    consumer.LeaveGroupRequest: 4,
    admin.CreateTopicsRequest: 4,
    admin.DeleteTopicsRequest: 5,
    admin.DeleteRecordsRequest: 1,
    admin.DescribeTransactionsRequest: 0,
    producer.InitProducerIdRequest: 3,
    producer.AddPartitionsToTxnRequest: 3,
    producer.AddOffsetsToTxnRequest: 3,
    producer.EndTxnRequest: 3,
    producer.TxnOffsetCommitRequest: 3,
}


@dataclass(frozen=True)
class Read:
    """A record that a consumer sees."""

    offset: int
    value: bytes


class Wire:
    """One connection."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._number = 0

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def ask(self, kind: Any, **fields: Any) -> Any:
        """The answer to one request."""
        version, self._number = VERSIONS[kind], self._number + 1
        request = kind(version=version, **fields)
        request.with_header(self._number, "differential")
        self._socket.sendall(request.encode(header=True, framed=True))
        (size,) = struct.unpack(">i", self._exactly(4))
        answer = _answer_of(kind)
        return answer.decode(self._exactly(size), version=version, header=True)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the server has closed the connection")
            data += part
        return bytes(data)


def _answer_of(kind: Any) -> Any:
    name = kind.__name__.replace("Request", "Response")
    for place in (producer, consumer, metadata, admin):
        if hasattr(place, name):
            return getattr(place, name)
    raise AssertionError(name)


def batch(
    values: list[bytes], pid: int, epoch: int, sequence: int, *, is_transactional: bool
) -> bytes:
    """A batch of records as a producer sends it."""
    builder = DefaultRecordBatchBuilder(2, 0, int(is_transactional), pid, epoch, sequence, 1 << 20)
    for number, value in enumerate(values):
        builder.append(number, 1_700_000_000_000 + number, None, value, [])
    return bytes(builder.build())


def records_of(data: bytes, aborted: list[tuple[int, int]], start: int) -> tuple[list[Read], int]:
    """What a consumer returns of fetched bytes, and where it goes on. `aborted`: producer ids and
    the first offsets of their aborted transactions."""
    found: list[Read] = []
    waiting = sorted(aborted, key=lambda one: one[1])
    gone: set[int] = set()
    following = start
    records = MemoryRecords(data)
    while records.has_next():
        one = records.next_batch()
        while waiting and waiting[0][1] <= one.next_offset - 1:
            gone.add(waiting.pop(0)[0])
        if one.is_control_batch:
            gone.discard(one.producer_id)
        elif not (one.is_transactional and one.producer_id in gone):
            found += [Read(r.offset, r.value) for r in one if r.offset >= start]
        following = max(following, one.next_offset)
    return found, following
