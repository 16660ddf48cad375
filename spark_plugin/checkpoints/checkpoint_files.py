"""Where a Spark checkpoint is, and how to read its files.

It guards R24: `checkpointLocation` arrives as the user wrote it and is interpreted like Hadoop's
`Path`: never URL-decoded, relative to the driver's folder, and without a scheme on the default file
system, which need not be the local disk. Checkpoints are only read, never written.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from txlog.clock import Runtime
from txlog.errors import InvalidOption, StoreDenied, StoreUnavailable
from txlog.storage.open import open_store
from txlog.storage.store import Store

LOCAL_FILE_SYSTEM = "file:///"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_OBJECT_SCHEMES = ("s3", "s3a", "s3n")


class CheckpointFiles(Protocol):
    """The files below a checkpoint's folder; names are relative to it, parts separated by '/'."""

    def read(self, name: str) -> bytes | None:
        """A file's bytes, or None if there is none. Raises StoreUnavailable, StoreDenied."""

    def list_names(self, folder: str) -> list[str]:
        """Names of the files in `folder`; empty if there is no such folder."""


@dataclass(frozen=True, slots=True)
class CheckpointPlace:
    """A checkpoint's folder: its file system's scheme, its host or bucket, its absolute path."""

    scheme: str
    authority: str
    path: str

    @property
    def url(self) -> str:
        """The location for messages, without credentials."""
        host = self.authority.rpartition("@")[2]
        return self.path if self.scheme == "file" else f"{self.scheme}://{host}{self.path}"


def locate(
    location: str, default_file_system: str = LOCAL_FILE_SYSTEM, folder: str | None = None
) -> CheckpointPlace:
    """The place that `checkpointLocation` names.

    `default_file_system` is Hadoop's `fs.defaultFS`, for a location without a scheme; `folder` is
    the base of a relative one, by default the process's own. Raises InvalidOption.
    """
    text = location
    if not text.strip():
        raise InvalidOption("checkpointLocation is empty; give a folder of the query's own.")
    scheme, rest = _split_scheme(text)
    if not scheme:
        scheme, base = _split_scheme(default_file_system)
        if not scheme:
            raise InvalidOption(
                f"the default file system {default_file_system!r} has no scheme; write it as in "
                "fs.defaultFS, such as 'file:///' or 's3a://bucket'."
            )
        return _on_default(scheme, base, text, folder)
    authority, path = _split_authority(rest)
    return _place(scheme, authority, path, text)


def _split_scheme(text: str) -> tuple[str, str]:
    # As in Hadoop's Path: a colon ends a scheme only if no slash precedes it.
    match = _SCHEME.fullmatch(text)
    return (match.group(1).lower(), match.group(2)) if match else ("", text)


def _split_authority(rest: str) -> tuple[str, str]:
    if not rest.startswith("//"):
        return "", rest
    authority, slash, path = rest[2:].partition("/")
    return authority, slash + path


def _on_default(scheme: str, base: str, text: str, folder: str | None) -> CheckpointPlace:
    if not text.startswith("/"):
        if scheme != "file":
            raise InvalidOption(
                f"checkpointLocation {text!r} is relative, and the default file system is "
                f"{scheme}; give its full URL."
            )
        text = f"{folder or os.getcwd()}/{text}"
    return _place(scheme, _split_authority(base)[0], text, text)


def _place(scheme: str, authority: str, path: str, text: str) -> CheckpointPlace:
    if scheme == "file" and authority:
        raise InvalidOption(
            f"checkpointLocation {text!r} names the host {authority!r}; for a folder of this "
            "machine write three slashes, as in file:///folder."
        )
    if not path.startswith("/") and (scheme == "file" or path):
        raise InvalidOption(
            f"checkpointLocation {text!r} has a scheme and a relative path; give the full path, "
            f"as in {scheme}:///folder, or './' before a folder whose name has a colon."
        )
    # Hadoop merges doubled slashes, drops the last, and resolves '..' by name, not by link.
    return CheckpointPlace(scheme, authority, posixpath.normpath("/" + path.lstrip("/")))


def open_files(
    place: CheckpointPlace,
    runtime: Runtime,
    storage_options: Mapping[str, object] | None = None,
) -> CheckpointFiles:
    """The files at `place`, on the local disk or S3. Raises InvalidOption for other schemes."""
    if place.scheme == "file":
        return LocalFiles(place.path)
    if place.scheme in _OBJECT_SCHEMES:
        return _open_objects(place, runtime, storage_options or {})
    raise InvalidOption(
        f"the checkpoint is on {place.scheme} ({place.url}), which txlog cannot read, and the sink "
        "needs its offsets to commit them with the records. Put checkpointLocation on a disk that "
        "the driver sees (file:///...) or on S3 (s3a://...); the log may stay where it is.",
        scheme=place.scheme,
    )


def _open_objects(
    place: CheckpointPlace, runtime: Runtime, storage_options: Mapping[str, object]
) -> CheckpointFiles:
    if not place.authority or "@" in place.authority:
        raise InvalidOption(
            "the checkpoint's URL must be s3a://bucket/folder, without credentials in it."
        )
    url = f"s3://{place.authority}{place.path.rstrip('/')}"
    return ObjectFiles(open_store(url, runtime, storage_options))


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
        except PermissionError as error:
            raise StoreDenied(
                f"{path} cannot be read: {error.strerror}. Give the driver's user permission."
            ) from error
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be read: {error}. Try again.") from error

    def list_names(self, folder: str) -> list[str]:
        """See CheckpointFiles."""
        path = Path(self.folder, folder)
        try:
            return os.listdir(path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except PermissionError as error:
            raise StoreDenied(
                f"{path} cannot be listed: {error.strerror}. Give the driver's user permission."
            ) from error
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be listed: {error}. Try again.") from error


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
