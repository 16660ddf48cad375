"""The PySpark source and sink of txlog; the only package besides its shim that knows Spark."""

from __future__ import annotations

from spark_plugin.registration import register

__all__ = ["register"]
