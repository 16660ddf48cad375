"""What one process sees of a log: whether it can read and write there, and which place it is.

A process writes one small object below `probes/` and removes it; a missing folder is not created.
Nothing is judged here (txlog/cli/doctor/check_deployment.py), and no PySpark is needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from txlog.catalog.cluster_file import read_cluster_file
from txlog.clock import Runtime
from txlog.errors import TxlogError
from txlog.layout import PROBES
from txlog.storage.disk.local import LocalStore
from txlog.storage.open import open_store
from txlog.storage.store import Store

MOUNTS = Path("/proc/self/mountinfo")

_OCTAL = re.compile(r"\\(\d{3})")
"""How mountinfo writes a blank in a path."""


def log_facts(root: str, storage_options: Mapping[str, object], mark: str = "") -> dict[str, Any]:
    """Facts as JSON has them; errors among them, as their code, reason and remedy.

    `mark` is an object that the driver has written: a process that finds it sees the same place.
    """
    runtime = Runtime()
    try:
        store = open_store(root, runtime, storage_options)
    except TxlogError as error:
        return {"read_error": _said(error)}
    found: dict[str, Any] = {"place": store.url, "file_system": None, "log_id": None}
    if isinstance(store, LocalStore):
        found["file_system"] = file_system(store.url)
        if not os.path.isdir(store.url):
            return found | {"sees_mark": False}
    try:
        file = read_cluster_file(store)
    except TxlogError as error:
        return found | {"read_error": _said(error)}
    found["log_id"] = None if file is None else file.log_id
    # A role that may not read below probes/ is known by the log's id alone.
    with suppress(TxlogError):
        found["sees_mark"] = bool(mark) and store.get(mark) is not None
    return found | _written(store, runtime)


@contextmanager
def marked(root: str, storage_options: Mapping[str, object]) -> Iterator[str]:
    """An object at the driver's place, until the end of the block; "" if none can be written."""
    runtime = Runtime()
    mark = f"{PROBES}/{runtime.entropy.token()}/driver"
    with ExitStack() as at_end:
        try:
            store = open_store(root, runtime, storage_options)
            if isinstance(store, LocalStore) and not os.path.isdir(store.url):
                mark = ""
            else:
                store.put_new(mark, b"driver")
                at_end.enter_context(suppress(TxlogError))
                at_end.callback(store.delete, mark)
        except TxlogError:  # The driver's own facts say why.
            mark = ""
        yield mark


def _written(store: Store, runtime: Runtime) -> dict[str, Any]:
    """Write, list and remove an object: its date is the time of the store's clock."""
    path = f"{PROBES}/{runtime.entropy.token()}/task"
    try:
        before_ms = runtime.clock.wall_ms()
        store.put_new(path, b"task")
        after_ms = runtime.clock.wall_ms()
        dated_ms = next((s.modified_ms for s in store.list_after(path) if s.path == path), 0)
        store.delete(path)
    except TxlogError as error:
        return {"write_error": _said(error)}
    return {"dated_ms": [before_ms, after_ms, dated_ms] if dated_ms else None}


def _said(error: TxlogError) -> dict[str, str]:
    # An error of one sentence has no remedy of its own.
    remedy = "" if error.reason == error.remedy else error.remedy
    return {"code": error.code, "reason": error.reason.removesuffix("."), "remedy": remedy}


def file_system(folder: str, mounts: str | None = None) -> str:
    """The type of the file system of a folder, such as ext4 or nfs4; empty if unknown. `mounts`:
    the lines of mountinfo (proc_pid_mountinfo(5)); by default this process's."""
    try:
        text = MOUNTS.read_text(encoding="utf-8") if mounts is None else mounts
    except OSError:  # Only Linux has the file.
        return ""
    place, longest, kind = os.path.realpath(folder), "", ""
    for line in text.splitlines():
        mount, _, source = line.partition(" - ")
        point = _OCTAL.sub(lambda octal: chr(int(octal[1], 8)), mount.split()[4])
        # Of two mounts at one point the later one hides the other.
        is_above = f"{place}/".startswith(f"{point.rstrip('/')}/")
        if is_above and len(point) >= len(longest):
            longest, kind = point, source.split()[0]
    return kind
