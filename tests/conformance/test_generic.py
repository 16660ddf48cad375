"""Any fsspec file system with an exclusive create of its own fulfils the contract of a store."""

import os
import uuid
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from txlog.clock import Runtime
from txlog.storage import FsspecStore, Store, open_store
from txlog.testing.conformance import StoreConformance


class LinkedFileSystem(LocalFileSystem):  # type: ignore[misc]
    """A file system unknown to txlog, whose exclusive create is atomic."""

    protocol = "linked"

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **named: object) -> None:
        full_path = self._strip_protocol(path)
        temporary = f"{os.path.dirname(full_path)}/.part-{uuid.uuid4().hex}"
        os.makedirs(os.path.dirname(full_path), exist_ok=True)
        Path(temporary).write_bytes(value)
        try:
            if mode == "create":
                os.link(temporary, full_path)
            else:
                os.replace(temporary, full_path)
        finally:
            Path(temporary).unlink(missing_ok=True)


fsspec.register_implementation("linked", LinkedFileSystem, clobber=True)


class TestFsspecStore(StoreConformance):
    """Opened by a URL with a protocol that txlog has no entry for."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        store = open_store(f"linked://{tmp_path}/log", Runtime())
        assert isinstance(store, FsspecStore)
        return store
