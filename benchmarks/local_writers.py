"""Many writers on a disk: processes that commit small transactions to one topic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.writing_processes import Place, compared
from txlog.client.admin import Admin

PROCESSES = 16
TOPIC = "shared"


def run(folder: Path) -> Sequence[Figure]:
    """Transactions a second of all writers together."""
    root = str(folder / "log")
    Admin(root, create=True).create_topic(TOPIC, 1)
    return compared(Place(root, TOPIC, folder), 1, PROCESSES, times=1.0, pause_s=1.0)
