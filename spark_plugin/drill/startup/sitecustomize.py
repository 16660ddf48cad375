"""Python imports this module at the start of every process of a drilled job.

If the process has drill points (`spark_plugin/drill/points.py`), it applies the hooks to the sink's
modules as soon as Spark imports them, so that the sink itself contains no hook. Then it runs the
`sitecustomize` that this file hides. It must import nothing of the plugin before Spark does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

HOOKED = ("spark_plugin.connections", "spark_plugin.sink.stream_writer")


class HookedModules:
    """Finds these modules as Python does, and hooks them once they are loaded."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The place of a hooked module; None for any other."""
        spec = PathFinder.find_spec(name, path, target) if name in HOOKED else None
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_hooked(module: ModuleType) -> None:
                load(module)
                import_module("spark_plugin.drill.hooks").apply(module)

            spec.loader.exec_module = load_hooked  # type: ignore[method-assign]
        return spec


def _run_hidden() -> None:
    """Run the next `sitecustomize` on the path, as Python would without this one."""
    here = Path(__file__).parent
    spec = PathFinder.find_spec("sitecustomize", [p for p in sys.path if Path(p) != here])
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


if os.environ.get("TXLOG_DRILL_POINTS"):
    # First: any other finder would find these modules without their hooks.
    sys.meta_path.insert(0, HookedModules)
_run_hidden()
