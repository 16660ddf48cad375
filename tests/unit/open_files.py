"""Files that this process has open."""

import os
from pathlib import Path


def open_below(folder: Path) -> int:
    """How many of them are the folder, or below it. Others come and go: a collection of garbage may
    close what an earlier test has left."""
    # Not readlink, which fails for the descriptor of the listing itself.
    paths = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    return sum(Path(path).is_relative_to(folder) for path in paths)
