"""The least work of any log on this disk, with bare calls, for comparison.

A file is created as a log must create it: written and synced under a temporary name, then linked to
its own name, then its folder is synced.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa


def durable_file(path: str, data: bytes | pa.Buffer) -> None:
    """Create a file that survives a loss of power."""
    folder = os.path.dirname(path)
    temporary = f"{folder}/.raw-{os.path.basename(path)}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    written = 0
    while written < len(data):
        written += os.write(descriptor, memoryview(data)[written:])
    os.fsync(descriptor)
    os.close(descriptor)
    os.link(temporary, path)
    os.unlink(temporary)
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def arrow_file(path: Path, table: pa.Table) -> None:
    """A table as a durable Arrow IPC file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    durable_file(str(path), sink.getvalue())


def read_arrow_files(paths: Iterable[Path]) -> list[pa.Table]:
    """The tables of Arrow IPC files, read into memory."""
    found = []
    for path in paths:
        with pa.OSFile(str(path)) as source:
            found.append(pa.ipc.open_file(source).read_all())
    return found
