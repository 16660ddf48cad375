"""A log of which each request takes a round trip and nothing else takes time: any number of
processes have it open."""

from txlog.client.admin import Admin
from txlog.engine.connection import Connection, open_connection
from txlog.storage import MemoryStore, Store
from txlog.testing.clock import manual_runtime
from txlog.testing.rounds import Rounds


class FarLog:
    """A new log, and a process on it. `store` of `rounds` may be replaced by one with a script."""

    def __init__(self) -> None:
        self.memory = MemoryStore(manual_runtime())
        self.rounds = Rounds(self.memory)
        self.connection = open_connection(self.rounds.store, self.rounds.runtime, create=True)
        self.admin = Admin(self.connection)

    def process(self) -> Connection:
        """The log as another process has it."""
        return open_connection(self.rounds.store, self.rounds.runtime)

    def between(self, store: Store) -> None:
        """From now on requests go through that store."""
        self.rounds.store.store = store
