"""A folder on a disk fulfils the contract of a store, also if it is full or a link's outcome is
unclear."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.room_on_disk import room_for
from txlog.clock import Runtime
from txlog.storage import LocalStore, Store
from txlog.storage.disk.new_file import publish_exclusively, rename_exclusively
from txlog.testing.conformance import (
    FullStoreConformance,
    LostAnswerConformance,
    SharedStoreConformance,
    StoreConformance,
)


class TestLocalStore(SharedStoreConformance):
    """With syncing and several processes, as users run it."""

    @pytest.fixture
    def store_url(self, tmp_path: Path) -> str:
        return str(tmp_path / "log")


class TestLocalStoreWithoutHardLinks(StoreConformance):
    """On file systems without hard links renameat2 gives a file its name."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(tmp_path / "log", Runtime(), publish=rename_exclusively)


class TestLocalStoreWithoutSync(StoreConformance):
    """Without syncing, as tests and temporary logs run it."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(tmp_path / "log", Runtime(), durable=False)


class TestLocalStoreWithUnclearLink(LostAnswerConformance):
    """Like NFS, which can lose the answer to a link, or carry it out twice."""

    @pytest.fixture
    def losing_store(self, tmp_path: Path) -> Store:
        return LocalStore(tmp_path, Runtime(), publish=_publish_twice)

    @pytest.fixture
    def cut_off_store(self, tmp_path: Path) -> Store:
        """The store's folder vanishes after the link, so that it cannot be synced."""

        def publish_and_move_away(folder: int, temporary: str, target: str) -> bool:
            published = publish_exclusively(folder, temporary, target)
            os.rename(tmp_path / "log", tmp_path / "moved")
            return published

        return LocalStore(tmp_path / "log", Runtime(), publish=publish_and_move_away)


class TestFullLocalStore(FullStoreConformance):
    """The kernel stops a write in the middle at a limit, as on a full disk."""

    @pytest.fixture
    def full_store(self, tmp_path: Path) -> Iterator[Store]:
        with room_for(100_000):
            yield LocalStore(tmp_path, Runtime())
        assert sorted(os.listdir(tmp_path)) == ["hint", "small"]


def _publish_twice(folder: int, temporary: str, target: str) -> bool:
    """The first answer is lost, the request is sent again, and finds the name taken."""
    publish_exclusively(folder, temporary, target)
    os.unlink(temporary, dir_fd=folder)
    path = Path(os.readlink(f"/proc/self/fd/{folder}"), temporary)
    path.write_bytes(b"so that the link count tells nothing")
    return publish_exclusively(folder, temporary, target)
