"""Whether Python and the packages are those that txlog was written for.

The wanted versions are read from the requirements of the installed txlog, so that they are in one
place (setup.cfg). A missing package of an extra is a warning: not every user needs Spark or S3.
"""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from txlog.cli.doctor.check import Check, failed, passed, warned
from txlog.distribution import DISTRIBUTION, install_command

PYTHON_MIN = (3, 11)

_CORE = ("pyarrow", "numpy", "fsspec")
_EXTRAS = (("pyspark", "spark"), ("pandas", "spark"), ("obstore", "s3"), ("s3fs", "s3"))


def package_checks() -> Iterator[Check]:
    """txlog itself, Python, the core's packages, and those of the extras."""
    yield _python()
    requirements = _requirements()
    if not requirements:
        yield warned(DISTRIBUTION, "not installed as a package", "'pip install .' in a clone of it")
    for name in _CORE:
        yield _package(name, requirements.get(name, SpecifierSet()))
    for name, extra in _EXTRAS:
        yield _package(name, _requirements(extra).get(name, SpecifierSet()), extra)


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


def _package(name: str, wanted: SpecifierSet, extra: str = "") -> Check:
    found = installed_version(name)
    if found is None:
        if not extra:
            return failed(name, "not installed", f"pip install '{name}{wanted}'")
        return warned(name, "not installed", f"{install_command(extra)} if you need it")
    if wanted.contains(found, prereleases=True):
        return passed(name, found)
    return failed(name, f"{found}, but txlog needs {wanted}", f"pip install '{name}{wanted}'")


def _requirements(extra: str = "") -> dict[str, SpecifierSet]:
    """Package -> wanted versions, of the installed txlog with that extra."""
    try:
        lines = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    wanted = [Requirement(line) for line in lines]
    return {
        one.name: one.specifier
        for one in wanted
        if one.marker is None or one.marker.evaluate({"extra": extra})
    }
