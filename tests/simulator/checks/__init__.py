"""Checks of a history: the anomalies that a log must not show."""
