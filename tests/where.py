"""Finds the tests of a module: `python -m tests.where txlog/topic/read/cut.py`, `make where`.

Tests that bear the module's name come first, then those that import it, then those that import what
imports it, and so on.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path

from tests.source_tree import PRODUCT, modules, nearest

FILES = 12


@cache
def _importers() -> Mapping[str, Sequence[str]]:
    """Module of the product or of the tests -> the modules that import it."""
    names = {module.name for module in modules(*PRODUCT, "tests")}
    found: dict[str, set[str]] = {name: set() for name in names}
    for module in modules(*PRODUCT, "tests"):
        for imported in module.imports:
            if target := nearest(imported.target, names):
                found[target].add(module.name)
    return {name: sorted(importers) for name, importers in found.items()}


def tests_of(module: str) -> Iterator[str]:
    """The test files of a product module, the nearest first."""
    stem = f"test_{module.rpartition('.')[2]}"
    yield from (name for name in sorted(_importers()) if _file(name).startswith(stem))
    seen, nearer = {module}, [module]
    while nearer:
        farther = sorted({user for name in nearer for user in _importers()[name]} - seen)
        yield from (user for user in farther if is_test(user) and not _file(user).startswith(stem))
        nearer = [user for user in farther if not is_test(user)]
        seen.update(farther)


def is_test(module: str) -> bool:
    """Whether a module holds tests, and not code that tests share."""
    return module.startswith("tests.") and _file(module).startswith("test_")


def _file(module: str) -> str:
    return module.rpartition(".")[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the nearest test files, one per line; returns 2 if the product has no such module."""
    parser = argparse.ArgumentParser(prog="python -m tests.where", description=__doc__)
    parser.add_argument("module", help="txlog/topic/read/cut.py or txlog.topic.read.cut")
    asked = parser.parse_args(arguments).module
    name = Path(asked).with_suffix("").as_posix().replace("/", ".") if "/" in asked else asked
    if name not in _importers():
        print(f"The product has no module {name}.", file=sys.stderr)
        return 2
    for test in islice(tests_of(name), FILES):
        print(f"{test.replace('.', '/')}.py")
    return 0


if __name__ == "__main__":
    sys.exit(main())
