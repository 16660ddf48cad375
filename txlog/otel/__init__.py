"""Spans and metrics of producers and consumers by OpenTelemetry. Needs the extra `otel`."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from txlog.distribution import install_command
from txlog.errors import UsageError

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider


def instrument(
    tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> None:
    """Measure each producer and consumer of this process from now on, by default with the
    process's own providers, also if they are set later. A second call changes nothing.

    Raises UsageError without opentelemetry-api.
    """
    if importlib.util.find_spec("opentelemetry") is None:
        raise UsageError(f"spans need opentelemetry-api; run {install_command('otel')}.")
    from txlog.otel.clients import WRAPPED, ClientTelemetry

    WRAPPED.install(lambda: ClientTelemetry(tracer_provider, meter_provider).methods())


def uninstrument() -> None:
    """Take `instrument` back."""
    from txlog.otel.clients import WRAPPED

    WRAPPED.remove()
