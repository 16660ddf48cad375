"""Requests that no client of a log would make: names that it refuses, a body that ends early."""

import http.client
import socket
from contextlib import closing
from urllib.parse import quote, urlsplit

from txlog.testing.s3_server import S3Server


def put_object(server: S3Server, place: str) -> None:
    """Create an object with any name, without a client that checks names."""
    address = urlsplit(server.endpoint_url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
    with closing(connection):
        connection.request("PUT", "/" + quote(place, safe="/"), body=b"foreign")
        assert connection.getresponse().status == 200


def put_half(url: str, body: bytes) -> None:
    """Send the first half of a body and end the connection, as the system does for a process that
    is killed; return when the server has ended it too."""
    address = urlsplit(url)
    head = (
        f"PUT {address.path}?{address.query} HTTP/1.1\r\nHost: {address.netloc}\r\n"
        f"Content-Length: {len(body)}\r\nIf-None-Match: *\r\n\r\n"
    )
    place = (address.hostname or "", address.port or 80)
    with socket.create_connection(place, timeout=30) as connection:
        connection.sendall(head.encode() + body[: len(body) // 2])
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65_536):
            pass
