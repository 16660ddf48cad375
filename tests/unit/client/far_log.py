"""A log whose requests each take one round trip of time; any number of processes can open it."""

from txlog.client.admin import Admin
from txlog.engine.connection import Connection, open_connection
from txlog.storage import MemoryStore, Store
from txlog.testing.clock import manual_runtime
from txlog.testing.round_trips import RoundTrips


class FarLog:
    """A new log and a process on it. `store` of `rounds` may be replaced by a scripted store."""

    def __init__(self, *, is_inline: bool = True) -> None:
        """`is_inline`: small records ride in entries."""
        limit = {} if is_inline else {"entry.records.max.bytes": 0}
        self.memory = MemoryStore(manual_runtime())
        self.rounds = RoundTrips(self.memory)
        self.connection = open_connection(
            self.rounds.store, self.rounds.runtime, create=True, log_config=limit
        )
        self.admin = Admin(self.connection)

    def process(self) -> Connection:
        """The log as a new process opens it."""
        return open_connection(self.rounds.store, self.rounds.runtime)

    def between(self, store: Store) -> None:
        """Send all later requests through `store`."""
        self.rounds.store.store = store
