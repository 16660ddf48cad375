"""Are Python and the packages those that txlog was written for?

What is wanted is read from the requirements of the installed txlog, so that it stands in one place
(setup.cfg). A package of an extra that is absent is a warning: not everybody uses Spark or S3.
"""

from __future__ import annotations

import importlib.metadata
import platform
import re
import sys
from collections.abc import Iterator

from txlog.cli.check import Check, failed, passed, warned
from txlog.distribution import DISTRIBUTION, install_command

PYTHON_MIN = (3, 11)

_REQUIREMENT = re.compile(r'([\w.-]+)\s*([^;\s]*)\s*(?:;\s*extra\s*==\s*["\'](\w+)["\'])?')
_CLAUSE = re.compile(r"(==|>=|<=|<|>|!=)([\w.]+)")
_CORE = ("pyarrow", "numpy", "fsspec")
_EXTRAS = (("pyspark", "spark"), ("pandas", "spark"), ("obstore", "s3"), ("s3fs", "s3"))


def package_checks() -> Iterator[Check]:
    """txlog itself, Python, the core's packages, and those of the extras."""
    yield _python()
    requirements = _requirements()
    if not requirements:
        yield warned(DISTRIBUTION, "not installed as a package", "'pip install .' in a clone of it")
    for name in _CORE:
        yield _package(name, requirements.get((name, ""), ""))
    for name, extra in _EXTRAS:
        yield _package(name, requirements.get((name, extra), ""), extra)


def installed_version(name: str) -> str | None:
    """The version of an installed package."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _python() -> Check:
    found = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info >= PYTHON_MIN:
        return passed("Python", found)
    return failed("Python", found, "use Python 3.11 or newer")


def _package(name: str, wanted: str, extra: str = "") -> Check:
    found = installed_version(name)
    if found is None:
        if not extra:
            return failed(name, "not installed", f"pip install '{name}{wanted}'")
        return warned(name, "not installed", f"{install_command(extra)} if you need it")
    if satisfies(found, wanted):
        return passed(name, found)
    return failed(name, f"{found}, but txlog needs {wanted}", f"pip install '{name}{wanted}'")


def _requirements() -> dict[tuple[str, str], str]:
    """(package, extra) -> version specifier, of the installed txlog."""
    try:
        lines = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    matches = [match for line in lines if (match := _REQUIREMENT.match(line))]
    return {(match[1], match[3] or ""): match[2] for match in matches}


def satisfies(version: str, specifier: str) -> bool:
    """Whether a version fits `>=26,<27` and the like; only the numbers of the release count."""
    return all(
        _compare(_release(version), operator, _release(bound))
        for operator, bound in _CLAUSE.findall(specifier)
    )


def _release(version: str) -> tuple[int, ...]:
    numbers = [int(part) for part in re.findall(r"\d+", version)[:4]]
    return tuple(numbers + [0] * (4 - len(numbers)))


def _compare(found: tuple[int, ...], operator: str, bound: tuple[int, ...]) -> bool:
    match operator:
        case "==":
            return found == bound
        case "!=":
            return found != bound
        case ">=":
            return found >= bound
        case "<=":
            return found <= bound
        case ">":
            return found > bound
        case _:
            return found < bound
