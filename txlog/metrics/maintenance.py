"""What Prometheus scrapes of a process that maintains a log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


class MaintenanceMetrics(Collector):
    """Passes and failures since the process began."""

    def __init__(self) -> None:
        self._passes = 0
        self._failures = 0
        self._succeeded_ms = 0

    def count_pass(self, at_ms: int, failures: int) -> None:
        """A pass has ended, with so many tasks that failed."""
        self._passes += 1
        self._failures += failures
        if not failures:
            self._succeeded_ms = at_ms

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering collects nothing."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The last pass without a failure is 0 until there is one."""
        yield GaugeMetricFamily(
            "txlog_maintenance_last_success_timestamp_seconds",
            "End of the last pass without a failure.",
            value=self._succeeded_ms / 1000,
        )
        yield CounterMetricFamily("txlog_maintenance_passes", "Passes.", value=self._passes)
        yield CounterMetricFamily(
            "txlog_maintenance_failures", "Tasks that failed.", value=self._failures
        )
