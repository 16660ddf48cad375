"""The content of a disk after a power loss: recorded file operations, replayed with losses.

`recorded` records every operation of this process below a folder: files made, written, synced,
linked, renamed, removed, and folders made and synced. `Disk` replays them one by one and can show
after each what a power loss would leave: everything that was synced, and of the rest what a
`Survival` specifies. POSIX promises no more: content is safe after the file's fsync, a name after
its folder's, and each unsynced change may survive or not, independently of the others. A test
proves with it that acknowledged objects survive. It must not know what the files mean.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

# Operations; paths are relative to the folder that is recorded.


@dataclass(frozen=True, slots=True)
class FileMade:
    """A new, empty file; `file` is its number in the trace."""

    path: str
    file: int


@dataclass(frozen=True, slots=True)
class FileWritten:
    """Bytes appended to a file."""

    file: int
    data: bytes


@dataclass(frozen=True, slots=True)
class FileSynced:
    """A file's content was synced."""

    file: int


@dataclass(frozen=True, slots=True)
class FolderMade:
    """A new folder."""

    path: str


@dataclass(frozen=True, slots=True)
class FolderSynced:
    """The names in a folder were synced."""

    path: str


@dataclass(frozen=True, slots=True)
class Linked:
    """A second name for a file."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Renamed:
    """A file gets a new name; a file that had that name before loses it."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Removed:
    """A name was removed."""

    path: str


FileOperation: TypeAlias = (
    FileMade | FileWritten | FileSynced | FolderMade | FolderSynced | Linked | Renamed | Removed
)


@dataclass(slots=True)
class Trace:
    """The operations in order."""

    operations: list[FileOperation] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.operations)


# Recording.


@contextmanager
def recorded(folder: str | os.PathLike[str]) -> Iterator[Trace]:
    """Record what this process does below `folder` with the functions of `os` that a LocalStore
    calls.

    Only for one thread, because operations of several would have no order. The folder of a
    descriptor is found through the links in /proc.
    """
    recorder = _Recorder(os.path.abspath(os.fspath(folder)) + "/")
    before = {name: getattr(os, name) for name in recorder.replacements}
    for name, replacement in recorder.replacements.items():
        setattr(os, name, replacement)
    try:
        yield recorder.trace
    finally:
        for name, function in before.items():
            setattr(os, name, function)


class _Recorder:
    """Wraps the functions of `os` and records the calls."""

    def __init__(self, base: str) -> None:
        self.trace = Trace()
        self._base = base
        self._files = 0
        self._open: dict[int, int] = {}
        """Descriptor -> the number of the file being written."""
        self.replacements: dict[str, Callable[..., Any]] = {
            "open": self._opened,
            "close": self._closed,
            "writev": self._written,
            "fsync": self._synced,
            "link": self._named("link", Linked, ("src_dir_fd", "dst_dir_fd")),
            "rename": self._named("rename", Renamed, ("src_dir_fd", "dst_dir_fd")),
            "unlink": self._named("unlink", Removed, ("dir_fd",)),
            "mkdir": self._named("mkdir", FolderMade, ("dir_fd",)),
        }
        self._real = {name: getattr(os, name) for name in self.replacements}

    def _note(self, operation: FileOperation) -> None:
        self.trace.operations.append(operation)

    def _relative(self, path: Any, folder: int | None = None) -> str | None:
        """The path relative to the recorded folder, or None if it is outside."""
        text = os.fspath(path)
        if folder is not None and isinstance(text, str):
            text = os.path.join(_path_of(folder), text)
        if isinstance(text, str) and f"{text}/" == self._base:
            return ""
        is_below = isinstance(text, str) and text.startswith(self._base)
        return text.removeprefix(self._base).rstrip("/") if is_below else None

    def _opened(
        self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        descriptor: int = self._real["open"](path, flags, mode, dir_fd=dir_fd)
        relative = self._relative(path, dir_fd)
        if relative is not None and flags & os.O_EXCL:
            self._files += 1
            self._open[descriptor] = self._files
            self._note(FileMade(relative, self._files))
        return descriptor

    def _closed(self, descriptor: int) -> None:
        self._open.pop(descriptor, None)
        self._real["close"](descriptor)

    def _written(self, descriptor: int, buffers: Sequence[Any]) -> int:
        written: int = self._real["writev"](descriptor, buffers)
        file = self._open.get(descriptor)
        if file is not None:
            self._note(FileWritten(file, b"".join(buffers)[:written]))
        return written

    def _synced(self, descriptor: int) -> None:
        self._real["fsync"](descriptor)
        file = self._open.get(descriptor)
        if file is not None:
            self._note(FileSynced(file))
        elif os.path.isdir(f"/proc/self/fd/{descriptor}"):
            folder = self._relative(_path_of(descriptor))
            if folder is not None:
                self._note(FolderSynced(folder))

    def _named(
        self, name: str, kind: Callable[..., FileOperation], folders: tuple[str, ...]
    ) -> Callable[..., Any]:
        """Wrap a function whose first arguments are paths, each relative to the folder given by
        that keyword."""

        def call(*arguments: Any, **named: Any) -> Any:
            answer = self._real[name](*arguments, **named)
            below = [named.get(folder) for folder in folders]
            paths = [
                self._relative(path, folder) for path, folder in zip(arguments, below, strict=False)
            ]
            if None not in paths:
                self._note(kind(*paths))
            return answer

        return call


def _path_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")


# Playing back.


class Names(StrEnum):
    """Which unsynced changes of names survive."""

    NONE = "none"
    ALL = "all"
    ADDED = "added"
    """Removed names are back."""
    REMOVED = "removed"
    """Added names are missing."""
    SOME = "some"


class Content(StrEnum):
    """How much of a file's unsynced content survives."""

    LOST = "lost"
    """Nothing."""
    KEPT = "kept"
    """All of it."""
    ZEROS = "zeros"
    """The length is kept, the bytes are not."""
    TORN = "torn"
    """A part of it."""


@dataclass(frozen=True, slots=True)
class Survival:
    """What a power loss leaves of unsynced changes."""

    names: Names
    content: Content
    seed: int = 0
    """The seed of random choices."""


SURVIVALS = (
    Survival(Names.NONE, Content.LOST),
    Survival(Names.NONE, Content.KEPT),
    Survival(Names.ALL, Content.LOST),
    Survival(Names.ALL, Content.ZEROS),
    Survival(Names.ALL, Content.KEPT),
    Survival(Names.ADDED, Content.KEPT),
    Survival(Names.REMOVED, Content.KEPT),
    Survival(Names.SOME, Content.TORN, 1),
    Survival(Names.SOME, Content.TORN, 2),
)
"""The extreme cases, and two in between."""

Image: TypeAlias = Mapping[str, bytes | None]
"""What a disk holds: the content of each file by its path; None for a folder."""

_FOLDER = 0
"""Used in place of a file's number for a folder."""


@dataclass(slots=True)
class _File:
    data: bytes = b""
    synced: bytes = b""


@dataclass(frozen=True, slots=True)
class _Change:
    """Names that appear (path -> file) and names that disappear, atomically."""

    added: tuple[tuple[str, int], ...] = ()
    removed: tuple[str, ...] = ()


class Disk:
    """A folder's content as the system sees it, and the part of it that is safe."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Start with the present content of `folder`, all of it safe."""
        self._files: dict[int, _File] = {}
        self._names: dict[str, int] = {}
        for path in sorted(Path(folder).rglob("*")):
            number = _FOLDER
            if path.is_file():
                number = -len(self._files) - 1  # Numbers in a trace are positive.
                data = path.read_bytes()
                self._files[number] = _File(data, data)
            self._names[path.relative_to(folder).as_posix()] = number
        self._safe = dict(self._names)
        self._unsafe: dict[str, list[_Change]] = {}
        """Folder -> changes of its names since it was synced."""

    def apply(self, operation: FileOperation) -> None:
        """Replay the next operation of a trace."""
        match operation:
            case FileMade(path, file):
                self._files[file] = _File()
                self._change(_Change(added=((path, file),)))
            case FileWritten(file, data):
                self._files[file].data += data
            case FileSynced(file):
                self._files[file].synced = self._files[file].data
            case FolderMade(path):
                self._change(_Change(added=((path, _FOLDER),)))
            case FolderSynced(path):
                for change in self._unsafe.pop(path, ()):
                    _make(change, self._safe)
            case Linked(source, target):
                self._change(_Change(added=((target, self._names[source]),)))
            case Renamed(source, target):
                self._change(_Change(((target, self._names[source]),), (source,)))
            case Removed(path):
                self._change(_Change(removed=(path,)))

    def _change(self, change: _Change) -> None:
        _make(change, self._names)
        path = change.added[0][0] if change.added else change.removed[0]
        self._unsafe.setdefault(os.path.dirname(path), []).append(change)

    def image(self, survival: Survival) -> Image:
        """The content of the disk if the power failed now."""
        chance = random.Random(survival.seed)
        names = dict(self._safe)
        for changes in self._unsafe.values():
            for change in changes:
                _make(_surviving(change, survival.names, chance), names)
        found: dict[str, bytes | None] = {}
        for path, number in sorted(names.items()):  # A folder comes before its content.
            folder = os.path.dirname(path)
            if not folder or folder in found:
                file = None if number == _FOLDER else self._files[number]
                found[path] = None if file is None else _content(file, survival.content, chance)
        return found


def _make(change: _Change, names: dict[str, int]) -> None:
    for path in change.removed:
        names.pop(path, None)
    names.update(change.added)


def _surviving(change: _Change, names: Names, chance: random.Random) -> _Change:
    is_kept = {
        Names.NONE: False,
        Names.ALL: True,
        Names.ADDED: bool(change.added),
        Names.REMOVED: not change.added,
        Names.SOME: chance.random() < 0.5,
    }
    return change if is_kept[names] else _Change()


def _content(file: _File, content: Content, chance: random.Random) -> bytes:
    missing = len(file.data) - len(file.synced)
    length = {
        Content.LOST: 0,
        Content.KEPT: missing,
        Content.ZEROS: 0,
        Content.TORN: chance.randint(0, missing),
    }[content]
    zeros = missing if content is Content.ZEROS else 0
    return file.data[: len(file.synced) + length] + bytes(zeros)


def write_image(image: Image, folder: str | os.PathLike[str]) -> None:
    """Write that content to a folder that is empty or does not exist yet."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for path, data in image.items():  # A folder comes before its content.
        if data is None:
            Path(folder, path).mkdir()
        else:
            Path(folder, path).write_bytes(data)
