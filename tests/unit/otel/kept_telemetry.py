"""OpenTelemetry's real SDK, which keeps the spans and metrics of a test in memory."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

Point = tuple[str, ...]


class KeptTelemetry:
    """Providers, and what they were told."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader])

    def spans(self) -> list[ReadableSpan]:
        """The spans that have ended since the last call."""
        found = list(self._exporter.get_finished_spans())
        self._exporter.clear()
        return found

    def points(self, metric: str, *attributes: str) -> dict[Point, Any]:
        """Values of these attributes -> the sum of a counter, or (count, sum) of a histogram."""
        data = self._reader.get_metrics_data()
        found: dict[Point, Any] = {}
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                assert scope.scope.name == "txlog"
                for each in scope.metrics:
                    for point in each.data.data_points if each.name == metric else ():
                        key = tuple(str((point.attributes or {}).get(n, "")) for n in attributes)
                        is_sum = hasattr(point, "value")
                        found[key] = point.value if is_sum else (point.count, point.sum)
        return found

    def counts(self, metric: str) -> dict[Point, int]:
        """Operation, topic, group -> the count of messages."""
        names = ("operation.name", "destination.name", "consumer.group.name")
        return self.points(metric, *(f"messaging.{name}" for name in names))
