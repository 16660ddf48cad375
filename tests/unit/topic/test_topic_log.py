"""A topic's log on a store: which objects are stored when its calls return."""

from tests.protocol.world import SCHEMA, batch_of
from tests.unit.held_fan_out import HeldFanOut
from txlog.client.admin import Admin
from txlog.clock import Runtime
from txlog.engine.connection import open_connection
from txlog.storage import MemoryStore
from txlog.testing.clock import ManualClock, SeededEntropy


def test_segment_is_stored_when_stage_returns() -> None:
    fan_out = HeldFanOut(holds_started=True)
    store = MemoryStore(Runtime())
    connection = open_connection(
        store, Runtime(ManualClock(), SeededEntropy(1), fan_out), create=True
    )
    Admin(connection).create_topic("t", 1, SCHEMA)
    topic = connection.cluster.topic("t")
    schema_id = topic.catch_up().newest_schema_id
    staged = topic.stage({0: [batch_of([1, 2])]}, schema_id)
    assert store.get(staged.path) is not None
