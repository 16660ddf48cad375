"""What a disk holds after the power was lost: recorded file operations, played back with losses.

`recorded` notes every operation of this process below a folder: files made, written, synced,
linked, renamed, removed, and folders made and synced. `Disk` takes them one after the other and
knows at each moment what a loss of power would leave: what was synced for certain, and of the rest
what a `Survival` says. POSIX promises no more: content is safe after the file's fsync, a name after
its folder's, and what was not synced may be there or not, each for itself. With it a test proves
that acknowledged objects survive; it must not know what the files mean.
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
    """Bytes at its end."""

    file: int
    data: bytes


@dataclass(frozen=True, slots=True)
class FileSynced:
    """Its content is safe."""

    file: int


@dataclass(frozen=True, slots=True)
class FolderMade:
    """A new folder."""

    path: str


@dataclass(frozen=True, slots=True)
class FolderSynced:
    """The names in it are safe."""

    path: str


@dataclass(frozen=True, slots=True)
class Linked:
    """A second name for a file."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Renamed:
    """Another name for a file; what had it before has none."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Removed:
    """A name less."""

    path: str


FileOperation: TypeAlias = (
    FileMade | FileWritten | FileSynced | FolderMade | FolderSynced | Linked | Renamed | Removed
)


@dataclass(slots=True)
class Trace:
    """What was done, in order."""

    operations: list[FileOperation] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.operations)


# Recording.


@contextmanager
def recorded(folder: str | os.PathLike[str]) -> Iterator[Trace]:
    """Note what this process does below `folder`, by the functions of `os` that a LocalStore calls.

    For one thread: operations of several would have no order. Folders are known by what Linux says
    that a descriptor leads to.
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
    """The functions of `os`, with a note of what they did."""

    def __init__(self, base: str) -> None:
        self.trace = Trace()
        self._base = base
        self._files = 0
        self._open: dict[int, int] = {}
        """Descriptor -> the number of the file that is written."""
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
        """Relative to the recorded folder, or None if it is outside."""
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
        """A function whose first arguments are paths, each below the folder of that keyword."""

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
    """Which changes of names survive that were not synced."""

    NONE = "none"
    ALL = "all"
    ADDED = "added"
    """What was removed is there again."""
    REMOVED = "removed"
    """What was added is not there."""
    SOME = "some"


class Content(StrEnum):
    """What files hold beyond what was synced."""

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
    """What a loss of power leaves of what was not synced."""

    names: Names
    content: Content
    seed: int = 0
    """Of what is left to chance."""


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
"""The corners, and two in between."""

Image: TypeAlias = Mapping[str, bytes | None]
"""What a disk holds: the content of each file by its path; None for a folder."""

_FOLDER = 0
"""Stands for a folder where a file has its number."""


@dataclass(slots=True)
class _File:
    data: bytes = b""
    synced: bytes = b""


@dataclass(frozen=True, slots=True)
class _Change:
    """Names that appear (path -> file) and names that go, all at once."""

    added: tuple[tuple[str, int], ...] = ()
    removed: tuple[str, ...] = ()


class Disk:
    """A folder's content as the system sees it, and as much of it as is safe."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Begins with what is in `folder` now, all of it safe."""
        self._files: dict[int, _File] = {}
        self._names: dict[str, int] = {}
        for path in sorted(Path(folder).rglob("*")):
            number = _FOLDER
            if path.is_file():
                number = -len(self._files) - 1  # A trace counts upward from 1.
                data = path.read_bytes()
                self._files[number] = _File(data, data)
            self._names[path.relative_to(folder).as_posix()] = number
        self._safe = dict(self._names)
        self._unsafe: dict[str, list[_Change]] = {}
        """Folder -> changes of its names since it was synced."""

    def apply(self, operation: FileOperation) -> None:
        """The next operation of a trace."""
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
        """What would be there if the power were lost now."""
        chance = random.Random(survival.seed)
        names = dict(self._safe)
        for changes in self._unsafe.values():
            for change in changes:
                _make(_surviving(change, survival.names, chance), names)
        found: dict[str, bytes | None] = {}
        for path, number in sorted(names.items()):  # A folder comes before what is in it.
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
    """Make that content in a folder that is empty or not there yet."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for path, data in image.items():  # A folder comes before what is in it.
        if data is None:
            Path(folder, path).mkdir()
        else:
            Path(folder, path).write_bytes(data)
