"""For a Python that must not find txlog, although it is installed."""

import sys
from collections.abc import Sequence
from types import ModuleType

NAMES = {"txlog", "spark_plugin", "pyspark_txlog"}


class Missing:
    """Finds none of these modules, before any other finder is asked."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        """Raise what Python raises."""
        if name.partition(".")[0] in NAMES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing)  # type: ignore[arg-type]
