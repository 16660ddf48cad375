"""A folder on a disk as a store.

It guards I1 by link(2): a whole, synced temporary file gets its name only if the name is free, so
that nobody ever sees a part of an object and only one writer wins (storage rule 6). What it says
was created survives a loss of power: the file, its folder and every newly made parent are synced
first. Others may find an object a moment before that. They can tell, as it has its temporary name
still, and sync its name themselves: otherwise they would build on what may be lost. (Where there
are no hard links they cannot tell.) fsspec's own exclusive write is not used: it is not exclusive.
This module must not know what the objects mean.
"""

from __future__ import annotations

import mmap
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TypeVar

from txlog.clock import Runtime
from txlog.errors import InternalError, OutcomeUnknown, StoreUnavailable
from txlog.storage.folder_walk import sweep_temporaries, walk
from txlog.storage.object_path import TEMPORARY_PREFIX, check_path, check_prefix
from txlog.storage.os_error import store_error
from txlog.storage.publish import Publish, publish_exclusively, sync_folder
from txlog.storage.readback import check_entry_body
from txlog.storage.store import (
    Body,
    ByteRange,
    Bytes,
    Created,
    CreateResult,
    Exists,
    StoredObject,
    whole,
)

T = TypeVar("T")

MAP_BYTES_MIN = 1 << 18
"""From this many bytes in one call, `get_ranges` maps the file and copies nothing."""

WRITE_BYTES_MAX = 128 << 10
"""Bytes of one write(2). For larger ones Linux takes huge pages into its cache, which cost several
times as much where memory has to be asked for first, as in most virtual machines."""

EARLY_BYTES = 4 << 20
"""A file that is written as its pieces come is sent to the disk every so many bytes, so that the
sync at its end finds little left to wait for."""

PARTS_AT_ONCE_MAX = 1024
"""Buffers that one writev(2) takes (IOV_MAX)."""

CREATE_ATTEMPTS_MAX = 4
"""How often a name may be taken and then found empty, which only happens while it is deleted."""

_WRITE_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_CLOEXEC
_ABSENT = (FileNotFoundError, NotADirectoryError)
_CREATED = Created()


class LocalStore:
    """The folder `root` as a store; several processes may share it.

    `durable=False` leaves out every sync: for tests and throw-away logs. Files are immutable once
    they have their name, so mapped reads stay valid even when the file is deleted (not on NFS).
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        runtime: Runtime,
        durable: bool = True,
        publish: Publish = publish_exclusively,
    ) -> None:
        self._folder = os.path.abspath(os.fspath(root))
        self._base = self._folder.rstrip("/") + "/"
        self._runtime = runtime
        self._entropy = runtime.entropy
        self._durable = durable
        self._publish = publish
        # Folders whose own names are known to be on disk. Only a cache: a missing one is made anew.
        self._settled: set[str] = set()

    @property
    def url(self) -> str:
        """The absolute path of the folder."""
        return self._folder

    def create(self, path: str, data: bytes) -> CreateResult:
        """See Store.create. After OutcomeUnknown the file is visible, but perhaps not on disk."""
        check_path(path)
        check_entry_body(path, data)
        target = self._base + path
        for _ in range(CREATE_ATTEMPTS_MAX):
            found = self.get(path)  # Microseconds, which spare a loser its writes and syncs.
            if found is None:
                if self._write(target, data):
                    return _CREATED
                continue
            if found != data:
                return Exists(found)
            self._sync_name(target)  # A link whose answer was lost, or this call made again.
            return _CREATED
        raise StoreUnavailable(
            f"{target} was taken and then absent {CREATE_ATTEMPTS_MAX} times. Call again; on NFS, "
            "mount without attribute caching (actimeo=0).",
            path=target,
        )

    def get(self, path: str) -> bytes | None:
        """See Store.get. What it returns survives a loss of power, whoever wrote it."""
        found = self._read_file(path, _read_all)
        if found is None:
            return None
        data, names = found
        if names > 1 and self._durable:  # Its writer has not synced its name yet, or died.
            try:
                sync_folder(os.path.dirname(self._base + path))
            except OSError as error:
                raise store_error(error, "read", self._base + path) from error
        return data

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Bytes] | None:
        """See Store.get_ranges. Large reads are views of the mapped file and copy nothing.

        For objects with unique names: nobody knows these before they are safe.
        """
        return self._read_file(path, partial(_read_ranges, ranges))

    def put_new(self, path: str, data: Body) -> None:
        """See Store.put_new. Raises InternalError if other bytes have the name."""
        check_path(path)
        target = self._base + path
        if self._write(target, data):
            return
        if (found := self.get(path)) is None or found != whole(data):
            raise _taken(target)
        self._sync_name(target)

    def open_new(self, path: str) -> NewFile:
        """See TakesPieces.open_new."""
        check_path(path)
        target = self._base + path
        try:
            descriptor, temporary = self._open_temporary(target)
        except OSError as error:
            raise store_error(error, "create", target) from error
        return NewFile(target, descriptor, temporary, self._finish)

    def _finish(self, file: NewFile) -> None:
        """Sync, name, sync the name. Raises InternalError if the name is taken."""
        try:
            if self._durable:
                os.fsync(file.descriptor)
            published = self._publish(file.temporary, file.target)
        except OSError as error:
            raise store_error(error, "create", file.target) from error
        if not published:
            raise _taken(file.target)
        self._sync_name(file.target)

    def replace(self, path: str, data: bytes) -> None:
        """See Store.replace. Not synced: a hint may be lost."""
        check_path(path)
        target = self._base + path
        try:
            temporary = self._write_temporary(target, data, durable=False)
            try:
                os.rename(temporary, target)
            except OSError:
                _remove(temporary)
                raise
        except OSError as error:
            raise store_error(error, "replace", target) from error

    def list_after(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        """See Store.list_after. Symbolic links are not followed."""
        check_prefix(prefix)
        folder = prefix.rpartition("/")[0]
        return walk(self._base, f"{folder}/" if folder else "", prefix, after)

    def delete(self, path: str) -> None:
        """See Store.delete. Emptied folders stay: another writer may be about to use them."""
        check_path(path)
        try:
            os.unlink(self._base + path)
        except _ABSENT:
            return
        except OSError as error:
            raise store_error(error, "delete", self._base + path) from error

    def sweep_temporaries(self, age_min_ms: int) -> int:
        """See LeavesTemporaries.sweep_temporaries."""
        try:
            return sweep_temporaries(self._folder, self._runtime, age_min_ms)
        except OSError as error:
            raise store_error(error, "delete", self._folder) from error

    def _read_file(self, path: str, read: Callable[[int], T]) -> T | None:
        check_path(path)
        try:
            descriptor = os.open(self._base + path, _READ)
            try:
                return read(descriptor)
            finally:
                os.close(descriptor)
        except _ABSENT:
            return None
        except OSError as error:
            raise store_error(error, "read", self._base + path) from error

    def _write(self, target: str, data: Body) -> bool:
        """Write, sync, name. False, with nothing changed, if the name is taken."""
        try:
            temporary = self._write_temporary(target, data, self._durable)
            try:
                published = self._publish(temporary, target)
            except Exception:  # Not Ctrl-C: it may come behind the link, of a name not safe yet.
                _remove(temporary)
                raise
        except OSError as error:
            raise store_error(error, "create", target) from error
        if published:
            self._sync_name(target)
        _remove(temporary)  # Not before: until then others know that the name is not safe.
        return published

    def _write_temporary(self, target: str, data: Body, durable: bool) -> str:
        """Path of a new file beside `target` with all of `data`; it is removed on any failure."""
        descriptor, temporary = self._open_temporary(target)
        try:
            _write_parts(descriptor, data if isinstance(data, tuple) else (data,))
            if durable:
                os.fsync(descriptor)
        except BaseException:
            _remove(temporary)
            raise
        finally:
            os.close(descriptor)
        return temporary

    def _open_temporary(self, target: str) -> tuple[int, str]:
        """A new file beside `target`: its descriptor and its path."""
        folder = os.path.dirname(target)
        temporary = f"{folder}/{TEMPORARY_PREFIX}{self._entropy.token()}"
        if folder not in self._settled:
            self._settle(folder)
        try:
            return os.open(temporary, _WRITE_NEW, 0o644), temporary
        except FileNotFoundError:  # The folder was removed behind our back.
            self._settled.clear()
            self._settle(folder)
            return os.open(temporary, _WRITE_NEW, 0o644), temporary

    def _settle(self, folder: str) -> None:
        """Make `folder`, and sync the names that lead to it, whoever made them.

        Another process may have made a parent and died before it synced it, so the names of the
        root and of all below it are synced, once a process; above it only those made here.
        """
        top = min(os.path.dirname(self._folder), _newest_existing(folder), key=len)
        os.makedirs(folder, exist_ok=True)
        current = folder
        while self._durable and len(current) > len(top):
            current = os.path.dirname(current)
            try:
                sync_folder(current)
            except PermissionError:  # Above the root there are folders that we may not read.
                if len(current) >= len(self._folder):
                    raise
        self._settled.add(folder)

    def _sync_name(self, target: str) -> None:
        if not self._durable:
            return
        try:
            sync_folder(os.path.dirname(target))
        except OSError as error:
            raise OutcomeUnknown(
                f"{target} was created, but its folder could not be synced "
                f"({os.strerror(error.errno or 0)}), so it may be lost with the power. Call again "
                "with the same content; check the disk.",
                path=target,
            ) from error


class NewFile:
    """A file without its name: see NewObject. Pieces go to the kernel as they come."""

    is_kept_in_memory = False

    def __init__(
        self, target: str, descriptor: int, temporary: str, finish: Callable[[NewFile], None]
    ) -> None:
        self.target = target
        self.descriptor = descriptor
        self.temporary = temporary
        self._finish = finish
        self._is_open = True
        self._written = 0
        self._sent = 0

    def write(self, pieces: Body) -> None:
        """See NewObject.write."""
        parts = pieces if isinstance(pieces, tuple) else (pieces,)
        try:
            _write_parts(self.descriptor, parts)
            self._written += sum(map(len, parts))
            if self._written - self._sent >= EARLY_BYTES:
                _send_early(self.descriptor, self._sent, self._written - self._sent)
                self._sent = self._written
        except OSError as error:
            raise store_error(error, "create", self.target) from error

    def finish(self) -> None:
        """See NewObject.finish."""
        try:
            self._finish(self)
        finally:
            self.discard()

    def discard(self) -> None:
        """See NewObject.discard."""
        if self._is_open:
            self._is_open = False
            _remove(self.temporary)
            os.close(self.descriptor)


def _taken(target: str) -> InternalError:
    return InternalError(
        f"{target} exists already with other content, but its name should be unique. "
        "Nothing was overwritten; please report this.",
        path=target,
    )


def _newest_existing(folder: str) -> str:
    while not os.path.isdir(folder) and folder != "/":
        folder = os.path.dirname(folder)
    return folder


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return  # Renamed away, or it stays as litter that the sweep finds.


def _write_parts(descriptor: int, parts: Sequence[Bytes]) -> None:
    """One after the other, a little at a time."""
    left = deque(memoryview(part).cast("B") for part in parts)
    while left:
        written = os.writev(descriptor, _first_bytes(left))
        while left and written >= len(left[0]):
            written -= len(left.popleft())
        if written:
            left[0] = left[0][written:]


def _send_early(descriptor: int, start: int, length: int) -> None:
    """Linux begins to write what is said to be of no use in its cache, and waits for nothing."""
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):  # Only advice: the sync at the end tells what went wrong.
            os.posix_fadvise(descriptor, start, length, os.POSIX_FADV_DONTNEED)


def _first_bytes(parts: Iterable[memoryview]) -> list[memoryview]:
    """As many as one call takes."""
    found: list[memoryview] = []
    room = WRITE_BYTES_MAX
    for part in islice(parts, PARTS_AT_ONCE_MAX):
        found.append(part[:room])
        room -= len(found[-1])
        if not room:
            break
    return found


def _read_all(descriptor: int) -> tuple[bytes, int]:
    """The content, and how many names the file has."""
    status = os.fstat(descriptor)
    return _read(descriptor, status.st_size, 0), status.st_nlink


def _read(descriptor: int, length: int, start: int) -> bytes:
    data = os.pread(descriptor, length, start)
    if len(data) == length:
        return data
    parts = [data]
    read = len(data)
    while data and read < length:
        data = os.pread(descriptor, length - read, start + read)
        parts.append(data)
        read += len(data)
    return b"".join(parts)


def _read_ranges(ranges: Sequence[ByteRange], descriptor: int) -> list[Bytes]:
    if sum(wanted.length for wanted in ranges) < MAP_BYTES_MIN:
        return [_read(descriptor, wanted.length, wanted.start) for wanted in ranges]
    if os.fstat(descriptor).st_size == 0:  # An empty file cannot be mapped.
        return [b"" for _ in ranges]
    view = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    return [view[wanted.start : wanted.start + wanted.length] for wanted in ranges]
