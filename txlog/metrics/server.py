"""A server for Prometheus, on loopback unless told otherwise."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.registry import Collector

from txlog.errors import UsageError

log = logging.getLogger(__name__)


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


def serve_metrics(listen: str, collectors: Iterable[Collector]) -> str:
    """Serve these metrics in a thread until the process ends; returns the URL. Raises UsageError if
    the address cannot be had."""
    host, port = parsed_listen(listen)
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    try:
        server, _ = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise UsageError(
            f"{listen} cannot be listened to: {error.strerror or error}. Choose another port, or "
            "an address of this machine."
        ) from error
    if not is_loopback(host):
        log.warning("%s: other machines see the names of topics and groups, and lags.", listen)
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{server.server_port}/metrics"
