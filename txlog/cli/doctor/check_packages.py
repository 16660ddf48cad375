"""Whether Python and the installed packages are those that txlog was written for.

The required versions are read from the metadata of the installed txlog, so that they are in one
place (setup.cfg). A missing package of an extra is a warning: not every user needs Spark or S3.

Two distributions with a package of one name overwrite each other's files, and pip does not warn.
The unrelated project `txlog` on the package index has such a package.
"""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import txlog
from txlog.cli.doctor.check import Check, failed, passed, warned
from txlog.distribution import DISTRIBUTION, install_command

PYTHON_MIN = (3, 11)
PACKAGES = ("txlog", "spark_plugin", "pyspark_txlog")
"""The top-level packages of this project, as in setup.cfg."""

_CORE = ("pyarrow", "numpy", "fsspec")
_EXTRAS = (
    ("pyspark", "spark"),
    ("pandas", "spark"),
    ("obstore", "s3"),
    ("s3fs", "s3"),
    ("duckdb", "sql"),
)


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


def distribution_checks() -> Iterator[Check]:
    """One check for this project, and one for each of its packages that another project claims.

    Yields nothing if the project is not installed: `package_checks` reports that.
    """
    claims = claimed_packages(importlib.metadata.distributions())
    for package in PACKAGES:
        others = sorted(claims.get(package, {}).keys() - {DISTRIBUTION})
        if others:
            yield _shared(package, others, claims[package])
    version = claims.get("txlog", {}).get(DISTRIBUTION)
    if version is not None:
        yield _own(version)


def claimed_packages(
    distributions: Iterable[importlib.metadata.Distribution],
) -> dict[str, dict[str, str]]:
    """Package -> the distributions that claim to install it, with their versions.

    Only this project's packages are looked up. Names are in the index's normal form (PEP 503).
    """
    claims: dict[str, dict[str, str]] = {}
    for found in distributions:
        name = found.metadata["Name"]
        if not name:  # A folder that an interrupted pip uninstall left.
            continue
        for package in _top_level(found) & set(PACKAGES):
            # Of two copies the first counts: it is earlier on sys.path, so it is the one imported.
            claims.setdefault(package, {}).setdefault(canonicalize_name(name), found.version)
    return claims


def _top_level(found: importlib.metadata.Distribution) -> set[str]:
    """Packages from `top_level.txt`, which editable installs also have; else from the files."""
    listed = found.read_text("top_level.txt")
    if listed is not None:
        return set(listed.split())
    return {path.parts[0] for path in found.files or () if len(path.parts) > 1}


def _shared(package: str, others: list[str], versions: dict[str, str]) -> Check:
    named = [f"{name} {versions[name]}" for name in (*others, DISTRIBUTION) if name in versions]
    # Both must go: with one of them pip removes files that the other has, too.
    removal = f"pip uninstall --yes {' '.join([*others, DISTRIBUTION])}"
    return failed(
        f"package {package}",
        f"{' and '.join(named)} both claim it: the one that was installed last has overwritten "
        "files of the other",
        f"{removal}, then install {DISTRIBUTION} again",
    )


def _own(version: str) -> Check:
    # An export of this project tells its package from another one of the same name.
    if "Producer" in getattr(txlog, "__all__", ()):
        return passed(DISTRIBUTION, f"{version} ({Path(txlog.__file__).parent})")
    return failed(
        DISTRIBUTION,
        f"{version}, but 'import txlog' finds another package",
        f"pip install --force-reinstall --no-deps {DISTRIBUTION}, from where it was installed",
    )
