"""Metrics of a log for Prometheus. Needs the extra `metrics`."""
