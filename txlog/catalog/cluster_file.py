"""The cluster file: what a log says of itself, written once when it is created.

It guards that a place without a log, or a newer format, is told from damage. It must not
know where it is read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from txlog.errors import CorruptData, NotATxlog, StoreUnavailable, UnsupportedFormat
from txlog.journal.codec import decode
from txlog.journal.entry import (
    FORMAT_VERSION,
    checked_body,
    not_understood,
    unsupported,
    written_by,
)
from txlog.layout import CLUSTER_FILE, is_log_id
from txlog.model import WallMs
from txlog.settings import LogSettings
from txlog.stored import stored


@stored(
    "cluster_file",
    format_version="format_version",
    log_id="log_id",
    created_ms="created_ms",
    settings="settings",
    probe="probe",
)
@dataclass(frozen=True, slots=True)
class ClusterFile:
    """Content of the cluster file: written once, when the log is created."""

    format_version: int
    log_id: str
    created_ms: WallMs
    settings: LogSettings
    probe: str
    """What the probe of the store said, as JSON text: information only."""


def decode_cluster_file(data: bytes, url: str) -> ClusterFile:
    """Raises NotATxlog if it is of another format, CorruptData if it is damaged, StoreUnavailable
    if something else than a store has answered."""
    path = f"{url}/{CLUSTER_FILE}"
    if data.lstrip().startswith(b"<"):
        raise StoreUnavailable(
            f"{path}: a web page came instead of an object. Check that the endpoint is that of an "
            "object store, and what stands between it and this machine.",
            place=path,
        )
    try:
        body, _ = checked_body(data, path)
        value = json.loads(body)
        if (version := value["format_version"]) != FORMAT_VERSION:
            raise unsupported(path, version, FORMAT_VERSION, written_by(data))
    except UnsupportedFormat as error:
        raise NotATxlog(
            f"{url} contains a log of another format: {error.message}", path=path
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptData(
            f"{path} is not a cluster file; restore it from a backup.", path=path
        ) from error
    try:
        file: ClusterFile = decode(ClusterFile, value)
        if not is_log_id(file.log_id):
            raise CorruptData(f"its log id is {file.log_id!r:.50}")
    except UnsupportedFormat as error:
        newer = not_understood(path, "a setting", error.message, written_by(data))
        raise NotATxlog(newer.message, **newer.facts) from error
    except CorruptData as error:
        raise CorruptData(
            f"{path} is not a cluster file ({error.message}); restore it from a backup.", path=path
        ) from error
    return file
