"""The PySpark source and sink of txlog; with its shim, the only package that imports PySpark.

Its public names are imported at their first use: the command line reads checkpoints with modules of
this package, and must not load PySpark for that.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_plugin.datasource import register
    from spark_plugin.listener import BatchReport, TxlogListener

_HOMES = {
    "BatchReport": "spark_plugin.listener",
    "TxlogListener": "spark_plugin.listener",
    "register": "spark_plugin.datasource",
}

__all__ = ["BatchReport", "TxlogListener", "register"]


def __getattr__(name: str) -> Any:
    """Import a public name from its module (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'spark_plugin' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
