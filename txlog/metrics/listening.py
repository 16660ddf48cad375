"""Addresses to listen to, and who reaches them."""

from __future__ import annotations

import ipaddress

from txlog.errors import UsageError


def parsed_listen(text: str) -> tuple[str, int]:
    """An address such as 127.0.0.1:9308 or [::1]:9308; port 0 takes a free one. Raises
    UsageError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    is_number = port.isascii() and port.isdigit() and len(port) <= 5
    if not (colon and host and is_number and int(port) <= 65_535):
        raise UsageError(f"{text!r:.80} is no address; write HOST:PORT, such as 127.0.0.1:9308.")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
