"""A folder on a disk as a store.

Keeps I1 by link(2): a whole, synced temporary file gets its name only if the name is free, so that
no reader sees a part of an object and only one writer wins. What it reports as created survives a
loss of power: the file, its folder and every new parent are synced first. Another process may find
an object just before that. It detects this by the temporary name, which still exists, and syncs the
folder itself: otherwise it would build on an object that may be lost. (Where there are no hard
links it cannot detect this.) fsspec's own exclusive write is not used: it is not exclusive.
Everything happens below the root's open handle (`root_folder.py`), through no symbolic link, and
with regular files only. This module must not know what the objects mean.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterator, Sequence
from functools import partial

from txlog.clock import Runtime
from txlog.errors import OutcomeUnknown, StoreDenied, StoreUnavailable, TxlogError
from txlog.layout import HINT_BYTES_MAX
from txlog.storage.disk.folder_lock import FolderLocks
from txlog.storage.disk.folder_walk import sweep_temporaries, walk
from txlog.storage.disk.folder_watch import FolderWatch
from txlog.storage.disk.new_file import (
    Draft,
    NewFile,
    Publish,
    publish_exclusively,
    sync_descriptor,
    write_parts,
)
from txlog.storage.disk.os_error import store_error
from txlog.storage.disk.root_folder import HANDLE, OPEN_FOLDER, RootFolder, open_below
from txlog.storage.store import (
    TEMPORARY_PREFIX,
    Body,
    ByteRange,
    Bytes,
    Created,
    CreateResult,
    Exists,
    StoredObject,
    check_entry_body,
    check_path,
    check_prefix,
    name_in_use,
    require_size,
    whole,
)

MAP_BYTES_MIN = 1 << 18
"""If one call asks for this many bytes, `get_ranges` maps the file and copies nothing. Reading 4 KB
is seven times as fast as mapping them; from 128 KB on both take the same time, at 16 MB mapping a
quarter less, and mapped bytes take no memory of the process."""

CREATE_ATTEMPTS_MAX = 4
"""How often a name may be taken and then absent, which happens only while it is deleted. Names of a
log are not used twice, so a second time is rare; more attempts would only delay the error on a file
system that does not show a present file."""

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""A pipe in an object's place is opened without waiting, and then refused."""

_CREATED = Created()


class LocalStore:
    """See `store.py`. Several processes may share the folder `root`.

    `durable=False` leaves out every sync: for tests and temporary logs. Files are immutable once
    they have their name, so mapped reads stay valid even when the file is deleted (not on NFS).
    Unpickling opens it again.
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
        self._root = RootFolder(self._folder, durable)
        # Not a bound method: in a reference cycle the store would keep its files open until a
        # garbage collection.
        self.turn = FolderLocks(partial(_opened_folder, self._root), runtime).turn
        """See `turn` in `store.py`."""

    def __reduce__(self) -> tuple[object, ...]:
        return (LocalStore, (self._folder, self._runtime, self._durable, self._publish))

    @property
    def url(self) -> str:
        """The absolute path of the folder."""
        return self._folder

    @property
    def is_near(self) -> bool:
        """See `is_near` in `store.py`."""
        return True

    def hold(self, path: str) -> bool:
        check_path(path)
        self._root.hold(path)
        return True

    def watched(self, folders: Sequence[str]) -> FolderWatch | None:
        """See `watched` in `store.py`."""
        try:
            return FolderWatch([self._base + folder for folder in folders])
        except OSError:
            return None

    def create(self, path: str, data: bytes) -> CreateResult:
        """See Store.create. After OutcomeUnknown the file is visible, but perhaps not on disk."""
        check_path(path)
        check_entry_body(path, data)
        for _ in range(CREATE_ATTEMPTS_MAX):
            self._root.require_same()
            root = self._root.descriptor
            # Takes a microsecond, and saves a loser its writes. It may follow a link, so it only
            # chooses between the two safe ways below.
            is_taken = root is not None and os.access(
                path, os.F_OK, dir_fd=root, follow_symlinks=False
            )
            if not is_taken and self._write(path, data):
                return _CREATED
            if (found := self.get(path)) is None:
                continue
            if found != data:
                return Exists(found)
            self._sync_again(path)  # The link's answer was lost, or this call was repeated.
            return _CREATED
        target = self._base + path
        raise StoreUnavailable(
            f"{target} was taken and then absent {CREATE_ATTEMPTS_MAX} times. Call again; on NFS, "
            "mount without attribute caching (actimeo=0).",
            path=target,
        )

    def get(self, path: str) -> bytes | None:
        """See Store.get. What it returns survives a loss of power, whichever process wrote it."""
        if (opened := self._opened(path)) is None:
            return None
        descriptor, status = opened
        try:
            if status.st_size > HINT_BYTES_MAX:  # No object has a lower limit.
                require_size(path, status.st_size, self._base + path)
            data = os.pread(descriptor, status.st_size, 0)
            if len(data) < status.st_size:
                data += _read(descriptor, status.st_size - len(data), len(data))
            # Two names: the writer has not synced the final one yet, or died. What this process
            # decides from the object could survive a loss of power that the object does not (I4).
            if status.st_nlink > 1 and self._durable:
                self._sync_folder_of(path)
            return data
        except OSError as error:
            raise store_error(error, "read", self._base + path) from error
        finally:
            os.close(descriptor)

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Bytes] | None:
        """See Store.get_ranges. Large reads are views of the mapped file and copy nothing.

        For objects with unique names: no reader has these names before they are durable.
        """
        if (opened := self._opened(path)) is None:
            return None
        descriptor, status = opened
        try:
            return _read_ranges(ranges, descriptor, status)
        except OSError as error:
            raise store_error(error, "read", self._base + path) from error
        finally:
            os.close(descriptor)

    def put_new(self, path: str, data: Body) -> None:
        """See Store.put_new. Raises InternalError if other bytes have the name."""
        check_path(path)
        self._root.require_same()
        if self._write(path, data):
            return
        # The same content under a unique name is this object: its answer was lost, or the call
        # was repeated.
        if (found := self.get(path)) is None or found != whole(data):
            raise name_in_use(self._base + path, self._base + path)
        self._sync_again(path)

    def open_new(self, path: str) -> NewFile:
        check_path(path)
        self._root.require_same()
        try:
            return NewFile(path, self._begin(path), self._finish, self._failure)
        except OSError as error:
            raise self._failure(error, "create", path) from error

    def _finish(self, file: NewFile) -> None:
        """Sync, name, sync the name. Raises InternalError if the name is taken."""
        draft = file.draft
        try:
            if self._durable:  # Content before name: no name may survive without its content.
                os.fsync(draft.descriptor)
            published = self._publish(draft.folder, draft.temporary, draft.name)
        except OSError as error:
            raise self._failure(error, "create", file.path) from error
        if not published:
            raise name_in_use(self._base + file.path, self._base + file.path)
        self._sync_name(file.path, draft.folder)

    def replace(self, path: str, data: bytes) -> None:
        """See Store.replace. Not synced: a hint may be lost."""
        check_path(path)
        self._root.require_same()
        try:
            draft = self._begin(path)
            try:
                write_parts(draft.descriptor, (data,))
                # rename(2) overwrites, and readers see the old file or the new one, whole.
                at = draft.folder
                os.rename(draft.temporary, draft.name, src_dir_fd=at, dst_dir_fd=at)
            finally:
                draft.close()
        except OSError as error:
            raise self._failure(error, "replace", path) from error

    def list_after(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        """See Store.list_after. A symbolic link in the prefix is an error; others are left out."""
        check_prefix(prefix)
        return self._listed(prefix, after)

    def delete(self, path: str) -> None:
        """See Store.delete. Empty folders stay: another writer may be about to use them."""
        check_path(path)
        self._root.require_same()
        if (root := self._root_handle("delete")) is None:
            return
        folder, _, name = path.rpartition("/")
        try:
            handle = open_below(root, folder or ".", HANDLE | os.O_DIRECTORY)
            try:
                os.unlink(name, dir_fd=handle)
            finally:
                os.close(handle)
        except FileNotFoundError:
            return
        except OSError as error:
            raise store_error(error, "delete", self._base + path) from error

    def sweep_temporaries(self, age_min_ms: int) -> int:
        """See `sweep_unfinished` in `store.py`."""
        self._root.require_same()
        root = self._root_handle("delete")
        try:  # Without a folder, os.fwalk would walk the process's current one.
            return 0 if root is None else sweep_temporaries(root, self._runtime, age_min_ms)
        except OSError as error:
            raise store_error(error, "delete", self._folder) from error

    def _listed(self, prefix: str, after: str) -> Iterator[StoredObject]:
        # A generator of the store: the root stays open while a caller that keeps only this reads.
        folder = prefix.rpartition("/")[0]
        if (root := self._root_handle("list")) is not None:
            yield from walk(root, self._base, f"{folder}/" if folder else "", prefix, after)

    def _opened(self, path: str) -> tuple[int, os.stat_result] | None:
        """An open file and its status; None if it is absent. Raises StoreDenied for anything but a
        file: a pipe could block its reader for ever."""
        check_path(path)
        root = self._root.descriptor
        if root is None and (root := self._root_handle("read")) is None:
            return None
        try:
            descriptor = open_below(root, path, _READ)
        except FileNotFoundError:
            # The opened log may have it, if another is at its path now: a reader that took the
            # object for absent would wait for ever.
            self._root.require_same()
            return None
        except OSError as error:
            raise store_error(error, "read", self._base + path) from error
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            return descriptor, status
        os.close(descriptor)
        place = self._base + path
        raise StoreDenied(
            f"cannot read {place}: it is not a regular file but a folder, a pipe or a device. "
            "Check that nothing but the log's own files and folders is in the way, then call "
            "again.",
            place=place,
        )

    def _root_handle(self, action: str) -> int | None:
        try:
            return self._root.handle()
        except OSError as error:
            raise store_error(error, action, self._folder) from error

    def _failure(self, error: OSError, action: str, path: str) -> TxlogError:
        """The error to raise for it. Raises NotATxlog if a folder is missing because the root is
        not the opened one any more: a removed folder takes no new names."""
        if isinstance(error, FileNotFoundError):
            self._root.require_same()
        return store_error(error, action, self._base + path)

    def _write(self, path: str, data: Body) -> bool:
        """Write, sync, name, sync the name. False, with nothing changed, if the name is taken."""
        try:
            draft = self._begin(path)
        except OSError as error:
            raise self._failure(error, "create", path) from error
        is_mark = False
        """Whether the temporary name marks the final one as not durable: each reader then syncs the
        folder itself."""
        try:
            write_parts(draft.descriptor, data if isinstance(data, tuple) else (data,))
            if self._durable:  # Content before name: no name may survive without its content.
                os.fsync(draft.descriptor)
            is_mark = True
            try:
                published = self._publish(draft.folder, draft.temporary, draft.name)
            except Exception:
                # Not for Ctrl-C, which may come after the link, before its name is durable.
                is_mark = False
                raise
            if published:
                self._sync_name(path, draft.folder)
            # Not earlier, and not if the sync failed.
            is_mark = False
            return published
        except OSError as error:
            raise self._failure(error, "create", path) from error
        finally:
            draft.close(is_mark=is_mark)

    def _begin(self, path: str) -> Draft:
        folder, _, name = path.rpartition("/")
        temporary = f"{TEMPORARY_PREFIX}{self._entropy.token()}"
        return Draft(self._root.open_folder(folder), temporary, name)

    def _sync_folder_of(self, path: str) -> None:
        folder = _opened_folder(self._root, path.rpartition("/")[0] or ".")
        try:
            sync_descriptor(folder)
        finally:
            os.close(folder)

    def _sync_again(self, path: str) -> None:
        """Like `_sync_name`, for an object that already existed with this content."""
        try:
            folder = _opened_folder(self._root, path.rpartition("/")[0] or ".")
        except OSError as error:
            raise self._not_synced(path, error) from error
        try:
            self._sync_name(path, folder)
        finally:
            os.close(folder)

    def _sync_name(self, path: str, folder: int) -> None:
        """Make the names in that open folder durable, and check, before the object is acknowledged,
        that the log is the opened one. Raises OutcomeUnknown."""
        try:
            if self._durable:
                sync_descriptor(folder)
            self._root.require_same()
        except OSError as error:
            raise self._not_synced(path, error) from error
        except TxlogError as error:
            raise self._unknown(path, str(error.facts.get("reason", error.message))) from error

    def _not_synced(self, path: str, error: OSError) -> OutcomeUnknown:
        reason = os.strerror(error.errno or 0)
        return self._unknown(path, f"its folder could not be synced ({reason}); check the disk")

    def _unknown(self, path: str, reason: str) -> OutcomeUnknown:
        place = self._base + path
        return OutcomeUnknown(
            f"outcome unknown: {place} was created, and may be lost: {reason}. Repeat the call "
            "with the same content; delete nothing.",
            path=place,
        )


def _opened_folder(root: RootFolder, folder: str) -> int:
    """A descriptor of a folder below the root. Raises OSError."""
    handle = root.descriptor
    if handle is None and (handle := root.handle()) is None:
        raise FileNotFoundError(root.path)
    return open_below(handle, folder, OPEN_FOLDER)


def _read(descriptor: int, length: int, start: int) -> bytes:
    data = os.pread(descriptor, length, start)
    if len(data) == length:
        return data
    # A network file system may return less than was asked for, also before the end.
    parts = [data]
    read = len(data)
    while data and read < length:
        data = os.pread(descriptor, length - read, start + read)
        parts.append(data)
        read += len(data)
    return b"".join(parts)


def _read_ranges(
    ranges: Sequence[ByteRange], descriptor: int, status: os.stat_result
) -> list[Bytes]:
    if sum(wanted.length for wanted in ranges) < MAP_BYTES_MIN:
        return [_read(descriptor, wanted.length, wanted.start) for wanted in ranges]
    if status.st_size == 0:  # An empty file cannot be mapped.
        return [b"" for _ in ranges]
    # The views keep the mapping, and it keeps the content, when the file is closed and deleted.
    view = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    return [view[wanted.start : wanted.start + wanted.length] for wanted in ranges]
