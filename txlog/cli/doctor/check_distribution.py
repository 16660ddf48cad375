"""Whether the package `txlog` belongs to this project alone.

Two distributions with a package of one name overwrite each other's files, and pip does not warn.
The unrelated project `txlog` on the package index has such a package. `check_packages.py` checks
which packages the project needs.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.utils import canonicalize_name

import txlog
from txlog.cli.doctor.check import Check, failed, passed
from txlog.distribution import DISTRIBUTION

PACKAGES = ("txlog", "spark_plugin", "pyspark_txlog")
"""What this project installs at the top level, as in setup.cfg."""


def distribution_checks() -> Iterator[Check]:
    """One check for this project, and one for each of its packages that others claim.

    Yields nothing if the project is not installed: check_packages.py reports that.
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
    removal = f"pip uninstall --yes {' '.join([*others, DISTRIBUTION])}"
    return failed(
        f"package {package}",
        f"{' and '.join(named)} both claim it: the one that was installed last has overwritten "
        "files of the other",
        f"{removal}, then install {DISTRIBUTION} again",
    )


def _own(version: str) -> Check:
    if "Producer" in getattr(txlog, "__all__", ()):
        return passed(DISTRIBUTION, f"{version} ({Path(txlog.__file__).parent})")
    return failed(
        DISTRIBUTION,
        f"{version}, but 'import txlog' finds another package",
        f"pip install --force-reinstall --no-deps {DISTRIBUTION}, from where it was installed",
    )
