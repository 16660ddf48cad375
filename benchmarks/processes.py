"""The process of this machine that made a request, and its purpose in Spark.

It is found by the port of the client's connection, in Linux's /proc while the connection is open.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

ROLES = {
    "python_streaming_source_runner": "source",
    "write_into_data_source": "planner",
    "python_streaming_sink_runner": "commit",
    "pyspark.worker": "task",
}
"""Module in the command line of a Spark Python process -> its purpose."""

_PROC = Path("/proc")


def owners(ports: Iterable[int]) -> dict[int, str]:
    """Port -> role and process id, for the processes that are found."""
    wanted = set(ports)
    inodes = {inode: port for inode, port in _sockets() if port in wanted}
    found = {}
    for pid in filter(str.isdigit, os.listdir(_PROC)):
        for inode in _open_sockets(pid):
            if inode in inodes:
                found[inodes[inode]] = f"{_role(pid)} {pid}"
    return found


def _sockets() -> Iterator[tuple[str, int]]:
    """Inode and local port of each TCP socket."""
    for line in (_PROC / "net" / "tcp").read_text().splitlines()[1:]:
        fields = line.split()
        yield fields[9], int(fields[1].rpartition(":")[2], 16)


def _open_sockets(pid: str) -> Iterator[str]:
    """The sockets' inodes; empty for a process that has ended or belongs to another user."""
    folder = _PROC / pid / "fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            target = os.readlink(folder / name)
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target[8:-1]


def _role(pid: str) -> str:
    try:
        command = (_PROC / pid / "cmdline").read_text().replace("\0", " ")
    except OSError:
        return "gone"
    return next((role for module, role in ROLES.items() if module in command), "other")
