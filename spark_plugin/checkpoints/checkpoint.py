"""A query's Spark checkpoint, as its sink reads it: where it is, the query's id, and each batch's
offsets. Checkpoints are only read, never written.

Keeps R1 (a batch is the bytes of its `offsets/<batch>`, compared by digest) and R24: the id in the
checkpoint is the query's, and `checkpointLocation`, which arrives as the user wrote it, is
interpreted like Hadoop's `Path`: never URL-decoded, relative to the driver's folder, and without a
scheme on the default file system, which need not be the local disk. `offset_log.py` interprets the
files of batches. No decision depends on a listing (I14): a listing proposes the newest batch, and
`commit` refuses the transaction if Spark names another.

A place is read as the log would be there, as a disk or by the client of an object store; only for
other file systems is a JVM started (`hadoop_files.py`).
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Protocol
from xml.etree import ElementTree

from spark_plugin.checkpoints.offset_log import (
    BatchRange,
    OffsetFile,
    batch_range,
    digest_of,
    parse,
)
from spark_plugin.connections import KeptStore, open_kept
from spark_plugin.options import WriterOptions
from spark_plugin.source.offsets import NEW_CHECKPOINT
from txlog.clock import Runtime
from txlog.distribution import install_command
from txlog.errors import (
    CheckpointConflict,
    CorruptData,
    InvalidOption,
    StoreDenied,
    StoreUnavailable,
    UsageError,
)
from txlog.fan_out import FanOut, SerialFanOut, in_background
from txlog.storage.open import open_store
from txlog.storage.store import Store

OFFSETS = "offsets"
COMMITS = "commits"
METADATA = "metadata"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_HADOOP_CONFIGURATION = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Variables with folders of `core-site.xml`, in the order in which Spark's JVM looks at them."""


class CheckpointFiles(Protocol):
    """The files below a checkpoint's folder; names are relative to it, parts separated by '/'."""

    def read(self, name: str) -> bytes | None:
        """A file's bytes, or None if there is none. Raises StoreUnavailable, StoreDenied."""

    def list_names(self, folder: str) -> list[str]:
        """Names of the files in `folder`; empty if the folder does not exist."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The batch of a writer: what tasks carry and `commit` compares (rule R1)."""

    batch_id: int
    digest: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint folder. Every method reads the files again; nothing is cached."""

    url: str
    files: CheckpointFiles
    fan_out: FanOut = field(default_factory=SerialFanOut)
    """Reads several files at once if each takes a round trip."""

    def query_id(self) -> str:
        """The query's id. Raises CheckpointConflict if there is none, CorruptData if damaged."""
        where = f"{self.url}/{METADATA}"
        data = self.files.read(METADATA)
        if data is None:
            raise CheckpointConflict(
                f"{where} is missing: this is not the query's checkpoint, or the driver does not "
                "see it under this path. Give checkpointLocation as a full URL; "
                f"if the checkpoint is lost, {NEW_CHECKPOINT}.",
                where=where,
            )
        try:
            query_id = json.loads(data)["id"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise _damaged(where) from error
        if not isinstance(query_id, str) or not query_id:
            raise _damaged(where)
        return query_id

    def require_query(self, query_id: str) -> None:
        """Refuse the checkpoint of another query (rule R24). Raises CheckpointConflict."""
        found = self.query_id()
        if found != query_id:
            raise CheckpointConflict(
                f"the checkpoint at {self.url} is of query {found}, but the records come from "
                f"query {query_id}: the sink sees another folder than Spark does. Give "
                "checkpointLocation as a full URL.",
                found=found,
                query_id=query_id,
            )

    def plan(self) -> BatchPlan:
        """The newest batch that Spark has planned. Raises CheckpointConflict if there is none."""
        newest = self.newest_batch()
        if newest is None:
            raise CheckpointConflict(
                f"{self.url}/{OFFSETS} contains no batch, though Spark is running one: the sink "
                "sees another folder than Spark does. Give checkpointLocation as a full URL.",
                where=self.url,
            )
        return BatchPlan(newest, digest_of(self._offsets(newest)))

    def require_plan(self, plan: BatchPlan, *read: str) -> None:
        """Refuse a batch whose file has another digest than the one that its tasks ran for (R1).

        `read`: digests of earlier reads, which must be the same. Raises CheckpointConflict.
        """
        now = digest_of(self._offsets(plan.batch_id))
        if {now, *read} != {plan.digest}:
            raise CheckpointConflict(
                f"{self.url}/{OFFSETS}/{plan.batch_id} was rewritten while the batch ran: "
                "another run of this query uses the checkpoint. Stop one of the two; nothing of "
                "this batch was committed.",
                batch_id=plan.batch_id,
            )

    def newest_batch(self) -> int | None:
        """The highest number in `offsets`."""
        return max(self._batches(OFFSETS), default=None)

    def newest_commit(self) -> int | None:
        """The highest number in `commits`: the last batch that Spark counts as done."""
        return max(self._batches(COMMITS), default=None)

    def offsets(self, batch_id: int) -> OffsetFile:
        """The file `offsets/<batch_id>`. Raises CheckpointConflict if missing, CorruptData."""
        return parse(batch_id, self._offsets(batch_id), f"{self.url}/{OFFSETS}/{batch_id}")

    def _offsets(self, batch_id: int) -> bytes:
        where = f"{self.url}/{OFFSETS}/{batch_id}"
        data = self.files.read(f"{OFFSETS}/{batch_id}")
        if data is None:
            raise CheckpointConflict(
                f"{where} is missing, so it is unknown what the batch reads. If files of the "
                f"checkpoint were deleted, restore them, or {NEW_CHECKPOINT}.",
                where=where,
                batch_id=batch_id,
            )
        return data

    def batch_range(self, batch_id: int, log_id: str) -> BatchRange:
        """The ranges that the batch advances in the log (R23), by its file and the one before.

        Raises CheckpointConflict, CorruptData.
        """
        batches = [batch_id, batch_id - 1] if batch_id > 0 else [batch_id]
        files = self.fan_out.run_all([partial(self.offsets, number) for number in batches])
        previous = files[1] if batch_id > 0 else None
        return batch_range(files[0], previous, log_id, f"{self.url}/{OFFSETS}/{batch_id}")

    def checked_batch_range(
        self, query_id: str, batch_id: int, log_id: str, plan: BatchPlan | None = None
    ) -> BatchRange:
        """As `batch_range`, but refuses a checkpoint of another query (R24), and tasks that did not
        run for this batch by this plan (R1). All files are read at once."""
        if plan is not None and plan.batch_id != batch_id:
            raise CheckpointConflict(
                f"the tasks ran batch {batch_id}, but the newest plan in the checkpoint was "
                f"{plan.batch_id} when their writer was made: another run of this query uses the "
                "checkpoint, or the sink sees another folder than Spark does. Stop one of the two.",
                batch_id=batch_id,
                planned=plan.batch_id,
            )
        own = in_background(self.fan_out, partial(self.require_query, query_id))
        ranged = in_background(self.fan_out, partial(self.batch_range, batch_id, log_id))
        # Its error first: the offsets of another query's checkpoint mean nothing (R24).
        own()
        batch = ranged()
        if plan is not None:
            # Compared after the files were read: they, and the batch before, are of this plan.
            self.require_plan(plan, batch.digest)
        return batch

    def _batches(self, folder: str) -> list[int]:
        # Spark's temporary and checksum files begin with a dot.
        names = self.files.list_names(folder)
        return [int(name) for name in names if name.isascii() and name.isdigit()]


def _damaged(where: str) -> CorruptData:
    return CorruptData(
        f"{where} is not what Spark writes there; the checkpoint is damaged. Restore it, or "
        f"{NEW_CHECKPOINT}.",
        where=where,
    )


# Opening a checkpoint.


def query_checkpoint(options: WriterOptions) -> Checkpoint:
    """The query's checkpoint. A store is kept from batch to batch; the files are read again each
    time. Raises InvalidOption if the option is missing (rule R22), and as `open_checkpoint`."""
    return _opened(
        options.checkpoint_location, options.checkpoint_file_system, options.storage, open_kept
    )


def open_checkpoint(
    location: str | None,
    runtime: Runtime,
    *,
    storage_options: Mapping[str, object] | None = None,
) -> Checkpoint:
    """The checkpoint at `checkpointLocation`. Reads nothing yet.

    Raises InvalidOption if the option is not given (R22), or is not the URL of a folder.
    """

    def open_at(url: str, options: Mapping[str, object]) -> KeptStore:
        return KeptStore(open_store(url, runtime, options), runtime.fan_out)

    return _opened(location, None, storage_options or {}, open_at)


def _opened(
    location: str | None,
    default_file_system: str | None,
    storage_options: Mapping[str, object],
    open_at: Callable[[str, Mapping[str, object]], KeptStore],
) -> Checkpoint:
    if location is None:
        raise InvalidOption(
            "the sink needs the query's own option checkpointLocation: it reads the batch's "
            "offsets there. Add .option('checkpointLocation', ...) to writeStream. A location that "
            "only the session has (spark.sql.streaming.checkpointLocation) is seen if the query "
            "has a name (queryName) and spark_plugin.register(spark) is called after it is set.",
            option="checkpointLocation",
        )
    # Anew each time, as it may be relative to the process's folder (R24).
    place = locate(location, default_file_system)
    if place.scheme in ("file", "dbfs"):
        # A disk answers faster than a thread starts.
        return Checkpoint(place.url, LocalFiles(_local_path(place)))
    if "@" in place.authority and not place.has_container:
        raise InvalidOption(
            f"the checkpoint's URL must be {place.scheme}://host/folder or s3a://bucket/folder, "
            "without credentials in it."
        )
    found = _object_store(place)
    if found is None:
        try:
            hadoop = import_module("spark_plugin.checkpoints.hadoop_files")
        except ImportError as error:
            raise UsageError(
                f"a checkpoint on {place.scheme} is read with PySpark's jars, and PySpark is not "
                f"installed: {install_command('spark')}."
            ) from error
        return Checkpoint(place.url, hadoop.HadoopFiles(place.url))
    url, its_options = found
    kept = open_at(url, {**its_options, **storage_options})
    return Checkpoint(place.url, ObjectFiles(kept.store), kept.fan_out)


def _local_path(place: CheckpointPlace) -> str:
    """Databricks mounts its file system at /dbfs, and volumes at their own paths."""
    if place.scheme == "file" or place.path.startswith(("/Volumes/", "/Workspace/")):
        return place.path
    return f"/dbfs{place.path}"


def _object_store(place: CheckpointPlace) -> tuple[str, dict[str, object]] | None:
    """The URL and the options by which the log's own client opens it; None for another place."""
    path = place.path.rstrip("/")
    if place.scheme in ("s3", "s3a", "s3n", "gs"):
        if not place.authority:
            raise InvalidOption(f"the checkpoint's URL must be {place.scheme}://bucket/folder.")
        return f"{'gs' if place.scheme == 'gs' else 's3'}://{place.authority}{path}", {}
    if place.has_container:
        container, _, host = place.authority.partition("@")
        # The account shows the same files by its services of files (dfs) and of blobs.
        endpoint = f"https://{host.replace('.dfs.', '.blob.', 1)}"
        return f"az://{container}{path}", {
            "account_name": host.partition(".")[0],
            "endpoint": endpoint,
        }
    return None


# Where a checkpoint is.


@dataclass(frozen=True, slots=True)
class CheckpointPlace:
    """A checkpoint's folder: its file system's scheme, its host or bucket, its absolute path."""

    scheme: str
    authority: str
    path: str

    @property
    def has_container(self) -> bool:
        """Whether it is on Azure, as `abfss://container@account.dfs.core.windows.net/folder`."""
        container, at, _ = self.authority.partition("@")
        return self.scheme in ("abfs", "abfss") and bool(at) and ":" not in container

    @property
    def url(self) -> str:
        """The location, without credentials."""
        host = self.authority if self.has_container else self.authority.rpartition("@")[2]
        return self.path if self.scheme == "file" else f"{self.scheme}://{host}{self.path}"


def locate(location: str, default_file_system: str | None = None) -> CheckpointPlace:
    """The place that `checkpointLocation` names; a relative one is below the process's folder.

    `default_file_system` is Hadoop's `fs.defaultFS`, for a location without a scheme, by default
    that of Hadoop's configuration. Raises InvalidOption.
    """
    if not location.strip():
        raise InvalidOption("checkpointLocation is empty; give a folder of the query's own.")
    scheme, rest = _split_scheme(location)
    authority, path = _split_authority(rest) if scheme else ("", location)
    if not scheme:
        default = default_file_system or _configured_file_system()
        scheme, base = _split_scheme(default)
        if not scheme:
            raise InvalidOption(
                f"the default file system {default!r} has no scheme; write it as in "
                "fs.defaultFS, such as 'file:///' or 's3a://bucket'."
            )
        is_relative = not path.startswith("/")
        if is_relative and scheme != "file":
            raise InvalidOption(
                f"checkpointLocation {location!r} is relative, and the default file system is "
                f"{scheme}; give its full URL."
            )
        authority = _split_authority(base)[0]
        path = f"{os.getcwd()}/{path}" if is_relative else path
    if scheme == "file" and authority:
        raise InvalidOption(
            f"checkpointLocation {location!r} names the host {authority!r}; for a folder of this "
            "machine write three slashes, as in file:///folder."
        )
    if not path.startswith("/") and (scheme == "file" or path):
        raise InvalidOption(
            f"checkpointLocation {location!r} has a scheme and a relative path; give the full "
            f"path, as in {scheme}:///folder, or './' before a folder whose name has a colon."
        )
    # Hadoop merges doubled slashes, drops the last, and resolves '..' by name, not by link.
    return CheckpointPlace(scheme, authority, posixpath.normpath("/" + path.lstrip("/")))


def _configured_file_system() -> str:
    """Hadoop's `fs.defaultFS` as its configuration files set it; else the local disk, as there.

    Settings in Spark's own configuration (`spark.hadoop.fs.defaultFS`) are not visible here.
    """
    folders = [Path(os.environ[name]) for name in _HADOOP_CONFIGURATION if os.environ.get(name)]
    files = [folder / "core-site.xml" for folder in folders]
    file = next((file for file in files if file.is_file()), None)
    if file is not None:
        try:
            properties = list(ElementTree.parse(file).iter("property"))
        except (OSError, ElementTree.ParseError) as error:
            raise InvalidOption(
                f"{file} cannot be read: {error}. Correct it, or give checkpointLocation as a full "
                "URL."
            ) from error
        for found in properties:
            if (found.findtext("name") or "").strip() == "fs.defaultFS":
                return (found.findtext("value") or "").strip()
    return "file:///"


def _split_scheme(text: str) -> tuple[str, str]:
    # As in Hadoop's Path: a colon ends a scheme only if no slash precedes it.
    match = _SCHEME.fullmatch(text)
    return (match.group(1).lower(), match.group(2)) if match else ("", text)


def _split_authority(rest: str) -> tuple[str, str]:
    if not rest.startswith("//"):
        return "", rest
    authority, slash, path = rest[2:].partition("/")
    return authority, slash + path


# The files of a checkpoint.


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """A checkpoint's folder on the local disk. Spark's own `.crc` files are ignored."""

    folder: str

    def read(self, name: str) -> bytes | None:
        """See CheckpointFiles."""
        path = Path(self.folder, name)
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _refused(path, "read", error) from error

    def list_names(self, folder: str) -> list[str]:
        """See CheckpointFiles."""
        path = Path(self.folder, folder)
        try:
            return os.listdir(path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _refused(path, "listed", error) from error


def _refused(path: Path, action: str, error: OSError) -> StoreDenied | StoreUnavailable:
    """The error for a file or folder that exists, and could not be read or listed."""
    if isinstance(error, PermissionError):
        return StoreDenied(
            f"{path} cannot be {action}: {error.strerror}. Give the driver's user permission."
        )
    return StoreUnavailable(f"{path} cannot be {action}: {error}. Try again.")


@dataclass(frozen=True, slots=True)
class ObjectFiles:
    """A checkpoint's prefix in an object store."""

    store: Store

    def read(self, name: str) -> bytes | None:
        """See CheckpointFiles."""
        return self.store.get(name)

    def list_names(self, folder: str) -> list[str]:
        """See CheckpointFiles. One request lists a thousand; Spark keeps about a hundred."""
        prefix = f"{folder}/"
        names = (found.path.removeprefix(prefix) for found in self.store.list_after(prefix))
        return [name for name in names if "/" not in name]
