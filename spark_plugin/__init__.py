"""The PySpark source and sink of txlog; the only package besides its shim that knows Spark.

`register` is imported when it is first used: the command line reads checkpoints with modules of
this package, and must not load PySpark for it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_plugin.registration import register

_HOMES = {"register": "spark_plugin.registration"}

__all__ = ["register"]


def __getattr__(name: str) -> Any:
    """Import a public name from its module (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'spark_plugin' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
