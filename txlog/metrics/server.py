"""A server for Prometheus, on loopback unless told otherwise."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.registry import Collector

from txlog.errors import UsageError
from txlog.metrics.listening import is_loopback, parsed_listen

log = logging.getLogger(__name__)


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
