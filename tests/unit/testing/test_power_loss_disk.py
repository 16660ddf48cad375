"""The disk of the power-loss tests: what it must lose and what it must keep."""

import os
from pathlib import Path

import pytest

from txlog.testing.power_loss import (
    Content,
    Disk,
    FileMade,
    FileOperation,
    FileSynced,
    FileWritten,
    FolderMade,
    FolderSynced,
    Image,
    Linked,
    Names,
    Removed,
    Renamed,
    Survival,
    recorded,
    write_image,
)

LOST = Survival(Names.NONE, Content.LOST)
KEPT = Survival(Names.ALL, Content.KEPT)
WRITTEN = (FileMade("d/t", 1), FileWritten(1, b"abc"))
NAMED = (*WRITTEN, FileSynced(1), Linked("d/t", "d/a"))


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    """A disk with the file d/old."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d/old").write_bytes(b"old")
    return Disk(tmp_path)


def _after(disk: Disk, *operations: FileOperation, survival: Survival = LOST) -> Image:
    for operation in operations:
        disk.apply(operation)
    return disk.image(survival)


def test_existing_files_survive_a_power_loss(disk: Disk) -> None:
    assert _after(disk) == {"d": None, "d/old": b"old"}


def test_name_is_durable_only_after_its_folder_is_synced(disk: Disk) -> None:
    assert "d/a" not in _after(disk, *NAMED)
    assert _after(disk, FolderSynced("d"))["d/a"] == b"abc"


def test_content_is_durable_only_after_the_file_is_synced(disk: Disk) -> None:
    assert _after(disk, *WRITTEN, FolderSynced("d"))["d/t"] == b""
    assert _after(disk, FileSynced(1))["d/t"] == b"abc"


@pytest.mark.parametrize(
    ("content", "expected"), [("lost", b""), ("kept", b"abc"), ("zeros", b"\0\0\0")]
)
def test_unsynced_content_may_be_lost_kept_or_zeros(
    disk: Disk, content: str, expected: bytes
) -> None:
    survival = Survival(Names.ALL, Content(content))
    assert _after(disk, *WRITTEN, survival=survival)["d/t"] == expected


def test_unsynced_removal_may_be_undone(disk: Disk) -> None:
    assert "d/old" in _after(disk, Removed("d/old"))
    assert "d/old" in disk.image(Survival(Names.ADDED, Content.KEPT))
    assert "d/old" not in disk.image(Survival(Names.REMOVED, Content.KEPT))
    assert "d/old" not in _after(disk, FolderSynced("d"))


def test_rename_is_atomic(disk: Disk) -> None:
    renamed = (*WRITTEN, FolderSynced("d"), FileSynced(1), Renamed("d/t", "d/old"))
    assert _after(disk, *renamed) == {"d": None, "d/old": b"old", "d/t": b"abc"}
    assert disk.image(KEPT) == {"d": None, "d/old": b"abc"}


def test_files_in_a_folder_whose_name_is_lost_are_lost_too(disk: Disk) -> None:
    made = (FolderMade("new"), FileMade("new/a", 2), FileSynced(2), FolderSynced("new"))
    assert "new/a" not in _after(disk, *made)
    assert _after(disk, FolderSynced(""))["new/a"] == b""


def test_recording_contains_only_operations_in_its_folder(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    with recorded(inside) as trace:
        for folder in (inside, outside):
            descriptor = os.open(folder / "a", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            os.writev(descriptor, [b"a", b"b"])
            os.fsync(descriptor)
            os.close(descriptor)
            os.rename(folder / "a", folder / "b")
    os.unlink(inside / "b")
    assert trace.operations == [
        FileMade("a", 1), FileWritten(1, b"ab"), FileSynced(1), Renamed("a", "b"),
    ]  # fmt: skip


def test_image_can_be_written_and_read_back(disk: Disk, tmp_path: Path) -> None:
    image = _after(disk, *NAMED, FolderSynced("d"))
    write_image(image, tmp_path / "copy")
    assert Disk(tmp_path / "copy").image(LOST) == image
