"""The environment of the figures: machine, load, versions, and whether a sync reaches the disk.

Every run prints it, because the figures depend on it.
"""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from statistics import median

LOAD_MAX = 1.5
"""With a higher load at the start, other processes influence the figures."""

PACKAGES = ("pyarrow", "numpy", "fsspec", "pyspark", "delta-spark")


def environment(folder: Path) -> dict[str, object]:
    """Facts as JSON values; `folder` is the folder of the logs."""
    return {
        "processors": os.cpu_count(),
        "model": _processor(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_1_minute": round(os.getloadavg()[0], 2),
        "kernel": platform.release(),
        "file_system": _file_system(folder),
        "sync_ms": round(sync_ms(folder), 3),
        "python": platform.python_version(),
        "java": _java(),
        **{name: metadata.version(name) for name in PACKAGES},
        "utc": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    }


def described(facts: Mapping[str, object]) -> Iterator[str]:
    """Lines of text, with a warning if the machine is busy or syncs do nothing."""
    for name, value in facts.items():
        yield f"  {name:14} {value}"
    if float(str(facts["load_1_minute"])) > LOAD_MAX:
        yield f"  WARNING: the load is over {LOAD_MAX}; the figures tell of other work, too."
    if float(str(facts["sync_ms"])) < 0.02:
        yield "  WARNING: a sync takes no time here, so nothing reaches a disk."


def sync_ms(folder: Path, rounds: int = 21) -> float:
    """The median time to write and sync one small new file."""
    taken = []
    for number in range(rounds):
        path = folder / f"sync-{number}"
        begun = time.perf_counter()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(descriptor, b"x" * 512)
        os.fsync(descriptor)
        os.close(descriptor)
        taken.append(time.perf_counter() - begun)
        path.unlink()
    return 1000 * median(taken)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _file_system(folder: Path) -> str:
    """The type of the innermost mount that holds the folder."""
    mounts = [line.split()[:3] for line in Path("/proc/mounts").read_text().splitlines()]
    place = folder.resolve()
    around = [m for m in mounts if place.is_relative_to(m[1])]
    return max(around, key=lambda mount: len(mount[1]))[2] if around else "unknown"


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    command = f"{home}/bin/java" if home else "java"
    said = subprocess.run([command, "-version"], capture_output=True, text=True, check=False).stderr
    return said.partition('"')[2].partition('"')[0]
