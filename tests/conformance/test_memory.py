"""The memory store fulfils the contract of a store."""

import pytest

from txlog.clock import Runtime
from txlog.storage import MemoryStore, Store
from txlog.testing.conformance import StoreConformance


class TestMemoryStore(StoreConformance):
    """In one process: no other can see its objects."""

    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore(Runtime())
