"""Single requests to a gateway, as bytes."""

from __future__ import annotations

import socket
import struct
from typing import Any

from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.api_message import ApiMessage

from tests.processes.kafka_gateway import Gateway


def asked_alone(gateway: Gateway, request: ApiMessage, version: int) -> Any:
    """The answer to one request on a connection of its own."""
    with gateway.connected() as connection:
        return asked(connection, request, version)


def asked(connection: socket.socket, request: ApiMessage, version: int) -> Any:
    """The answer to a request."""
    connection.sendall(framed(request, version))
    return answered(connection, request)


def framed(request: ApiMessage, version: int) -> bytes:
    """The bytes of a request."""
    request.API_VERSION = version
    request.with_header(7, "tests")
    return bytes(request.encode(header=True, framed=True))


def answered(connection: socket.socket, request: ApiMessage) -> Any:
    """The answer to the request that was sent."""
    frame = read_frame(connection)
    kind = ResponseClassRegistry.get_response_class(request.header)
    response = kind.decode(frame, header=True)
    assert response.header.correlation_id == 7
    return response


def read_frame(connection: socket.socket) -> bytes:
    """One answer; fails if the connection is closed before."""
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    """Not more: what follows is another answer's."""
    data = b""
    while len(data) < size and (part := connection.recv(size - len(data))):
        data += part
    assert len(data) == size
    return data
