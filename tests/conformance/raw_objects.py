"""Objects with names that no client of a log would use."""

import http.client
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
